"""In the process of a script that is probed: a stretch of its training is recorded, its sides are measured, it ends."""

import gc
import inspect
import os
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

from strobe.attach.between import Pauses, count_pauses
from strobe.attach.callback import Strobe
from strobe.attach.place import what_stopped
from strobe.attach.record import complete, meanwhile, save
from strobe.callbacks.accelerators import is_accelerator
from strobe.callbacks.batches import bytes_of
from strobe.diagnose.predict import NOTABLE, step_of
from strobe.diagnose.rank import FEWEST_STEPS
from strobe.measure import contention
from strobe.measure.environment import usable_cores
from strobe.measure.timing import WARMUP_STEPS, Meter, Rate, clock
from strobe.measure.untouched import let_go
from strobe.present.format import duration
from strobe.probe import takeover
from strobe.probe.asked import BETWEEN, LOADER, MODEL, SIDES, STAGES, STEPS, TRANSFER, Asked
from strobe.probe.ceilings import blank, enter, in_one_line, joint, share_cores
from strobe.probe.loader import Kind, Reading, loading_parts, measure_loader, measure_transfer, samples_of, staying
from strobe.probe.model import ENDLESS, WARMUP, Again
from strobe.probe.ranks import LostRankError, Ranks, meet
from strobe.records.files import BEGUN, write_summary
from strobe.records.run import Record

LOOKS, SYNCHRONISED = 2.0, 8  # seconds between looks at other ranks; steps between which a GPU's rank waits for itself
BUSY = 2.0  # times as fast as the model alone training was: nothing is known of the model then
STRETCH, PATIENCE = 12, 4  # steps that count, unless they take so many times as long as asked
ONCE = "the loader can be read only once, and training reads it"
UNLOGGED = "the script's own logging (logger.experiment), which is off here: strobe run shows what it costs"
ITSELF = "training_step fetches its own batches (dataloader_iter), so none can be replayed to it"


def leave(pipe: Connection | None, reason: str | None = None) -> NoReturn:
    """Answer, and end this process here: nothing of the script runs any more, not its ``finally``, nor at its exit.

    A rank without the pipe ends with an error where there is a reason; rank 0 hears of it, or ends with it.
    """
    try:
        for one in gc.get_objects():
            if type(one) is TemporaryDirectory:
                with suppress(Exception):
                    one.cleanup()
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # the script may have closed or replaced it
                stream.flush()
        if pipe is not None:
            pipe.send({"reason": reason})
        elif reason:
            os.write(2, f"{reason}\n".encode())
    finally:
        os._exit(int(pipe is None and reason is not None))


