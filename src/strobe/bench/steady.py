"""Short trainings, timed in their steady state: the application's, and a plain PyTorch loop."""

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.callbacks import Callback
from omegaconf import DictConfig, OmegaConf
from torch.nn import functional as F

from strobe.app.build.instantiate import Parts, build, set_up_data
from strobe.app.config.checks import check
from strobe.app.config.compose import configure, require_endless
from strobe.app.config.register import workers_beside
from strobe.app.model.classifier import build_optimizer
from strobe.app.run.ceilings import load_batch, train_on
from strobe.app.run.train import quieten
from strobe.bench.harness.declare import Done
from strobe.callbacks.columns import DEVICE, PHASES
from strobe.errors import ConfigError
from strobe.measure.timing import WARMUP_STEPS, Window, clock
from strobe.probe.model import Stepping
from strobe.records.step_table import read_table

PLAIN: Mapping[str, tuple[Any, ...]] = {  # what the plain loop does as well
    "trainer.precision": ("32-true", "32", 32, "bf16-mixed", "bf16"),
    "trainer.accumulate_grad_batches": (1,),
    "trainer.gradient_clip_val": (None, 0),
    "trainer.detect_anomaly": (False,),
    "trainer.strategy": ("auto",),
    "model.lr_scaling": ("none",),
}


def ready(overrides: Sequence[str], *, plain: bool = False) -> DictConfig:
    """The configuration of an endless training, checked, and this process as ``train.py`` has it.

    With ``plain`` it must be one that :func:`plainly` can train too. Raises a ConfigError for a value that cannot work.
    """
    cfg = configure(overrides)
    check(cfg)
    require_endless(cfg)
    for key, values in PLAIN.items() if plain else ():
        if (value := OmegaConf.select(cfg, key)) not in values:
            raise ConfigError(
                f"{key}={value} is nothing that the plain loop does, and the two would not train the same; give "
                f"{key}={'null' if values[0] is None else values[0]}"
            )
    if cfg.threads is not None:
        torch.set_num_threads(cfg.threads)
    quieten()
    return cfg


def begun(cfg: DictConfig, folder: Path, seconds: float, **options: Any) -> tuple[Parts, Window]:
    """A training, and a window on its device, whose warm-up uses up the batches that workers had ready at first."""
    torch.manual_seed(0)
    parts, workers = build(cfg, folder), workers_beside(cfg.engine)
    window = Window(
        seconds,
        warmup=max(WARMUP_STEPS, workers * (cfg.engine.prefetch_factor + 1) if workers else 0),
        multiple=max(1, workers),
        epoch=len(parts.data.datasets["train"]),
        clock=clock(parts.trainer.strategy.root_device),
        **options,
    )
    return parts, window


def apply(
    cfg: DictConfig,
    folder: Path,
    seconds: float,
    *besides: Callback,
    without: type[Callback] | None = None,
    **options: Any,
) -> Window:
    """Train endlessly as the application does, with all its callbacks and its logger, except those in ``without``.

    ``options`` are the window's. A ConfigError tells that training ended before the window.
    """
    parts, window = begun(cfg, folder, seconds, **options)
    fit(parts, Stepping(window.add), *besides, without=without)
    if not window.seconds:
        raise ConfigError(
            f"training ended by itself after {window.steps} timed steps, before its measurement; leave out what ends "
            f"it, such as one of callbacks=[{', '.join(map(str, cfg.callbacks))}]"
        )
    return window


def profile(cfg: DictConfig, folder: Path, profiler: Callback, *, most: int) -> None:
    """Train as the application does with a profiler, until it ends training, or for about ``most`` steps."""
    torch.manual_seed(0)
    fit(build(cfg, folder), Stepping(Window(math.inf, warmup=1, most=most).add), profiler)


def fit(parts: Parts, *besides: Callback, without: type[Callback] | None = None) -> None:
    """Train with further callbacks, and without those of one kind."""
    trainer: Any = parts.trainer
    kept = [callback for callback in trainer.callbacks if without is None or not isinstance(callback, without)]
    trainer.callbacks = [*kept, *besides]
    trainer.fit(parts.model, datamodule=parts.data)


def plainly(cfg: DictConfig, folder: Path, seconds: float, **options: Any) -> Window:
    """Train in a hand-written loop: same data, loading, device, scaling, precision, network and optimizer."""
    parts, window = begun(cfg, folder, seconds, **options)
    device, precision = parts.trainer.strategy.root_device, parts.trainer.precision_plugin
    network, data = parts.model.network.to(device).train(), parts.data
    data.trainer = parts.trainer  # which tells it whether to pin memory
    optimizer = build_optimizer(network.parameters(), cfg.model, lr=cfg.model.lr)
    generator = torch.Generator(device).manual_seed(0)
    batches = data.batches("train", data.batch_size, shuffle=True)
    while True:
        for pixels, labels in batches:
            images = data.normalise(pixels.to(device, non_blocking=True))
            if data.augments:
                images = data.augment(images, generator)
            targets = labels.to(device, non_blocking=True)
            optimizer.zero_grad()
            with precision.train_step_context():
                logits = network(images.to(memory_format=parts.model.memory_format))
                loss = F.cross_entropy(logits, targets, label_smoothing=cfg.model.label_smoothing)
            torch.autograd.backward(loss)
            optimizer.step()
            if window.add(len(labels)):
                return window


def model_alone(cfg: DictConfig, seconds: float, images: int | None = None) -> Done:
    """Train on one batch that lies there already; returns the seconds of so many images, or of an epoch's."""
    cfg.ceilings_seconds = seconds
    data = set_up_data(cfg)
    images = images or len(data.datasets["train"])
    return Done(images, images / train_on(load_batch(data), cfg, data).median)


def with_phases(cfg: DictConfig, folder: Path, seconds: float) -> Done:
    """Train as the application does; returns an epoch's seconds, with the phases of the timed steps.

    The figures are ``timed_images`` and ``steps``, those of the window, ``epochs`` (of the window; below 1 an epoch's
    seconds are extrapolated), ``step_<phase>``, mean seconds a timed step by the host's clock, and ``device_<phase>``,
    by the GPU's, where there is one.
    """
    window = apply(cfg, folder, seconds)
    rows = read_table(folder / "steps.csv").rows()[-window.steps :]
    columns = {f"step_{name}": name for name in ("total", *PHASES)}
    if "device_total" in rows[-1]:
        columns |= {name: name for name in (f"device_{part}" for part in DEVICE)}
    phases = {name: statistics.fmean(row.get(column, 0.0) for row in rows) for name, column in columns.items()}
    own = {"timed_images": window.images, "epochs": window.images / window.epoch, "steps": window.steps}
    return Done(window.epoch, window.seconds * window.epoch / window.images, own | phases)
