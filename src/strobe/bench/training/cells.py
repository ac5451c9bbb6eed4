"""Short trainings that are timed over their steady state: the application's, and a plain PyTorch loop."""

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback
from omegaconf import DictConfig
from torch.nn import functional as F

from strobe.bench.composing import configure
from strobe.bench.harness.declare import Done
from strobe.ceilings.meter import clock
from strobe.checks import check
from strobe.compose import Parts, build
from strobe.loaders.base import Batch
from strobe.model import OPTIMIZERS
from strobe.record import WARMUP_STEPS, measure_steps
from strobe.run import quieten

LEAST = 3  # timed steps, however long they take


class Window:
    """The timed steps of a training: so many seconds of them, and whole epochs where there is time for one.

    Args:
        seconds: after which timing ends; ``LEAST`` steps are timed in any case.
        warmup: steps before, of which ``WARMUP_STEPS`` are taken in any case, others for a quarter of ``seconds``.
        epoch: images of an epoch; a window that has held one ends with an epoch, if another would not fit.
        most: timed steps.
        clock: seconds, with all work done that was given to a device.

    Attributes:
        steps: that were timed.
        images: of these steps.
        seconds: that they took, with what lies between epochs; 0 before the window's end.
    """

    def __init__(
        self,
        seconds: float,
        *,
        warmup: int = WARMUP_STEPS,
        epoch: int = 0,
        most: int | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.steps = self.images = 0
        self.seconds = 0.0
        self.epoch = epoch
        self._limit, self._warmup, self._most, self._clock = seconds, warmup, most, clock
        self._warm = 0  # steps
        self._since: float | None = None  # when the first step of the warm-up ended, and then when timing began

    def add(self, images: int) -> bool:
        """Count a step that has ended; whether it was the last one."""
        if self._warm < self._warmup:
            self._since = self._since or time.perf_counter()
            self._warm += 1
            if self._warm >= WARMUP_STEPS and time.perf_counter() - self._since > self._limit / 4:
                self._warm = self._warmup
            if self._warm == self._warmup:
                self._since = self._clock()
            return False
        assert self._since is not None
        self.steps += 1
        self.images += images
        if self._is_over(time.perf_counter() - self._since):
            self.seconds = self._clock() - self._since
            return True
        return False

    def _is_over(self, passed: float) -> bool:
        if self.steps < LEAST:
            return False
        if self.steps == self._most or passed >= self._limit:
            return True
        epochs, rest = divmod(self.images, self.epoch or math.inf)
        return rest == 0 and passed * (epochs + 1) / epochs > self._limit


class Watch(Callback):
    """Shows a window the steps of a training, and ends it with the window."""

    def __init__(self, window: Window) -> None:
        self.window = window

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Batch, *_: Any
    ) -> None:
        """Count a step."""
        if self.window.add(len(batch[1])):
            trainer.should_stop = True


def ready(overrides: Sequence[str]) -> DictConfig:
    """The configuration of an endless training, checked, and this process as ``train.py`` has it.

    Raises:
        ConfigError: a value cannot work.
    """
    cfg = configure(overrides)
    check(cfg)
    if cfg.threads is not None:
        torch.set_num_threads(cfg.threads)
    quieten()
    return cfg


def window_of(cfg: DictConfig, parts: Parts, seconds: float, **options: Any) -> Window:
    """A window on the trainer's device, whose warm-up outlasts the batches that workers have ready at first."""
    ahead = cfg.engine.num_workers * cfg.engine.get("prefetch_factor", 0)
    return Window(
        seconds,
        warmup=WARMUP_STEPS + ahead,
        epoch=len(parts.data.datasets["train"]),
        clock=clock(parts.trainer.strategy.root_device),
        **options,
    )


def apply(
    cfg: DictConfig,
    folder: Path,
    seconds: float,
    *besides: Callback,
    without: type[Callback] | None = None,
    **options: Any,
) -> Window:
    """Train as the application does, all its callbacks and its logger included, but for those of type ``without``.

    Args:
        cfg: of a training without an end.
        folder: where callbacks write.
        seconds: of the window.
        besides: further callbacks.
        without: a kind of callback to leave out.
        options: of the window.
    """
    torch.manual_seed(0)
    parts = build(cfg, folder)
    window = window_of(cfg, parts, seconds, **options)
    trainer: Any = parts.trainer
    kept = [callback for callback in trainer.callbacks if without is None or not isinstance(callback, without)]
    trainer.callbacks = [*kept, Watch(window), *besides]
    trainer.fit(parts.model, datamodule=parts.data)
    return window


def plainly(cfg: DictConfig, folder: Path, seconds: float, **options: Any) -> Window:
    """Train as one would write it by hand: same data, loading, device, scaling, network and optimizer."""
    torch.manual_seed(0)
    parts = build(cfg, folder)
    window = window_of(cfg, parts, seconds, **options)
    device = parts.trainer.strategy.root_device
    network, data = parts.model.network.to(device).train(), parts.data
    data.trainer = parts.trainer  # which tells it whether to pin memory
    optimizer = OPTIMIZERS[cfg.model.optimizer](network.parameters(), lr=cfg.model.lr)
    generator = torch.Generator(device).manual_seed(0)
    batches = data.batches("train", data.batch_size, shuffle=True)
    while True:
        for pixels, labels in batches:
            images = data.normalise(pixels.to(device, non_blocking=True))
            if data.augments:
                images = data.augment(images, generator)
            optimizer.zero_grad()
            loss = F.cross_entropy(network(images), labels.to(device, non_blocking=True))
            torch.autograd.backward(loss)
            optimizer.step()
            if window.add(len(labels)):
                return window


def with_phases(cfg: DictConfig, folder: Path, seconds: float) -> Done:
    """Train as the application does, with where its steps go.

    The figures are ``epoch_images``, ``epoch_seconds``, ``epochs`` (of the window; below 1 an epoch's seconds are
    extrapolated), ``steps``, ``step_<phase>``, mean seconds a step by the host's clock, and ``device_<phase>``, by the
    GPU's, where there is one.
    """
    window = apply(cfg, folder, seconds)
    found = measure_steps(folder / "steps.csv")
    phases = {f"step_{name}": value for name, value in found["step_seconds"].items()}
    phases |= {f"device_{name}": value for name, value in (found["device_seconds"] or {}).items()}
    own = {
        "epoch_images": window.epoch,
        "epoch_seconds": window.seconds * window.epoch / window.images,
        "epochs": window.images / window.epoch,
        "steps": window.steps,
    }
    return Done(window.images, window.seconds, own | phases)
