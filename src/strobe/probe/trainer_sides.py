"""What the loader, copies to a GPU, and the model of a training reach alone, measured in the hooks of the training."""

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from strobe.callbacks.accelerators import is_accelerator
from strobe.measure.timing import Meter, Rate, clock
from strobe.probe.asked import LOADER, MODEL, TRANSFER, Asked
from strobe.probe.ceilings import enter, waits_for_data
from strobe.probe.loader import Kind, Reading, samples_of, staying
from strobe.probe.model import ENDLESS, WARMUP, Again
from strobe.probe.sides import Sides
from strobe.records.run import Record

BUSY = 2.0  # times as fast as the model alone training was: nothing is known of the model then
ONCE = "the loader can be read only once, and training reads it"
ITSELF = "training_step fetches its own batches (dataloader_iter), so none can be replayed to it"


class TrainerSides(Sides):
    """Measures the sides of a Trainer's training in its hooks, one after another.

    The loader is drained by an iterator of its own. From there on Lightning's loop is given batches of before again and
    again.

    Args:
        say: called with the side that is measured now, and more words.

    Attributes:
        meter: counts batches that are replayed; None before.
    """

    def __init__(self, asked: Asked, say: Callable[..., None]) -> None:
        super().__init__(asked.seconds, say=say)
        self.meter: Meter | None = None
        self._asked = asked
        self._again: Again | None = None  # the batches that are replayed
        self._slow: Rate | None = None  # the model's, if training was faster and it is measured once more
        self._told, self._counted = 0, 0  # samples that the module tells by self.log(..., batch_size=7); in batches

    def count(self, batch: Any, told: int | None) -> None:
        """A batch was trained on."""
        self._told += told or samples_of(batch)
        self._counted += samples_of(batch)

    def measure(self, trainer: Any, summary: dict[str, Any]) -> bool:
        """Measure everything but the model; returns whether that is trained on batches from here on."""
        loop = trainer.fit_loop
        combined = loop._combined_loader
        loop._data_fetcher.teardown()  # with its workers
        if "dataloader_iter" in inspect.signature(trainer.lightning_module.training_step).parameters:
            self.failures.append(ITSELF)
        elif any(hasattr(one, "__next__") for one in combined.flattened):
            self.failures.append(ONCE)
        elif kinds := self._load(trainer, combined):
            self._divide(combined.flattened, summary)
            self._transfer(trainer, combined.flattened, kinds[0].batch)
            if MODEL in self._asked.sides:
                try:
                    self._replay(trainer, kinds)
                    return True
                except Exception as error:
                    self.fail(MODEL, error)
        return False

    def _load(self, trainer: Any, combined: Any) -> list[Kind]:
        """What the batches are like; empty if they cannot be read."""
        device, wanted = trainer.strategy.root_device, LOADER in self._asked.sides
        seconds = self._limit if wanted else min(self._limit, 1.0)
        with staying(combined.flattened):
            loading = self.attempt(LOADER, lambda: self.loader(Reading(combined), device, seconds))
            combined.reset()  # what it holds of workers that stay
        if loading is None:
            return []
        if wanted:
            workers = sum(getattr(one, "num_workers", 0) for one in combined.flattened)
            self.enter_loading(loading, device, ranks=trainer.num_devices, workers=workers)
        return loading.kinds

    def _divide(self, loaders: list[Any], summary: dict[str, Any]) -> None:
        """Measure the parts of making a batch, where training waits for it."""
        if LOADER in self._asked.sides and len(loaders) == 1 and waits_for_data(summary):
            self.ceilings["loading"] = self.parts(loaders[0])

    def _transfer(self, trainer: Any, loaders: list[Any], batch: Any) -> None:
        device = trainer.strategy.root_device
        if TRANSFER not in self._asked.sides or not is_accelerator(device):
            return
        pinned = any(getattr(one, "pin_memory", False) for one in loaders)
        rate = self.attempt(TRANSFER, lambda: self.transfer(batch, device, pinned=pinned))
        if rate is not None:
            enter(self.ceilings, TRANSFER, rate)

    def _replay(self, trainer: Any, kinds: list[Kind]) -> None:
        """Give Lightning's loop these batches from here on, with no end."""
        self._say(MODEL)
        loop = trainer.fit_loop
        self.meter = self._new_meter(trainer)
        self._again = Again(kinds, trainer.strategy.root_device, self.meter)
        again = type(loop._combined_loader)(self._again, "max_size_cycle")
        loop._combined_loader = again
        loop._data_fetcher.setup(again)
        iter(loop._data_fetcher)
        trainer.reload_dataloaders_every_n_epochs = 0
        loop.max_batches, loop.max_epochs, loop.epoch_loop.max_steps = ENDLESS, -1, -1
        loop.epoch_loop.batch_progress.is_last_batch = False

    def _new_meter(self, trainer: Any) -> Meter:
        self.begin(MODEL)
        return Meter(
            self._limit,
            multiple=trainer.accumulate_grad_batches,
            warmup=WARMUP,
            clock=clock(trainer.strategy.root_device),
            agree=self.ranks.in_step() if self.ranks else None,
        )

    def end_replay(self, trainer: Any, rate: Rate, summary: dict[str, Any]) -> bool:
        """Enter the model's rate; False where it is measured once more, as training was faster: others were busy."""
        rate = self.of_all(rate)
        trained = Record(summary).number("images_per_second", "low") or 0.0
        slower = self._slow is None and rate.high < trained
        if self.ranks:
            slower = self.ranks.first("slower", slower)
        if self._again is not None and slower:
            self._say(MODEL, ", once more: training was faster")
            self._slow, self.meter = rate, self._new_meter(trainer)
            self._again.meter = self.meter
            return False
        rate = max((rate, self._slow or rate), key=lambda one: one.median)
        if BUSY * rate.high < trained:
            self.failures.append(f"{MODEL}: alone it was far slower than in training, so something else held it up")
        else:
            enter(self.ceilings, MODEL, rate)
        return True

    def of_all(self, rate: Rate) -> Rate:
        """As of any sides, in the samples that the module tells where it does."""
        factor = self._told / self._counted
        ends = {name: getattr(rate, name) * factor for name in ("median", "low", "high")}
        return super().of_all(replace(rate, **ends, cpu_seconds=rate.cpu_seconds and rate.cpu_seconds / factor))
