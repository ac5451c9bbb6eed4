"""In the process of a script that is probed: its first training is taken over, of several ranks that of each.

A stretch of it is recorded, its sides are measured, and it ends.
"""

import os
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from strobe.attach.between import Pauses, count_pauses
from strobe.attach.callback import Strobe
from strobe.attach.place import what_stopped
from strobe.attach.probing_loop import PATIENCE, STRETCH, leave
from strobe.attach.record import batches_of, complete, meanwhile, save
from strobe.callbacks.accelerators import is_accelerator
from strobe.diagnose.rank import FEWEST_STEPS, NO_BATCHES
from strobe.measure import contention
from strobe.measure.timing import WARMUP_STEPS, clock
from strobe.present.format import duration
from strobe.probe import takeover
from strobe.probe.asked import BETWEEN, LOADER, MODEL, SIDES, STAGES, STEPS, TRANSFER, Asked
from strobe.probe.ceilings import sum_up
from strobe.probe.loader import samples_of
from strobe.probe.ranks import LostRankError, meet
from strobe.probe.trainer_sides import TrainerSides
from strobe.records.files import BEGUN, write_summary

LOOKS, SYNCHRONISED = 2.0, 8  # seconds between looks at other ranks; steps between which a GPU's rank waits for itself
UNLOGGED = "the script's own logging (logger.experiment), which is off here: strobe run shows what it costs"

_taken: set[str] = set()


def attend(asked: Asked) -> None:
    """Take over the first training of this process, of each Lightning that it has imported."""
    pipe = Connection(asked.pipe) if os.getpid() == asked.process else None  # of a rank that Lightning started
    for name in takeover.PACKAGES:
        if name in sys.modules and name not in _taken:
            _taken.add(name)
            trainer = sys.modules[name].Trainer
            takeover.without_loggers(trainer, asked.scratch)
            takeover.on_fit(trainer, partial(_begin, asked, pipe), partial(_ended, pipe))


def _begin(asked: Asked, pipe: Connection | None, trainer: Any) -> None:
    if trainer.num_nodes > 1:
        leave(pipe, f"it trains on {trainer.num_nodes} nodes, and only one can be probed")
    if trainer.world_size > 1 and (way := getattr(trainer.strategy.launcher, "_start_method", None)):
        leave(pipe, f'its ranks begin by {way}; those of Trainer(strategy="ddp") can be probed')
    if pipe is None and os.getppid() != asked.process:
        leave(pipe, "another program starts its ranks; give the script itself, whose Trainer starts them")
    pauses = Pauses()
    pauses.note(trainer)
    takeover.silence(trainer, asked.scratch)
    trainer.callbacks = [*(one for one in trainer.callbacks if not _measures(one)), Probe(asked, pipe, pauses)]


def _measures(callback: Any) -> bool:
    """Whether it is one of Strobe's own, which would measure the measuring."""
    return isinstance(callback, Strobe) or type(callback).__module__.startswith("strobe.")


def _ended(pipe: Connection | None, trainer: Any) -> None:
    told = f": {NO_BATCHES}" if batches_of(trainer) == 0 else ""
    leave(pipe, f"its training ended before it could be measured{told}")


