"""The record of a training: what any Trainer can tell of it, what is concluded, and where a person reads it."""

import logging
import random
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import torch

from strobe.attach.weights import large_hyperparameters, told_by_weights
from strobe.callbacks.owners import kinds
from strobe.callbacks.rows import StepLog
from strobe.callbacks.wasted import KINDS
from strobe.diagnose import rank
from strobe.errors import StrobeError
from strobe.measure import contention, environment
from strobe.measure.environment import usable_cores
from strobe.process.signals import what_ended
from strobe.records.files import BEGUN, keep_room, make_room, size_of, write_summary
from strobe.records.joining import IMPATIENCE, PATIENCE, join_ranks, what_failed
from strobe.records.ranks import rank_files
from strobe.records.run import SCHEMA, Record
from strobe.records.steps import measure_steps
from strobe.report.page import write_report
from strobe.traces.rank import Read, read_trace

_drawn = random.getstate()  # rich draws a number where it is first imported
from rich.console import Console  # noqa: E402

from strobe.report.terminal import print_summary  # noqa: E402

random.setstate(_drawn)

WRITTEN = ("summary.json", "steps.csv", "ranks", "report.html", "traces.html", "tables")  # besides traces
UNKNOWN = (  # keys of ``summary.json`` whose values come later, if they do
    *("verdict", "script", "settings", "data", "batch_size", "num_workers", "train_images", "image_size"),
    *("machine", "startup_seconds", "ceilings", "efficiency", "trace_evidence", "worker_threads", "operations"),
    *("padding", *KINDS, "ignored_labels", "batch_bytes", "batch_storage_bytes", "bytes"),
)
log = logging.getLogger(__name__)


def summarise(
    trainer: Any,
    run_dir: Path,
    *,
    status: str,
    error: BaseException | None,
    metrics: dict[str, float],
    samples: str = "samples",
    device: torch.device | None = None,
    world: int | None = None,
) -> dict[str, Any]:
    """``summary.json`` as far as any Trainer can tell, None if there was none yet; the rest is null.

    ``samples`` are what rates count; ``device`` is where training ran, and ``world`` how many ranks there were, if
    there is no Trainer that knows. See docs/runs.md.
    """
    device = device or (trainer and trainer.strategy.root_device)
    kind = device.type if device else None
    steps = measure_steps(run_dir / "steps.csv", device=kind, samples=samples)
    failed = what_failed(run_dir, error) if error else None
    if error and failed and (message := what_ended(error)):
        failed["message"] = message
    model = trainer.lightning_module if trainer else None
    known = {} if model is None else kinds(trainer)
    for one in steps["callbacks"]:
        one["kind"] = known.get(one["name"], "callback")
    learning = trainer.optimizers if trainer else ()
    world = trainer.world_size if trainer else world
    ranks = None
    try:
        ranks = join_ranks(run_dir, world, patience=PATIENCE if status == "completed" else IMPATIENCE)
    except Exception:  # the rest of the record is kept
        log.exception("The ranks' rows were not joined, by an error of this program")
    return {
        "schema": SCHEMA,
        "date": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "status": status,
        "error": failed,
        **dict.fromkeys(UNKNOWN),
        "overrides": [],
        "choices": {},
        "loaders": [],
        "threads": torch.get_num_threads(),
        "accelerator": kind,
        "devices": trainer and trainer.num_devices,
        "world_size": world,
        "precision": trainer and str(trainer.precision),
        **told_by_weights(model.modules() if model is not None else (), learning),
        "hyperparameters": large_hyperparameters(model, trainer and getattr(trainer, "datamodule", None)),
        "batches_per_epoch": batches_of(trainer) if trainer else None,
        "environment": environment.describe(device=device),
        **steps,
        "ranks": ranks,
        "memory": environment.peak_memory(device),
        "findings": [],
        "lines": [],
        "long_lines": [],
        "calls": [],
        "costliest": {},
        "traces": sorted(str(path.relative_to(run_dir)) for path in run_dir.glob("tensorboard/**/*.pt.trace.json*")),
        "metrics": metrics,
    }


