"""Bottlenecks of Python itself, for the grid too: a thread, a loop, garbage, and what is done between epochs."""

import gc
import threading
import time
from typing import Any

import numpy as np
from lightning.pytorch.callbacks import Callback
from numpy.typing import NDArray

from strobe.validation.injected_faults import Slow, SmallClassifier, compute


class BusyThread(Callback):
    """Has a thread that runs Python beside training, as one that watches something without a pause."""

    def on_train_start(self, *_: Any) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watcher", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.is_set():
            pass

    def on_train_end(self, *_: Any) -> None:
        self._over.set()
        self._thread.join()


class SlowEpochs(Slow, Callback):
    """Waits ``seconds`` at the end of each epoch, as one that writes a report."""

    def on_train_epoch_end(self, *_: Any) -> None:
        time.sleep(self.seconds)


class LoopingClassifier(SmallClassifier):
    """One that goes through the images of each batch in Python, so long for each."""

    def training_step(self, batch: Any, *given: Any) -> Any:
        for _ in batch[1]:
            compute(2e-4)
        return super().training_step(batch, *given)


class SamplingClassifier(SmallClassifier):
    """One that draws from many numbers by their priorities, in each step from all of them."""

    def training_step(self, *given: Any) -> Any:
        self.drawn = draw(np.linspace(0, 1, 1_000_000), 32)
        return super().training_step(*given)


def draw(priorities: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """So many places, each by its priority."""
    bounds = np.cumsum(priorities**0.6)
    places: NDArray[np.int64] = np.searchsorted(bounds, np.random.default_rng().random(count) * bounds[-1])
    return places


class LitteringClassifier(SmallClassifier):
    """One that keeps many objects, and makes many more in each step, which refer to each other."""

    def training_step(self, *given: Any) -> Any:
        self.kept = getattr(self, "kept", None) or [[number] for number in range(400_000)]
        for _ in range(20_000):
            cycle: list[Any] = []
            cycle.append(cycle)
        gc.collect()
        return super().training_step(*given)
