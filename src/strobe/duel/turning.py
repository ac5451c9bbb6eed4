"""Runs a script whose Lightning training takes turns with another one: ``python turning.py PIPE SCRIPT ARGUMENTS``.

It is run by its path, in the script's own environment and tree, so it imports nothing from Strobe. The
training gets a callback, and has no end, no validation and no checkpoints. At the end of each turn it sends ``(images,
seconds, steps)`` on the pipe, whose number is given, and stops its own process group, so its loaders make no batches in
advance. The other end sends seconds, and resumes it (SIGCONT).
"""

import math
import os
import runpy
import signal
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint, EarlyStopping, Timer
from lightning.pytorch.utilities.data import extract_batch_size

WARMUP, LEAST = 3, 2  # steps before the first turn, and of a turn
PATIENT = 10.0  # seconds, after which it no longer waits for the steps that workers had ready


class Turns(Callback):
    """Counts the steps of a turn, and then waits for the next one."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._seconds, self._ahead, self._multiple, self._first = 0.0, WARMUP, 1, True
        self._skipped = self._steps = self._images = 0
        self._began = time.perf_counter()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Train endlessly; schedules keep the end that the script set."""
        trainer.fit_loop.max_epochs = -1
        trainer.fit_loop.epoch_loop.max_steps = -1
        loader: Any = trainer.train_dataloader
        workers = getattr(loader, "num_workers", 0) or 0
        self._ahead = max(WARMUP, workers * ((getattr(loader, "prefetch_factor", None) or 2) + 1))
        self._multiple = math.lcm(max(1, workers), trainer.accumulate_grad_batches)
        self._began = time.perf_counter()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count a step."""
        if self._ahead:
            self._skipped += 1
            late = self._first and time.perf_counter() - self._began > PATIENT and self._skipped >= WARMUP
            if self._skipped >= self._ahead or late:
                self._skipped = self._ahead = self._steps = self._images = 0
                self._began = self._now(pl_module)
            return
        self._steps, self._images = self._steps + 1, self._images + extract_batch_size(batch)
        enough = self._first or (self._steps >= LEAST and self._steps % self._multiple == 0)
        if enough and time.perf_counter() - self._began >= self._seconds:
            self._wait(self._now(pl_module) - self._began)

    def _wait(self, seconds: float) -> None:
        self._first, self._ahead = False, 1
        try:
            self._pipe.send((self._images, seconds, self._steps))
            os.killpg(0, signal.SIGSTOP)
            self._seconds = self._pipe.recv()
        except (EOFError, OSError):  # the other end has gone
            os.killpg(0, signal.SIGKILL)

    @staticmethod
    def _now(module: LightningModule) -> float:
        """Seconds, after the GPU's queued work."""
        if module.device.type == "cuda":
            import torch

            torch.cuda.synchronize(module.device)
        return time.perf_counter()


def main() -> None:
    """Run the script as ``python SCRIPT ARGUMENTS`` would."""
    pipe = Connection(int(sys.argv[1]))
    sys.argv = sys.argv[2:]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    fit: Any = Trainer.fit

    def endless(trainer: Any, *arguments: Any, **named: Any) -> Any:
        if trainer.world_size > 1:
            sys.exit(f"{trainer.world_size} processes cannot take turns; train on one device")
        ending = (Checkpoint, EarlyStopping, Timer)
        trainer.callbacks = [each for each in trainer.callbacks if not isinstance(each, ending)] + [Turns(pipe)]
        trainer.limit_val_batches = trainer.num_sanity_val_steps = 0
        fit(trainer, *arguments, **named)
        sys.exit("training ended by itself; remove what ends it")

    Trainer.fit = endless  # type: ignore[assignment,method-assign]
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
