"""After training: what limits it, what would be faster, and where a person reads it."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lightning.pytorch.utilities.exceptions import SIGTERMException
from omegaconf import DictConfig, OmegaConf

from strobe.app.build.instantiate import Parts
from strobe.app.run.ceilings import Ceilings, blank
from strobe.diagnose.candidates import candidates
from strobe.diagnose.rank import conclude
from strobe.errors import StrobeError
from strobe.records.run import Record
from strobe.report.board import show_verdict
from strobe.report.page import write_report

log = logging.getLogger(__name__)


def measure_ceilings(cfg: DictConfig, parts: Parts, summary: dict[str, Any], save: Callable[[], None]) -> None:
    """Add the ceilings to a completed run's record, and those of what might be faster, each as soon as it is had.

    ``save`` is called with each, so that Ctrl-C, which only ends the measuring, loses none.
    """
    ceilings = Ceilings(cfg, parts.data, summary["overrides"])
    try:
        record = summary["ceilings"] = ceilings.measure()
        save()
        tried = candidates(Record(summary, _plain(cfg))) if record["loader"] or record["model"] else []
        for number, candidate in enumerate(tried, 1):
            log.info("Measuring %d of %d: %s", number, len(tried), " ".join(candidate.overrides))
            found = ceilings.alternative(candidate.side, candidate.overrides)
            if found is not None:
                record["alternatives"].append(found)
            save()
        for side in sorted({found["side"] for found in record["alternatives"]}):
            ceilings.again(side, record)
        record["seconds"] = ceilings.seconds
    except (KeyboardInterrupt, SIGTERMException):
        log.warning("Measuring was interrupted: what is not measured is missing below; the training is complete")
        summary["ceilings"] = summary["ceilings"] or blank("measuring was interrupted")


def report(
    cfg: DictConfig, parts: Parts | None, summary: dict[str, Any], run_dir: Path, save: Callable[[], None]
) -> None:
    """Draw the conclusions, into the record, TensorBoard and ``report.html``; what fails is logged, not raised."""
    try:
        conclude(summary, _plain(cfg), run_dir)
        save()
        if parts is not None:
            show_verdict(parts.trainer, summary, _plain(cfg))
        write_report(run_dir, Record(summary, _plain(cfg)))
    except (OSError, StrobeError) as error:
        log.error("No report: %s", error)
    except Exception:  # the run is done, and its record is kept
        log.exception("No report, by an error of this program")


def _plain(cfg: DictConfig) -> dict[str, Any]:
    """The configuration as ``.hydra/config.yaml`` has it."""
    container: Any = OmegaConf.to_container(cfg, resolve=False)
    return dict(container)
