"""What the application costs: its training step against a plain PyTorch loop over the same DataLoader and model.

    python -m strobe.bench.overhead [data=cifar10 data.root=... data.verify=false] [KEY=VALUE ...]

Both run in this process, in turn, over the same batches, in rounds whose order alternates; the first round is a
warm-up, and each round's first steps are not timed. It prints each side's images/s (median of the rounds, with a 95%
interval) and the median of the rounds' ratios, application / plain.
"""

import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback
from omegaconf import DictConfig
from rich.console import Console
from rich.table import Table
from torch.nn import functional as F

from strobe import environment
from strobe.compose import build
from strobe.config import register
from strobe.model import OPTIMIZERS
from strobe.record import median_interval
from strobe.run import quieten

ROUNDS = 9
STEPS = 20  # timed in a round
FIRST = 5  # steps before them, which pay for allocation, and in the application for drawing the first batch
CONF = Path(__file__).parents[3] / "conf"
DEFAULTS = [
    "trainer.max_epochs=-1",
    "trainer.limit_val_batches=0",
    "trainer.num_sanity_val_steps=0",
    "trainer.enable_checkpointing=false",
    "profiler=none",
]


class Stopwatch(Callback):
    """The time that Lightning's loop takes for a round's steps."""

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        """Begin after the first steps."""
        if trainer.global_step == FIRST:
            self.began = _now(trainer.strategy.root_device)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """End with the last."""
        self.seconds = _now(trainer.strategy.root_device) - self.began


def configure(overrides: list[str]) -> DictConfig:
    """The application's own configuration."""
    register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        cfg = compose("config", overrides=[*DEFAULTS, *overrides], return_hydra_config=True)
    HydraConfig.instance().set_config(cfg)
    return cfg


def with_lightning(cfg: DictConfig, folder: Path) -> float:
    """Seconds for ``STEPS`` training steps of the application, all its callbacks and its logger included."""
    torch.manual_seed(0)
    parts = build(cfg, folder)
    watch = Stopwatch()
    parts.trainer.callbacks.append(watch)  # type: ignore[attr-defined]
    parts.trainer.fit(parts.model, datamodule=parts.data)
    return watch.seconds


def plainly(cfg: DictConfig, folder: Path) -> float:
    """Seconds for as many steps as one would write them by hand: same data, device, scaling, network, optimizer."""
    torch.manual_seed(0)
    parts = build(cfg, folder)
    device = parts.trainer.strategy.root_device
    network, data = parts.model.network.to(device).train(), parts.data
    data.trainer = parts.trainer  # which tells it whether to pin memory
    optimizer = OPTIMIZERS[cfg.model.optimizer](network.parameters(), lr=cfg.model.lr)
    generator = torch.Generator(device).manual_seed(0)
    batches = data.batches("train", data.batch_size, shuffle=True)
    done = 0
    while True:
        for pixels, labels in batches:
            images = data.normalise(pixels.to(device, non_blocking=True))
            if data.augments:
                images = data.augment(images, generator)
            optimizer.zero_grad()
            loss = F.cross_entropy(network(images), labels.to(device, non_blocking=True))
            torch.autograd.backward(loss)
            optimizer.step()
            done += 1
            if done == FIRST:
                began = _now(device)
            if done == FIRST + STEPS:
                return _now(device) - began


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def main() -> None:
    """Measure and print."""
    cfg = configure([f"trainer.max_steps={FIRST + STEPS}", *sys.argv[1:]])
    quieten()
    warnings.simplefilter("ignore")
    sides = {"application": with_lightning, "plain loop": plainly}
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(ROUNDS + 1):
            for name in sorted(sides, reverse=turn % 2 == 1):
                seconds[name].append(sides[name](cfg, Path(folder)))
    images = STEPS * cfg.data.batch_size
    table = Table(
        "", "images/s", "95% interval", title=f"{ROUNDS} rounds of {STEPS} steps, batch {cfg.data.batch_size}"
    )
    for name, values in seconds.items():
        rate = median_interval([images / value for value in values[1:]])
        table.add_row(name, f"{rate['median']:,.1f}", f"{rate['low']:,.1f} to {rate['high']:,.1f}")
    pairs = zip(seconds["application"][1:], seconds["plain loop"][1:], strict=True)
    ratio = median_interval([plain / application for application, plain in pairs])
    console = Console()
    console.print(table)
    console.print(f"application / plain loop: {ratio['median']:.3f} ({ratio['low']:.3f} to {ratio['high']:.3f})")
    machine = environment.describe()
    console.print(f"{machine['cpu']}, {machine['usable_cores']} cores, torch {machine['versions']['torch']}")


if __name__ == "__main__":
    main()
