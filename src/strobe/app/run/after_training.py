"""After training: writes the record, measures what limits training and what would be faster, and reports it."""

import contextlib
import logging
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from strobe.app.build.instantiate import Parts
from strobe.app.config.checks import loaders_for
from strobe.app.config.register import workers_beside
from strobe.app.run.ceilings import Ceilings
from strobe.app.run.forecast import BEGINNING, ceilings_seconds, turns_seconds
from strobe.app.run.slow_files import slow_files
from strobe.app.storage.address import is_remote
from strobe.attach import record as attached
from strobe.diagnose.candidates import candidates
from strobe.diagnose.symptoms import too_low
from strobe.errors import StrobeError
from strobe.measure import contention, environment
from strobe.measure.untouched import untouched
from strobe.present.terminal import clock
from strobe.probe.ceilings import waits_for_data
from strobe.probe.ranks import Ranks, together
from strobe.records.run import Record
from strobe.records.step_table import read_table
from strobe.report.board import show_verdict

CHOICES = ("data", "loader", "engine", "model", "trainer", "profiler")

log = logging.getLogger(__name__)


def summarise(
    cfg: DictConfig,
    parts: Parts | None,
    run_dir: Path,
    *,
    status: str,
    error: BaseException | None,
    metrics: dict[str, float],
) -> dict[str, Any]:
    """``summary.json`` as known after training; ceilings and findings are added later. See docs/runs.md."""
    hydra = HydraConfig.get()
    known = attached.summarise(
        parts and parts.trainer, run_dir, status=status, error=error, metrics=metrics, samples="images"
    )
    return known | {
        "data": parts.data.title if parts else None,
        "overrides": list(hydra.overrides.task),
        "choices": {group: hydra.runtime.choices[group] for group in CHOICES},
        "loaders": loaders_for(cfg.data.form, unasked=True, objects=is_remote(cfg.data.root)),
        "batch_size": cfg.data.batch_size,
        "num_workers": workers_beside(cfg.engine),
        "precision": str(cfg.trainer.precision),
        "train_images": len(parts.data.datasets["train"]) if parts else None,
        "image_size": _image_size(parts) if known["steps"]["measured"] else None,
    }


def _image_size(parts: Parts | None) -> dict[str, list[int]] | None:
    """Height and width of images: ``stored`` in their files, and ``given`` to the network."""
    with contextlib.suppress(OSError, StrobeError):  # a file that has gone meanwhile
        return {what: list(size) for what, size in parts.data.image_size().items()} if parts else None
    return None


def take_part(cfg: DictConfig, parts: Parts) -> None:
    """On the other ranks of a completed run: measure what the first rank's :func:`measure_ceilings` asks for."""
    with contextlib.suppress(KeyboardInterrupt, RuntimeError), together(parts.trainer) as ranks:
        if ranks:
            Ceilings(cfg, parts.data, HydraConfig.get().overrides.task, ranks).take_part()


def measure_ceilings(
    cfg: DictConfig, parts: Parts, summary: dict[str, Any], save: Callable[[], None], ranks: Ranks | None
) -> None:
    """Add the run's ceilings to its record, and those of what might be faster, each as soon as it is known.

    ``save`` is called after each, so Ctrl-C, which only ends the measuring, loses none.
    """
    ceilings, before = Ceilings(cfg, parts.data, summary["overrides"], ranks), contention.read()
    log.info(
        "Measuring what loading and training each reach alone, then what might be faster: about %s, longer on a busy "
        "machine; ceilings=false leaves this out",
        clock(ceilings_seconds(cfg, summary["step_seconds"]["total"])),
    )
    try:
        record = summary["ceilings"] = ceilings.measure()
        if parts.data.in_storage:
            record["storage"] = ceilings.storage(read_table(Path(parts.trainer.default_root_dir) / "steps.csv").rows())
        save()
        if waits_for_data(summary) and summary["choices"]["engine"] != "resident":
            record["loading"] = ceilings.loading()
            if (summary["uneven"] or {}).get("phase") == "data_wait" and cfg.engine.get("ordered") is not False:
                log.info("Reading the files of late batches again")
                shuffle, seconds = not cfg.trainer.overfit_batches, cfg.ceilings_seconds
                with untouched(cfg.threads):
                    found = slow_files(
                        parts.data, summary, Path(parts.trainer.default_root_dir), shuffle=shuffle, seconds=seconds
                    )
                summary["uneven"]["files"] = found
        tried = candidates(Record(summary, _plain(cfg))) if record["loader"] or record["model"] else []
        found = record["alternatives"]
        each = _expected(cfg, summary, [candidate.side for candidate in tried])
        began = time.monotonic()
        for number, candidate in enumerate(tried):
            pace = (time.monotonic() - began) / sum(each[:number]) if number else 1.0
            told = f"about {clock(pace * sum(each[number:]))} left: {' '.join(candidate.overrides)}"
            log.info("Measuring what might be faster, %d of %d, %s", number + 1, len(tried), told)
            if (entry := ceilings.alternative(candidate.side, candidate.overrides)) is not None:
                found.append(entry)
            save()
        for side in sorted({entry["side"] for entry in found}):
            best = max((entry for entry in found if entry["side"] == side), key=lambda entry: entry["rate"])
            # The best of several was lucky too: what it gives is what it gives once more.
            if len(found) > 1 and (again := ceilings.alternative(side, best["overrides"])) is not None:
                found[found.index(best)] = again
            if all(entry["ratio"] is None for entry in found if entry["side"] == side):
                ceilings.again(side, record)
        ceilings.settle(record)
        if too_low(Record(summary)):
            log.info("Training was faster than its ceilings, so these are measured again")
            for side in ("loader", "model"):
                ceilings.again(side, record)
        record["seconds"] = ceilings.seconds
        record["machine"] = contention.between(before, contention.read(), environment.usable_cores())
    finally:
        ceilings.close()


def _expected(cfg: DictConfig, summary: dict[str, Any], sides: list[str]) -> list[float]:
    """About how many seconds each of these measurements takes, including the best of each side a second time."""
    rate = summary["ceilings"]["model"]
    step = cfg.data.batch_size * summary["world_size"] / rate if rate else 0.0
    takes = {"model": turns_seconds(cfg, step)}
    again = [side for side in set(sides) if sides.count(side) > 1]
    return [takes.get(side, cfg.ceilings_seconds + BEGINNING) for side in [*sides, *again]]


def report(cfg: DictConfig, parts: Parts | None, summary: dict[str, Any], run_dir: Path) -> None:
    """Write the conclusions into the record, TensorBoard and ``report.html``; failures are logged, not raised."""
    config = _plain(cfg)
    show = None if parts is None else partial(show_verdict, parts.trainer, summary, config, run_dir)
    attached.report(summary, config, run_dir, show=show)


def _plain(cfg: DictConfig) -> dict[str, Any]:
    """The configuration as ``.hydra/config.yaml`` has it."""
    container: Any = OmegaConf.to_container(cfg, resolve=False)
    return dict(container)
