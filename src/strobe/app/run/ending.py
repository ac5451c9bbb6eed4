"""Ends a run between two batches once somebody asked for it, and the ranks that it started."""

import math
import signal
import subprocess
from contextlib import suppress
from typing import Any

import torch.distributed as dist
from lightning.fabric.plugins.environments.slurm import SLURMEnvironment

from strobe.attach import ending
from strobe.callbacks.recording import come_last
from strobe.process.signals import AskedToEnd, Requests, answer_slurm, forget_slurm

PATIENCE = 2.0  # seconds for a step of a lone process to end


class Ending(ending.Ending):
    """Raises ``AskedToEnd`` between two batches."""

    def __init__(self, requests: Requests) -> None:
        super().__init__(requests, _ask)
        self.ranks: list[subprocess.Popen[bytes]] = []  # that this process started and must end, once it was asked

    def join(self, trainer: Any) -> None:
        """Take part in its training, which may wait long for other ranks before it begins."""
        self._trainer = trainer
        trainer.callbacks.append(self)

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Become the last callback, so that a step ends after all others; from here on requests wait for its end."""
        come_last(self, trainer)
        super().setup(trainer, pl_module, stage)
        environment = trainer._accelerator_connector.cluster_environment
        slurm = isinstance(environment, SLURMEnvironment) and environment.auto_requeue
        if slurm and environment.requeue_signal in (None, signal.SIGUSR1):
            answer_slurm(self._hear_slurm)
        self._requests.patience = PATIENCE if self._end is None else math.inf

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Requests wait no more."""
        forget_slurm()
        self._requests.patience = 0.0

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Let others write what they have recorded."""
        self._requests.patience = math.inf

    def look(self, number: int | None) -> int | None:
        """Also take over the ranks that this process started."""
        if number is not None:
            self.started()
        return super().look(number)

    def started(self) -> "list[subprocess.Popen[bytes]]":
        """Those that were taken over."""
        self.ranks += super().started()
        return self.ranks

    def leave(self) -> None:
        """Wait until the ranks that this process started have ended; those that wait for this one learn of its end."""
        if self.ranks and dist.is_initialized():
            with suppress(RuntimeError):
                dist.destroy_process_group()
        for process in self.ranks:
            process.terminate()  # one that has not joined yet heard nothing
        for process in self.ranks:
            process.wait()


def _ask(number: int) -> None:
    raise AskedToEnd(number)