def batches_of(trainer: Any) -> int | None:
    """How many batches of training an epoch has; None where nobody knows."""
    batches = trainer.num_training_batches if trainer.limit_train_batches else 0  # for which no loader is asked
    return None if batches == float("inf") else int(batches)


def status_of(error: BaseException | None) -> str:
    """How a training ended, by what ended it."""
    interrupted = isinstance(error, KeyboardInterrupt | SystemExit)  # with Lightning's own, of SIGTERM
    return "completed" if error is None else "interrupted" if interrupted else "failed"


def readable(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Those that can be read: after a failed assertion on a GPU, none that lies there."""
    figures = {}
    for name, value in metrics.items():
        with suppress(RuntimeError):
            figures[name] = float(value)
    return figures


def save(summary: dict[str, Any], run_dir: Path) -> None:
    """Write ``summary.json``, in the room that was kept for it; what keeps it from being written is logged."""
    try:
        make_room(run_dir)
        write_summary(run_dir / "summary.json", summary)
        (run_dir / BEGUN).unlink(missing_ok=True)
    except OSError as failure:
        log.error("summary.json could not be written to %s: %s", run_dir, failure)


def begin(summary: dict[str, Any], run_dir: Path) -> None:
    """Keep what is known of a training that begins, for a report where it is killed; see ``strobe.records.joining``.

    Also keep room for its record.
    """
    with suppress(OSError):  # which the record's own writing will tell
        for rank, path in rank_files(run_dir).items():
            if rank >= (summary["world_size"] or 1):  # of an earlier training with more ranks
                path.unlink()
        write_summary(run_dir / BEGUN, summary)
        keep_room(run_dir)


def report(
    summary: dict[str, Any],
    config: dict[str, Any],
    run_dir: Path,
    *,
    page: bool = True,
    show: Callable[[Read], None] | None = None,
) -> None:
    """Draw the conclusions, into the record, what ``show`` shows and ``report.html``; failures are logged."""
    read = cache(read_trace)  # each trace once, for all that look at it
    try:
        rank.conclude(summary, config, run_dir, read)
        save(summary, run_dir)
        if show is not None:
            show(read)
        if page:
            write_report(run_dir, Record(summary, config), read)
    except (OSError, StrobeError) as error:
        log.error("No report: %s", error)
    except Exception:  # the run is done, and its record is kept
        log.exception("No report, by an error of this program")
    # A script's directory may hold other files, too.
    own = [*WRITTEN, *summary["traces"]] if summary["script"] else [""]
    summary["bytes"] = size_of(*(run_dir / name for name in own))
    save(summary, run_dir)


def meanwhile(before: contention.Reading, after: contention.Reading, log: StepLog | None) -> dict[str, Any]:
    """The keys of ``summary.json`` that say what machine and threads did while a training ran."""
    machine = contention.between(before, after, usable_cores())
    return {"machine": machine | {"threads": log.threads.cores() if log else []}} | (log.meanwhile() if log else {})


def complete(
    summary: dict[str, Any],
    config: dict[str, Any],
    run_dir: Path,
    *,
    machine: tuple[contention.Reading, contention.Reading],
    steps: StepLog | None,
    page: bool,
    told: bool = True,
) -> None:
    """Complete the record of a script's training: what machine and threads did meanwhile, conclusions and page.

    If it is ``told``, the verdict is printed where it is in no script's output: on standard error.
    """
    if not run_dir.is_dir():
        log.error("%s was removed while training ran, so Strobe has no record of it", run_dir)
        return
    summary |= meanwhile(*machine, steps)
    save(summary, run_dir)
    report(summary, config, run_dir, page=page)
    if told:
        print_summary(summary, run_dir, _Console(stderr=True))


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Say no more; rich would end the script, and close its output."""
        self.quiet = True
