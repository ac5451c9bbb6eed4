"""What a training does between its steps, measured alone: how long validations and checkpoints take, and how often."""

import math
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from strobe.callbacks.columns import GAPS
from strobe.errors import StrobeError
from strobe.probe.ceilings import in_one_line
from strobe.probe.takeover import is_lightnings, seconds_between_validations, validation_cycle
from strobe.records.run import Record

VALIDATION, CHECKPOINTS, _ = GAPS
ROOM = 0.5  # of the free disk, that a checkpoint may take
STATES = 3  # times its weights, that a checkpoint with the state of an optimizer takes
MORE = 4  # times as many batches are validated, until that takes long enough to tell
# The batches of several loaders, by the mode in which they are combined: in others the most of one.
COUNTS: dict[str, Callable[[list[float]], float]] = {"sequential": sum, "min_size": min}


@dataclass
class Pauses:
    """What a Trainer would do between steps, as the script has set it; noted before it is switched off.

    Attributes:
        limit: limit_val_batches.
        most: steps of the training; infinite without a limit.
        checkpoints: the ModelCheckpoint callbacks.
    """

    limit: int | float = 0
    most: float = math.inf
    checkpoints: list[Any] = field(default_factory=list)

    def note(self, trainer: Any) -> None:
        """Note those of a Trainer whose ``fit`` begins; again when the module has added its callbacks."""
        if trainer.fast_dev_run:
            return
        self.limit = self.limit or trainer.limit_val_batches
        self.checkpoints += [one for one in trainer.callbacks if is_lightnings(one, ("ModelCheckpoint",))]

    def limits(self, trainer: Any) -> None:
        """Note how long a training is that begins."""
        ends = (trainer.max_epochs, trainer.num_training_batches), (trainer.max_steps, trainer.accumulate_grad_batches)
        self.most = min((times * steps for times, steps in ends if (times or -1) > 0), default=math.inf)

    def often(self, trainer: Any, batches: float | None, step: float) -> dict[str, float]:
        """How many of each there are in a step of a training with so many ``batches`` an epoch, of ``step`` seconds.

        A checkpoint that watches a metric is saved when that has improved, which nobody knows: it is not counted.
        """
        number = validations(trainer, batches, step)
        kept = [one for one in self.checkpoints if one.save_top_k == -1 or (one.save_top_k and one.monitor is None)]
        saves = sum(_saves(one, trainer, batches, step, number) * (1 + (one.save_last is True)) for one in kept)
        counts = {VALIDATION: number, CHECKPOINTS: saves}
        return {name: often if often * self.most >= 1 else 0.0 for name, often in counts.items()}

    def measure(self, trainer: Any, summary: dict[str, Any], seconds: float, scratch: str) -> tuple[Any, list[str]]:
        """Seconds per step of each that is ever due, and why others are not known; training cannot go on afterwards.

        It is called within a hook of a training step, takes about so many ``seconds`` for each, and saves the
        checkpoint in the folder ``scratch``.
        """
        record, seconds_per_step, failures = Record(summary), dict[str, float](), list[str]()
        batches, step = record.number("batches_per_epoch"), record.number("step_seconds", "total") or 0.0
        works: dict[str, Callable[[], float]] = {
            VALIDATION: lambda: self._validation(trainer, seconds),
            CHECKPOINTS: lambda: self._checkpoint(trainer, Path(scratch)),
        }
        for name, work in works.items():
            try:
                trainer.limit_val_batches = self.limit
                if often := self.often(trainer, batches, step)[name]:
                    seconds_per_step[name] = often * work()
            except Exception as error:
                failures.append(f"{name}: {in_one_line(error)}")
        return seconds_per_step or None, failures

    def _validation(self, trainer: Any, seconds: float) -> float:
        """Seconds of a validation, told by some of its batches if it is long."""
        trainer.validating, loop = True, trainer.fit_loop.epoch_loop.val_loop
        loop.setup_data()
        whole = list(loop._max_batches)
        number = COUNTS.get(loop._combined_loader._mode, max)(whole)
        if number == math.inf:
            raise StrobeError("its data has no length")

        def run(most: int) -> tuple[int, float]:
            loop._max_batches = [min(count, most) for count in whole]
            began = time.perf_counter()
            loop.run()
            return loop.batch_progress.current.ready, time.perf_counter() - began

        run(1)  # pays for what is made once
        most, (fewest, start) = MORE, run(1)
        count, taken = fewest, start
        until = time.perf_counter() + seconds / 2
        while count < number and (count == fewest or time.perf_counter() < until):
            count, taken = run(most)
            most *= MORE
        return start + (taken - start) / max(1, count - fewest) * (number - fewest)

    def _checkpoint(self, trainer: Any, scratch: Path) -> float:
        """Seconds of saving one."""
        size = STATES * sum(part.nbytes for part in trainer.lightning_module.parameters())
        if size > ROOM * shutil.disk_usage(scratch).free:
            raise StrobeError(f"{scratch} may have no room for one; TMPDIR=FOLDER gives another one")
        for config in trainer.lr_scheduler_configs:
            vars(config.scheduler).pop("step", None)  # the takeover's, which is no part of a checkpoint
        taken, path, light = 0.0, scratch / "weights.ckpt", all(one.save_weights_only for one in self.checkpoints)
        for _ in range(2):  # the first one pays for folders and imports
            began = time.perf_counter()
            type(trainer).save_checkpoint(trainer, path, weights_only=light)
            taken = time.perf_counter() - began
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        return taken


def count_pauses(summary: dict[str, Any]) -> None:
    """Let a record whose training did nothing between steps tell of one that does what ``ceilings.between`` holds."""
    added, gaps = Record(summary).mapping("ceilings", "between"), summary["between_seconds"]
    before = summary["step_seconds"]["total"] + sum(value or 0.0 for value in gaps.values())
    for name, seconds in added.items():
        gaps[name] = (gaps[name] or 0.0) + seconds
    summary["overall_images_per_second"] *= before / (before + sum(added.values()))


def validations(trainer: Any, batches: float | None, step: float) -> float:
    """How many there are in a step of so many seconds, where an epoch has so many ``batches``."""
    number, steps = validation_cycle(trainer, batches) or (0, math.inf)
    interval = seconds_between_validations(trainer)
    return number / steps if interval is None else number * step / interval


def _saves(one: Any, trainer: Any, batches: float | None, step: float, validations: float) -> float:
    """Of a step, as a ModelCheckpoint decides."""
    if one._train_time_interval is not None:
        return float(step / one._train_time_interval.total_seconds())
    if one._every_n_train_steps:
        return float(1 / one._every_n_train_steps / trainer.accumulate_grad_batches)
    every, epochs = one._every_n_epochs, trainer.check_val_every_n_epoch
    at_end = one._save_on_train_epoch_end
    if at_end is None:
        once = not validations or getattr(trainer, "val_check_interval", None) == 1.0
        at_end = seconds_between_validations(trainer) is None and epochs == 1 and once
    if not every or (at_end and not batches):
        return 0.0
    if at_end and batches:
        return float(1 / every / batches)
    return validations * (epochs or 1) / math.lcm(epochs or 1, every)
