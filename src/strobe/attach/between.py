"""What a training does between its steps, measured alone: how long validations and checkpoints take, and how often."""

import math
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strobe.callbacks.columns import GAPS
from strobe.diagnose.symptoms import times_an_epoch
from strobe.probe.ceilings import in_one_line
from strobe.probe.takeover import is_lightnings
from strobe.records.run import Record, as_number

VALIDATION, CHECKPOINTS, _ = GAPS
ROOM = 0.5  # of the free disk, that a checkpoint may take
STATES = 3  # times its weights, that a checkpoint with the state of an optimizer takes
MORE = 4  # times as many batches are validated, until that takes long enough to tell


@dataclass(frozen=True)
class Pauses:
    """What a Trainer would do between steps, as the script has set it; made before it is switched off."""

    limit: int | float  # limit_val_batches
    checkpoints: Sequence[Any]  # the ModelCheckpoint callbacks

    @classmethod
    def of(cls, trainer: Any) -> "Pauses":
        """Those of a Trainer."""
        found = [one for one in trainer.callbacks if is_lightnings(one, ("ModelCheckpoint",))]
        return cls(trainer.limit_val_batches, found)

    def measure(self, trainer: Any, summary: dict[str, Any], seconds: float, scratch: str) -> tuple[Any, list[str]]:
        """Seconds per step of each that is ever due, and why others are not known; training cannot go on afterwards.

        Args:
            trainer: within a hook of a training step.
            summary: of its training: how many batches an epoch has, and what the Trainer is set to.
            seconds: about, for each.
            scratch: a folder for the checkpoint.
        """
        batches = Record(summary).number("batches_per_epoch")
        often = self._often(trainer, batches)
        works: dict[str, Callable[[], float | None]] = {
            VALIDATION: lambda: self._validation(trainer, seconds),
            CHECKPOINTS: lambda: _checkpoint(trainer, Path(scratch)),
        }
        found, failures = dict[str, float](), list[str]()
        for name, work in works.items():
            try:
                if often[name] and (taken := work()) is not None:
                    found[name] = taken * often[name]
            except Exception as error:
                failures.append(f"{name}: {in_one_line(error)}")
        return found or None, failures

    def _often(self, trainer: Any, batches: float | None) -> dict[str, float]:
        """How many of each there are in a step."""
        epochs, accumulated = trainer.check_val_every_n_epoch, trainer.accumulate_grad_batches
        validations = 0.0
        if epochs is None:  # it counts batches across epochs
            validations = 1 / trainer.val_check_interval
        elif batches and (trainer.max_epochs is None or trainer.max_epochs < 0 or epochs <= trainer.max_epochs):
            validations = times_an_epoch(trainer.val_check_interval, batches) / epochs / batches
        saves = 0.0
        for one in self.checkpoints:
            kept = (one.save_top_k == -1 or (one.save_top_k and one.monitor is None)) + (one.save_last is True)
            if (steps := as_number(getattr(one, "_every_n_train_steps", 0))) and steps > 0:
                saves += kept / (steps * accumulated)
            elif (each := as_number(getattr(one, "_every_n_epochs", 0))) and batches:
                saves += kept / each / batches
        return {VALIDATION: validations, CHECKPOINTS: saves}

    def _validation(self, trainer: Any, seconds: float) -> float | None:
        """Seconds of a validation, told by some of its batches if it is long; None without one, or if it has no end."""
        loop = trainer.fit_loop.epoch_loop.val_loop
        trainer.limit_val_batches, trainer.validating = self.limit, True
        loop.setup_data()
        whole = list(loop._max_batches) if isinstance(loop._max_batches, list) else [loop._max_batches]
        if not sum(whole) or math.inf in whole:
            return None

        def run(most: int) -> tuple[int, float]:
            loop._max_batches = [min(count, most) for count in whole]
            began = time.perf_counter()
            loop.run()
            return sum(loop._max_batches), time.perf_counter() - began

        run(1)  # pays for what is made once
        most, (fewest, start) = MORE, run(1)
        while fewest < sum(whole):
            count, taken = run(most)
            if count == sum(whole):
                return taken
            if taken >= seconds / 2:
                return start + max(0.0, taken - start) / (count - fewest) * (sum(whole) - fewest)
            most *= MORE
        return start


def apply(summary: dict[str, Any]) -> None:
    """Let a record whose training did nothing between steps tell of one that does what ``ceilings.between`` holds."""
    added = Record(summary).mapping("ceilings", "between")
    gaps = summary["between_seconds"]
    before = summary["step_seconds"]["total"] + sum(value or 0.0 for value in gaps.values())
    for name, seconds in added.items():
        gaps[name] = (gaps[name] or 0.0) + seconds
    summary["overall_images_per_second"] *= before / (before + sum(added.values()))


def _checkpoint(trainer: Any, scratch: Path) -> float | None:
    """Seconds of saving one; None where there may not be enough room for it."""
    size = STATES * sum(part.nbytes for part in trainer.lightning_module.parameters())
    if size > ROOM * shutil.disk_usage(scratch).free:
        return None
    taken, path = 0.0, scratch / "weights.ckpt"
    for _ in range(2):  # the first one pays for folders and imports
        began = time.perf_counter()
        type(trainer).save_checkpoint(trainer, path)
        taken = time.perf_counter() - began
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return taken
