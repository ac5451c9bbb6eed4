"""The record's ``ceilings``: what each side of a training reaches alone, and both together on the cores they share."""

import time
from collections.abc import Sequence
from typing import Any

import torch

from strobe.diagnose.predict import NOTABLE, step_of
from strobe.diagnose.rank import FEWEST_STEPS
from strobe.errors import StrobeError
from strobe.measure.contention import Reading, between, read
from strobe.measure.environment import usable_cores
from strobe.measure.timing import WARMUP_STEPS, Rate
from strobe.records.run import Record

SIDES = ("loader", "model", "transfer")
ENOUGH = WARMUP_STEPS + FEWEST_STEPS  # of a training, whatever they take


def blank(reason: str | None = None) -> dict[str, Any]:
    """The record's ``ceilings`` with nothing measured."""
    return {
        **dict.fromkeys(SIDES),
        "intervals": dict.fromkeys(SIDES),
        "cpu_seconds": {"loader": None, "model": None},
        "shared_cores": None,
        "joint": None,
        "batch_bytes": None,
        "storage": None,  # what fetching objects alone reaches, where images come from storage
        "loading": None,  # where the time of making a batch goes
        "between": None,  # seconds per step of validations and checkpoints, where they were measured alone
        "off": [],  # loggers that were off while the run's steps were measured
        "image_size": None,  # height and width on which the network computed
        "drift": None,
        "alternatives": [],
        "seconds": 0.0,
        "machine": None,
        "reason": reason,
    }


def enter(record: dict[str, Any], side: str, rate: Rate) -> None:
    """Write a side's rate into the record."""
    record[side], record["intervals"][side] = rate.median, [rate.low, rate.high]
    if side in record["cpu_seconds"]:
        record["cpu_seconds"][side] = rate.cpu_seconds


def share_cores(device: torch.device, *, ranks: int, workers: int) -> bool:
    """Whether loading, in so many workers of each rank of this machine, and training compute on the same cores."""
    return device.type == "cpu" and (workers == 0 or ranks * (torch.get_num_threads() + workers) > usable_cores())


def joint(record: dict[str, Any], *, workers: int, nodes: int = 1) -> float | None:
    """Images/s of both together on the cores they share: in turn in one process, or as far as the cores go."""
    loader, model = record["loader"], record["model"]
    if not record["shared_cores"] or loader is None or model is None:
        return None
    if workers == 0:
        return float(1 / (1 / loader + 1 / model))
    if None in record["cpu_seconds"].values():
        return None
    cores = usable_cores() * nodes
    return float(min(cores / sum(record["cpu_seconds"].values()), loader, model))


def sum_up(
    record: dict[str, Any], summary: dict[str, Any], failures: Sequence[str], *, began: float, before: Reading
) -> None:
    """Enter the ceilings into a script's record, with why some are not known, and what the machine did meanwhile.

    ``began``, by time.perf_counter, and ``before`` are from when measuring them began.
    """
    record["joint"] = joint(record, workers=summary["num_workers"] or 0)
    record["seconds"] = time.perf_counter() - began
    record["reason"] = "; ".join(failures) or None
    record["machine"] = between(before, read(), usable_cores())
    summary["ceilings"] = record


def waits_for_data(summary: dict[str, Any]) -> bool:
    """Whether a training waits so long that it is worth measuring the parts of making a batch."""
    step = step_of(Record(summary))
    return step is not None and step.waiting >= NOTABLE


def in_one_line(error: BaseException, sentences: Sequence[type[BaseException]] = (StrobeError,)) -> str:
    """An error as a sentence; of a long one, the first. Errors of some kinds are sentences as they are."""
    text = " ".join(str(error).split())
    if isinstance(error, tuple(sentences)):
        return text
    return f"{type(error).__name__}: {text.split('. ')[0]}" if text else type(error).__name__
