"""The training of a :class:`strobe.app.tuning.trainee.Trainee`: its process's own side."""

import math
import os
import signal
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from strobe.app.build.instantiate import build
from strobe.app.config.checks import check
from strobe.app.config.compose import endless
from strobe.app.config.register import workers_beside
from strobe.app.run.train import quieten
from strobe.errors import ConfigError
from strobe.measure.environment import peak_memory
from strobe.measure.timing import WARMUP_STEPS, Clock, Window, clock
from strobe.probe.model import Stepping

LEAST = 2  # timed steps of a turn
PATIENT = 5.0  # seconds; a warm-up that takes twice as long ends once it has the steps that no run counts


class Turns:
    """Counts steps until a training is warm, tells so, and then for as long as it is asked to, again and again.

    Args:
        pipe: on which seconds come, and turns (``Block``) with peaks of memory go.
        warmup: steps before the first answer.
        multiple: of so many steps a turn is: workers deliver batches in turn, and gradients are accumulated.
        clock: seconds, with all work done that was given to a device.
    """

    def __init__(self, pipe: Connection, *, warmup: int, multiple: int, clock: Clock) -> None:
        self._pipe, self._clock = pipe, clock
        self._multiple = multiple
        self._window = Window(PATIENT, warmup=warmup, least=1, most=1, clock=clock)

    def add(self, images: int) -> bool:
        """Count a step; after a turn's last one wait for the next turn. It is never the training's last one."""
        if self._window.add(images):
            try:
                self._pipe.send((self._window.block, peak_memory()))
                seconds = self._pipe.recv()
            except (EOFError, OSError):  # nobody is there any more
                os.killpg(os.getpid(), signal.SIGKILL)
            self._window = Window(seconds, warmup=1, multiple=self._multiple, least=LEAST, clock=self._clock)
        return False


def train(pipe: Connection, overrides: Sequence[str], folder: Path) -> None:
    """Train with these overrides of ``train.py`` until this process is ended.

    Raises:
        ConfigError: a value cannot work.
        DataError: data is missing, or cannot be loaded.
    """
    cfg = endless(overrides)
    check(cfg)
    if cfg.threads is not None:
        torch.set_num_threads(cfg.threads)
    quieten()
    torch.manual_seed(cfg.seed)
    parts = build(cfg, folder)
    if parts.trainer.world_size > 1:
        raise ConfigError(
            f"trainer.devices={cfg.trainer.devices}: trainings take turns on one device only; give trainer.devices=1"
        )
    workers = workers_beside(cfg.engine)
    ahead = workers * (cfg.engine.prefetch_factor + 1) if workers else 0
    timed = clock(parts.trainer.strategy.root_device)
    multiple = math.lcm(max(1, workers), int(cfg.trainer.accumulate_grad_batches))
    turns = Turns(pipe, warmup=max(WARMUP_STEPS, ahead), multiple=multiple, clock=timed)
    trainer: Any = parts.trainer
    trainer.callbacks.append(Stepping(turns.add))
    trainer.fit(parts.model, datamodule=parts.data)