class Probe(Strobe):
    """Records a stretch of the training that it is added to, measures its sides, and ends the process.

    The stretch is ordinary training. In the hook that ends its last step the sides are measured; that of the model is
    training, too, on batches of before. Of several ranks, rank 0 has the record.
    """

    def __init__(self, asked: Asked, pipe: Connection | None, pauses: Pauses) -> None:
        super().__init__(asked.folder)
        self._asked, self._pipe, self._pauses = asked, pipe, pauses
        self._callbacks: list[Any] = []  # of the script
        self._sides = TrainerSides(asked, self._say)
        self._steps = 0
        self._longest = asked.seconds  # of a side that trains
        self._gpu = self._waits = False  # for workers that start anew
        self._since = time.perf_counter()
        self._summary: dict[str, Any] = {}
        self._config: dict[str, Any] = {}
        self._readings: list[contention.Reading] = []
        self._began, self._calls = 0.0, 0

    @property
    def state_key(self) -> str:
        """That of what records: its time is shown, and never a finding."""
        return Strobe.__qualname__

    def on_fit_start(self, trainer: Any, *given: Any) -> None:
        """Take over."""
        self._pauses.note(trainer)
        takeover.take_over(trainer, self._asked.scratch)
        self._sides.ceilings["off"] = [one.stands_for for one in trainer.loggers]
        if trainer.world_size > 1:
            self._sides.ranks = meet(trainer)
            self._sides.begin(STEPS)
            threading.Thread(target=self._watch, daemon=True).start()
        if STEPS in self._asked.sides:
            super().on_fit_start(trainer, *given)

    def on_train_start(self, trainer: Any, *given: Any) -> None:
        """Say so."""
        super().on_train_start(trainer, *given)
        self._pauses.limits(trainer)
        self._calls = takeover.Nothing.calls
        self._gpu = is_accelerator(trainer.strategy.root_device)
        if STEPS in self._asked.sides:
            self._say(STEPS)
        else:
            self._guarded(self._listen, trainer)
        self._since = time.perf_counter()

    def on_train_batch_end(self, trainer: Any, *given: Any) -> None:
        """End a step: one that is recorded, or one of a batch that is replayed."""
        batch = given[2]
        if (meter := self._sides.meter) is not None:
            if meter.add(samples_of(batch)):
                self._guarded(self._end_replay, trainer)
            return
        self._steps += 1
        self._sides.count(batch, self._recorder.batch_size)
        super().on_train_batch_end(trainer, *given)
        takeover.go_on(trainer)
        self._guarded(self._go_on_or_measure, trainer)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """End with what is known: an error in a replayed step leaves the model's rate unknown."""
        why = self._sides.why(exception) + takeover.due(exception)
        if self._sides.meter is not None:
            self._sides.failures.append(f"{MODEL}: {why}")
            self._guarded(self._complete, trainer)
        super().on_exception(trainer, pl_module, exception)
        leave(self._pipe, f"its training failed: {why}")

    def _new_place(self) -> Path:
        return Path(self._asked.folder)

    def _fail(self, trainer: Any, error: Exception) -> None:
        super()._fail(trainer, error)
        lost = isinstance(error, LostRankError)
        leave(self._pipe, self._sides.why(error) if lost else what_stopped(error))

    def _leave_record(self, trainer: Any, error: BaseException | None) -> None:
        if self._steps:
            super()._leave_record(trainer, error)

    def _known(self, *given: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        summary, config = super()._known(*given)
        return summary | {"script": self._asked.line}, config

    def _say(self, side: str, more: str = "", lasts: float | None = None) -> None:
        """Tell what is measured now, and how long all takes from here on; keep what was measured before."""
        if self._pipe is not None:
            wanted = [one for one in self._asked.sides if one != TRANSFER or self._gpu]
            left = [one for one in SIDES[SIDES.index(side) :] if one in wanted]
            if self._summary:
                names = ", ".join(STAGES[one][0].lower() + STAGES[one][1:] for one in left)
                self._sum_up(f"it was ended before {names}")
                with suppress(OSError):  # which the record's own writing will tell
                    write_summary(Path(self._asked.folder, BEGUN), self._summary)
            usual = {one: self._longest if one in (STEPS, MODEL) else self._asked.seconds for one in left}
            self._pipe.send((STAGES[side] + more, sum(usual.values()) + (lasts - usual[side] if lasts else 0.0)))

    def _watch(self) -> None:
        """End when another rank has failed, for which this one may wait in vain."""
        while (ranks := self._sides.ranks) is not None:
            time.sleep(LOOKS)
            if why := ranks.ended():
                leave(self._pipe, f"its training failed: {ranks.fail(why)}")

    def _go_on_or_measure(self, trainer: Any) -> None:
        enough = self._is_enough(trainer)
        if ranks := self._sides.ranks:
            device, ahead = trainer.strategy.root_device, trainer.accumulate_grad_batches
            if is_accelerator(device):  # whose host runs ahead of the other ranks
                ahead += SYNCHRONISED
                if not trainer.is_global_zero and self._steps % SYNCHRONISED == 0:
                    clock(device)()
            enough = ranks.is_last(self._steps, enough=enough, ahead=ahead)
        if enough:
            self._measure(trainer)

    def _is_enough(self, trainer: Any) -> bool:
        if STEPS not in self._asked.sides:
            return True
        passed = time.perf_counter() - self._since
        if self._steps == WARMUP_STEPS and passed < self._asked.seconds:
            self._since = time.perf_counter()
        if self._steps == 2 and (left := FEWEST_STEPS * passed / 2) > PATIENCE * self._asked.seconds:
            self._longest = left
            self._say(STEPS, f", whose steps take {duration(passed / 2)}")
        patient = passed < PATIENCE * self._asked.seconds
        enough = self._steps >= WARMUP_STEPS + (STRETCH if patient else FEWEST_STEPS)
        if passed < self._asked.seconds or not enough:
            return False
        left = self._until_anew(trainer, passed) if patient else 0.0
        if left and not self._waits:
            self._waits = True
            self._say(STEPS, ", until its workers start anew", left)
        return not left

    def _until_anew(self, trainer: Any, passed: float) -> float:
        """Seconds until workers have started anew in the next epoch, if that is near: worth seeing what it costs."""
        loop = trainer.fit_loop
        loaders = loop._combined_loader.flattened if loop._combined_loader is not None else ()
        anew = any(getattr(one, "num_workers", 0) and not getattr(one, "persistent_workers", True) for one in loaders)
        epoch = trainer.current_epoch
        if not anew or epoch > 1 or (epoch and loop.batch_idx >= WARMUP_STEPS):
            return 0.0
        left = passed / self._steps * (WARMUP_STEPS if epoch else trainer.num_training_batches - loop.batch_idx)
        return left if left < PATIENCE * self._asked.seconds else 0.0

    def _measure(self, trainer: Any) -> None:
        """Everything but the model, in a hook: nobody trains meanwhile."""
        self._keep_stretch(trainer)
        if takeover.Nothing.calls > self._calls:
            self._sides.failures.append(UNLOGGED)
        self._began = time.perf_counter()
        self._readings.append(contention.read())
        self._callbacks, trainer.callbacks = trainer.callbacks, [self]
        if not self._sides.measure(trainer, self._summary):
            self._finish(trainer)

    def _end_replay(self, trainer: Any) -> None:
        assert self._sides.meter is not None
        if self._sides.end_replay(trainer, self._sides.meter.rate(), self._summary):
            self._finish(trainer)

    def _finish(self, trainer: Any) -> None:
        """Measure validations and checkpoints, of a lone rank, and complete the record."""
        asked, sides = self._asked, self._sides
        if BETWEEN in asked.sides and sides.ranks is None:
            self._say(BETWEEN)
            trainer.callbacks = [one for one in self._callbacks if one is not self]
            sides.ceilings["between"], failures = self._pauses.measure(
                trainer, self._summary, asked.seconds, asked.scratch
            )
            sides.failures += failures
        self._complete(trainer)

    def _keep_stretch(self, trainer: Any) -> None:
        if STEPS in self._asked.sides:
            self._each(trainer, "teardown", trainer.lightning_module, "fit")
        self._let_go()
        self.place = self._new_place()
        if not trainer.is_global_zero:
            return
        self._summary, self._config = self._known(trainer, "completed", None)

    def _sum_up(self, *missing: str) -> None:
        """Enter the ceilings that are known, and why others are not, into the record."""
        summary, failures = self._summary, [*self._sides.failures, *missing]
        sum_up(self._sides.ceilings, summary, failures, began=self._began, before=self._readings[-1])
        if self._before is not None:
            summary |= meanwhile(self._before, self._readings[-1], self._recorder.step_log)

    def _complete(self, trainer: Any) -> None:
        """Write the record, and end."""
        assert self.place is not None
        if not trainer.is_global_zero:
            leave(self._pipe)
        self._sum_up()
        ceilings, summary = self._sides.ceilings, self._summary
        if ceilings["between"] and summary["overall_images_per_second"]:
            count_pauses(summary)
        if STEPS in self._asked.sides and self._before is not None:
            machine = self._before, self._readings[-1]
            log = self._recorder.step_log
            complete(summary, self._config, self.place, machine=machine, steps=log, page=self.report, told=False)
        else:
            save(summary, self.place)
        wanted = [side for side in (LOADER, MODEL) if side in self._asked.sides]
        nothing = wanted and all(ceilings[side] is None for side in wanted)
        leave(self._pipe, ceilings["reason"] if nothing else None)
