"""Trainings of several ranks with one fault each, in turn, in the processes of one launcher.

``python -m torch.distributed.run --standalone --nproc-per-node=2 -m strobe.validation.straggler_cases DIR CASE ...``
"""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import LambdaCallback
from torch.utils.data import DataLoader, Dataset

from strobe import Strobe

STEPS = 48
NAP = 0.03  # seconds by which a slow rank is slow
WIDTH, BATCH = 256, 8

Nap = Callable[[int, int, int], float]  # of a rank, of so many, in a step


@dataclass(frozen=True)
class Fault:
    """Where a rank sleeps and for how long, and what is then to be found; of a clean control, nothing."""

    nap: Nap
    place: str = ""  # data | forward | callback
    pattern: str | None = None
    phase: str | None = None
    rank: int | None = None  # the slow one, if it is one
    uneven: str | None = None  # batches, where rank 1 gets twice as many samples in each

    def mean_nap(self, ranks: int) -> float:
        """Seconds that a mean rank sleeps in a mean step."""
        return sum(self.nap(rank, ranks, step) for rank in range(ranks) for step in range(STEPS)) / ranks / STEPS

    def slowdown(self, ranks: int, base: float) -> float:
        """The slowest rank's work over the mean rank's, if each has so many seconds in a step without the fault."""
        work = [[base + self.nap(rank, ranks, step) for rank in range(ranks)] for step in range(STEPS)]
        return sum(map(max, work)) * ranks / sum(map(sum, work))


def _constant(slow: int) -> Nap:
    return lambda rank, *_: NAP * (rank == slow)


def _turns(rank: int, ranks: int, step: int) -> float:
    return NAP * (step % ranks == rank)


def _growing(rank: int, _: int, step: int) -> float:
    return 2 * NAP * step / STEPS * (rank == 1)


FAULTS = {
    "clean": Fault(lambda *_: 0.0),
    "data": Fault(_constant(1), "data", "constant", "data_wait", 1),
    "first-data": Fault(_constant(0), "data", "constant", "data_wait", 0),
    "forward": Fault(_constant(1), "forward", "constant", "forward", 1),
    "callback": Fault(_constant(1), "callback", "constant", "callbacks", 1),
    "first-callback": Fault(_constant(0), "callback", "constant", "callbacks", 0),
    "uneven": Fault(lambda rank, *_: NAP * (1 + (rank == 1)), "forward", "constant", "forward", 1, "batches"),
    "turns-data": Fault(_turns, "data", "alternating", "data_wait"),
    "turns-forward": Fault(_turns, "forward", "alternating", "forward"),
    "growing": Fault(_growing, "forward", "growing", "forward", 1),
}


class _Samples(Dataset[torch.Tensor]):
    def __init__(self, nap: Callable[[int], None], size: int) -> None:
        self.nap, self.size, self.read = nap, size, 0

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.read % self.size == 0:
            self.nap(self.read // self.size)
        self.read += 1
        return torch.full((WIDTH,), index % 7 / 7)


class _Model(LightningModule):
    def __init__(self, nap: Callable[[int], None]) -> None:
        super().__init__()
        self.nap = nap
        self.layers = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(12)))

    def training_step(self, batch: torch.Tensor, number: int) -> torch.Tensor:
        self.nap(number)
        loss: torch.Tensor = self.layers(batch).square().mean()
        return loss

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=1e-3)


def train(case: str, folder: Path, rank: int, ranks: int) -> None:
    """Train with this fault, recorded in a folder."""
    fault = FAULTS[case.partition(":")[0]]

    def nap_in(place: str) -> Callable[[int], None]:
        return lambda step: time.sleep(fault.nap(rank, ranks, step)) if fault.place == place else None

    after = nap_in("callback")
    trainer = Trainer(
        accelerator="cpu",
        devices=ranks,
        strategy="ddp",
        max_steps=STEPS,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[LambdaCallback(on_train_batch_end=lambda *given: after(given[-1])), Strobe(folder, report=False)],
    )
    size = BATCH * (1 + (fault.uneven is not None and rank == 1))
    trainer.fit(_Model(nap_in("forward")), DataLoader(_Samples(nap_in("data"), size), batch_size=size))


if __name__ == "__main__":
    import os

    torch.set_num_threads(1)
    for name in sys.argv[2:]:
        train(name, Path(sys.argv[1]) / name.replace(":", "-"), int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