class Probe(Strobe):
    """Records a stretch of the training that it is added to, measures its sides, and ends the process.

    The stretch is ordinary training. Then, in the hook that ends its last step, the loader is drained, by an iterator
    of its own; from there on Lightning's loop is given batches of before again and again. Of several ranks each does
    that with the others; rates are those of all, and rank 0 has the record.
    """

    def __init__(self, asked: Asked, pipe: Connection | None, pauses: Pauses) -> None:
        super().__init__(asked.folder)
        self._asked, self._pipe, self._pauses = asked, pipe, pauses
        self._callbacks: list[Any] = []  # of the script
        self._steps, self._told, self._counted = 0, 0, 0
        self._longest = asked.seconds  # of a side that trains
        self._gpu = self._waits = False  # for workers that start anew
        self._since = time.perf_counter()
        self._meter: Meter | None = None  # while batches are replayed
        self._again: Again | None = None  # these batches
        self._slow: Rate | None = None  # the model's, if training was faster and it is measured once more
        self._ceilings, self._failures = blank(), list[str]()
        self._summary: dict[str, Any] = {}
        self._config: dict[str, Any] = {}
        self._readings: list[contention.Reading] = []
        self._began, self._calls = 0.0, 0
        self._ranks: Ranks | None = None  # of several

    @property
    def state_key(self) -> str:
        """That of what records: its time is shown, and never a finding."""
        return Strobe.__qualname__

    def on_fit_start(self, trainer: Any, *given: Any) -> None:
        """Take over."""
        self._pauses.note(trainer)
        takeover.take_over(trainer, self._asked.scratch)
        self._ceilings["off"] = [one.stands_for for one in trainer.loggers]
        if trainer.world_size > 1:
            self._ranks = meet(trainer)
            self._begin_together(STEPS)
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
        if self._meter is not None:
            if self._meter.add(samples_of(batch)):
                self._guarded(self._end_replay, trainer, self._meter.rate())
            return
        self._steps += 1
        self._told += self._recorder.batch_size or samples_of(batch)
        self._counted += samples_of(batch)
        super().on_train_batch_end(trainer, *given)
        takeover.go_on(trainer)
        self._guarded(self._go_on_or_measure, trainer)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """End with what is known: an error in a replayed step leaves the model's rate unknown."""
        why = self._why(exception) + takeover.due(exception)
        if self._meter is not None:
            self._failures.append(f"{MODEL}: {why}")
            self._guarded(self._complete, trainer)
        super().on_exception(trainer, pl_module, exception)
        leave(self._pipe, f"its training failed: {why}")

    def _new_place(self) -> Path:
        return Path(self._asked.folder)

    def _fail(self, trainer: Any, error: Exception) -> None:
        super()._fail(trainer, error)
        lost = isinstance(error, LostRankError)
        leave(self._pipe, self._why(error) if lost else what_stopped(error))

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

    def _begin_together(self, side: str) -> None:
        if self._ranks:
            self._ranks.begin([side])

    def _of_all(self, rate: Rate) -> Rate:
        """The rate of all ranks, at the pace of the slowest."""
        own = self._scaled(rate)
        return (self._ranks and self._ranks.slowest(own)) or own

    def _why(self, error: BaseException) -> str:
        """An error as a sentence, which the other ranks hear; or that of another rank, which it followed from."""
        why = in_one_line(error)
        return self._ranks.fail(why) if self._ranks else why

    def _watch(self) -> None:
        """End when another rank has failed, for which this one may wait in vain."""
        while self._ranks is not None:
            time.sleep(LOOKS)
            if why := self._ranks.ended():
                leave(self._pipe, f"its training failed: {self._ranks.fail(why)}")

    def _go_on_or_measure(self, trainer: Any) -> None:
        enough = self._is_enough(trainer)
        if self._ranks:
            device, ahead = trainer.strategy.root_device, trainer.accumulate_grad_batches
            if is_accelerator(device):  # whose host runs ahead of the other ranks
                ahead += SYNCHRONISED
                if not trainer.is_global_zero and self._steps % SYNCHRONISED == 0:
                    clock(device)()
            enough = self._ranks.is_last(self._steps, enough=enough, ahead=ahead)
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
            self._failures.append(UNLOGGED)
        self._began = time.perf_counter()
        self._readings.append(contention.read())
        loop = trainer.fit_loop
        combined, self._callbacks = loop._combined_loader, trainer.callbacks
        trainer.callbacks = [self]
        loop._data_fetcher.teardown()  # with its workers
        if "dataloader_iter" in inspect.signature(trainer.lightning_module.training_step).parameters:
            self._failures.append(ITSELF)
        elif any(hasattr(one, "__next__") for one in combined.flattened):
            self._failures.append(ONCE)
        elif (kinds := self._measure_loading(trainer, combined)) and MODEL in self._asked.sides:
            try:
                self._replay(trainer, kinds)
            except Exception as error:
                let_go(error)
                self._failures.append(f"{MODEL}: {self._why(error)}")
            else:
                return
        self._pause(trainer)
        self._complete(trainer)

    def _keep_stretch(self, trainer: Any) -> None:
        if STEPS in self._asked.sides:
            self._each(trainer, "teardown", trainer.lightning_module, "fit")
        self._let_go()
        self.place = self._new_place()
        if not trainer.is_global_zero:
            return
        self._summary, self._config = self._known(trainer, "completed", None)

    def _measure_loading(self, trainer: Any, combined: Any) -> list[Kind]:
        """What its batches are like; empty if it cannot be read."""
        seconds, loader, device = self._asked.seconds, Reading(combined), trainer.strategy.root_device
        workers = sum(getattr(one, "num_workers", 0) for one in combined.flattened)
        self._say(LOADER)
        try:
            only_kinds = LOADER not in self._asked.sides
            self._begin_together(LOADER)
            with staying(combined.flattened):
                short = min(seconds, 1.0) if only_kinds else seconds
                found = measure_loader(loader, device=device, seconds=short, ranks=self._ranks)
                combined.reset()  # what it holds of workers that stay
            rate = self._of_all(found.rate)
            kinds = found.kinds
            if not only_kinds:
                enter(self._ceilings, LOADER, rate)
                self._ceilings["shared_cores"] = share_cores(device, ranks=trainer.num_devices, workers=workers)
                self._ceilings["batch_bytes"] = bytes_of(found.batch)[0] or None
        except Exception as error:
            let_go(error)
            self._failures.append(f"{LOADER}: {self._why(error)}")
            return []
        step = step_of(Record(self._summary))
        if LOADER in self._asked.sides and len(combined.flattened) == 1 and step and step.waiting >= NOTABLE:
            try:
                self._ceilings["loading"] = loading_parts(combined.flattened[0], seconds=seconds / 2)
            except Exception as error:  # its data set may want a worker
                let_go(error)
        if TRANSFER in self._asked.sides and is_accelerator(device):
            self._say(TRANSFER)
            pinned = any(getattr(one, "pin_memory", False) for one in combined.flattened)
            try:
                self._begin_together(TRANSFER)
                rate = measure_transfer(kinds[0].batch, device, pinned=pinned, seconds=seconds, ranks=self._ranks)
                enter(self._ceilings, TRANSFER, self._of_all(rate))
            except Exception as error:
                self._failures.append(f"{TRANSFER}: {self._why(error)}")
        return kinds

    def _replay(self, trainer: Any, kinds: list[Kind]) -> None:
        """Give Lightning's loop these batches from here on, with no end."""
        self._say(MODEL)
        loop, device = trainer.fit_loop, trainer.strategy.root_device
        self._meter = self._new_meter(trainer)
        self._again = Again(kinds, device, self._meter)
        again = type(loop._combined_loader)(self._again, "max_size_cycle")
        loop._combined_loader = again
        loop._data_fetcher.setup(again)
        iter(loop._data_fetcher)
        trainer.reload_dataloaders_every_n_epochs = 0
        loop.max_batches, loop.max_epochs, loop.epoch_loop.max_steps = ENDLESS, -1, -1
        loop.epoch_loop.batch_progress.is_last_batch = False

    def _new_meter(self, trainer: Any) -> Meter:
        self._begin_together(MODEL)
        return Meter(
            self._asked.seconds,
            multiple=trainer.accumulate_grad_batches,
            warmup=WARMUP,
            clock=clock(trainer.strategy.root_device),
            agree=self._ranks.in_step() if self._ranks else None,
        )

    def _end_replay(self, trainer: Any, rate: Rate) -> None:
        """Enter the model's rate; where training was faster, the machine was slower just now: measure once more."""
        rate = self._of_all(rate)
        trained = Record(self._summary).number("images_per_second", "low") or 0.0
        slower = self._slow is None and rate.high < trained
        if self._ranks:
            slower = self._ranks.first("slower", slower)
        if self._again is not None and slower:
            self._say(MODEL, ", once more: training was faster")
            self._slow, self._meter = rate, self._new_meter(trainer)
            self._again.meter = self._meter
            return
        rate = max((rate, self._slow or rate), key=lambda one: one.median)
        if BUSY * rate.high < trained:
            self._failures.append(f"{MODEL}: alone it was far slower than in training, so something else held it up")
        else:
            enter(self._ceilings, MODEL, rate)
        self._pause(trainer)
        self._complete(trainer)

    def _pause(self, trainer: Any) -> None:
        """Measure validations and checkpoints; of a lone rank."""
        asked = self._asked
        if BETWEEN in asked.sides and self._ranks is None:
            self._say(BETWEEN)
            trainer.callbacks = [one for one in self._callbacks if one is not self]
            found = self._pauses.measure(trainer, self._summary, asked.seconds, asked.scratch)
            self._ceilings["between"], failures = found
            self._failures += failures

    def _scaled(self, rate: Rate) -> Rate:
        """In the samples that the module tells by ``self.log(..., batch_size=7)``, where it does."""
        factor = self._told / self._counted
        ends = {name: getattr(rate, name) * factor for name in ("median", "low", "high")}
        return replace(rate, **ends, cpu_seconds=rate.cpu_seconds and rate.cpu_seconds / factor)

    def _sum_up(self, *missing: str) -> None:
        """Enter the ceilings that are known, and why others are not, into the record."""
        ceilings, summary = self._ceilings, self._summary
        if ceilings["shared_cores"]:
            ceilings["joint"] = joint(ceilings, workers=summary["num_workers"] or 0)
        ceilings["seconds"] = time.perf_counter() - self._began
        ceilings["reason"] = "; ".join([*self._failures, *missing]) or None
        ceilings["machine"] = contention.between(self._readings[-1], contention.read(), usable_cores())
        summary["ceilings"] = ceilings
        if self._before is not None:
            summary |= meanwhile(self._before, self._readings[-1], self._recorder.step_log)

    def _complete(self, trainer: Any) -> None:
        """Write the record, and end."""
        assert self.place is not None
        if not trainer.is_global_zero:
            leave(self._pipe)
        self._sum_up()
        ceilings, summary = self._ceilings, self._summary
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
