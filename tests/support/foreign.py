"""Trainings as strangers write them, each of a kind of its own; what is slow in them naps on a clock that stands still.

A step takes 1 ms in training_step; `slow` names what takes 4 ms more.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule
from torch.utils.data import DataLoader, Dataset, IterableDataset

from support.fitting import Standstill

STEP, SLOW = 1e-3, 4e-3
SAMPLES, BATCH = 48, 4


class Items(Dataset[Any]):
    """Twelve batches of samples, which `form` makes what a batch holds."""

    def __init__(self, nap: Callable[[], None], form: Callable[[torch.Tensor], Any] = lambda sample: sample) -> None:
        self.nap, self.form = nap, form

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Any:
        if index % BATCH == 0:
            self.nap()
        return self.form(torch.full((8,), index / SAMPLES))


class Stream(IterableDataset[Any]):
    """The same without a length."""

    def __init__(self, items: Items) -> None:
        self.items = items

    def __iter__(self) -> Iterator[Any]:
        return (self.items[index] for index in range(SAMPLES))


class Batches:
    """No DataLoader at all."""

    def __iter__(self) -> Iterator[Any]:
        return (torch.full((5, 8), float(number)) for number in range(12))


class Net(LightningModule):
    """Automatic optimization; `tensors` are what of a batch it computes with."""

    def __init__(self, nap: Callable[[str], None]) -> None:
        super().__init__()
        self.layer, self.nap = torch.nn.Linear(8, 2), nap

    def loss(self, batch: Any) -> torch.Tensor:
        self.nap("step")
        self.nap("forward")
        loss: torch.Tensor = self.layer(first(batch)).square().mean() + 0.01 * torch.rand(())
        self.log("loss", loss)
        return loss

    def training_step(self, batch: Any) -> Any:
        return self.loss(batch)

    def validation_step(self, batch: Any) -> None:
        self.nap("validation")

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), lr=0.01)


def first(batch: Any) -> torch.Tensor:
    while not isinstance(batch, torch.Tensor):
        batch = next(iter(batch.values() if isinstance(batch, dict) else batch))
    return batch


class Gan(Net):
    """Two optimizers in turn, which the module steps itself."""

    def __init__(self, nap: Callable[[str], None]) -> None:
        super().__init__(nap)
        self.automatic_optimization = False

    def training_step(self, batch: Any) -> None:
        for optimizer in self.optimizers():
            optimizer.zero_grad()
            self.manual_backward(self.loss(batch))
            optimizer.step()

    def configure_optimizers(self) -> Any:
        self.other = torch.nn.Linear(2, 2)
        return [torch.optim.Adam(self.layer.parameters(), lr=0.01), torch.optim.SGD(self.layer.parameters(), lr=0.01)]


class Closure(Net):
    """An optimizer that computes a step several times."""

    def configure_optimizers(self) -> Any:
        return torch.optim.LBFGS(self.parameters(), max_iter=2)


class Fetching(Net):
    """It fetches its batches itself."""

    def training_step(self, dataloader_iter: Iterator[Any]) -> Any:
        batch, *_ = next(dataloader_iter)
        self.nap("step")
        return self.layer(batch).square().mean()


class Telling(Net):
    """Batches that hold no tensor; it tells their size."""

    def training_step(self, batch: Any) -> Any:
        self.nap("step")
        loss = self.layer(torch.ones(3, 8)).mean()
        self.log("loss", loss, batch_size=7)
        return loss


class Clipping(Net):
    """Hooks of its own."""

    def on_train_batch_end(self, *_: Any) -> None:
        self.nap("hook")


class Preparing(Net):
    """Batches are prepared after their transfer."""

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        self.nap("transfer")
        return batch


class Slow(Callback):
    """A callback, in each step and between epochs."""

    def __init__(self, nap: Callable[[str], None]) -> None:
        self.nap = nap

    def on_train_batch_end(self, *_: Any) -> None:
        self.nap("callback")

    def on_train_epoch_end(self, *_: Any) -> None:
        self.nap("epoch")


@dataclass
class Program:
    """A model, its loader and the Trainer's settings; the cause that is to be found, samples of a step."""

    model: type[Net]
    loader: Callable[[Items], Any]
    slow: str
    cause: str
    samples: int = BATCH
    settings: dict[str, Any] = field(default_factory=dict)
    form: Callable[[torch.Tensor], Any] = lambda sample: sample
    advice: str = ""

    def parts(self, clock: Standstill) -> tuple[Net, Any, Any, list[Callback]]:
        """The model, its loaders of training and validation, and its callbacks."""

        def nap(what: str) -> None:
            if what in ("step", self.slow):
                clock.nap(STEP if what == "step" else 20 * SLOW if what == "epoch" else SLOW)

        model = self.model(nap)
        validation = loaded(Items(lambda: None, self.form))
        return model, self.loader(Items(lambda: nap("data"), self.form)), validation, [Slow(nap)]


def loaded(items: Dataset[Any], **settings: Any) -> DataLoader[Any]:
    return DataLoader(items, BATCH, **settings)


PROGRAMS = {  # what the scripts of tests/attach/programs do not show, or not while a trace is recorded
    "automatic": Program(
        Net, loaded, "data", "loader", settings={"gradient_clip_val": 0.5}, advice="Write DataLoader(..., num_workers="
    ),
    "two optimizers": Program(Gan, loaded, "callback", "callback"),
    "closure": Program(Closure, loaded, "data", "loader"),
    "without a length": Program(
        Net, lambda items: loaded(Stream(items)), "data", "loader", advice="torch.utils.data.get_worker_info"
    ),
    "its own iterator": Program(Fetching, loaded, "data", "loader"),
    "no DataLoader": Program(Net, lambda _: Batches(), "forward", "stalled", 5),
    "no tensors": Program(
        Telling, lambda items: loaded(items, collate_fn=lambda samples: "text"), "callback", "callback", 7
    ),
    "hooks of its own": Program(Clipping, loaded, "hook", "callback"),
    "preparing": Program(Preparing, loaded, "transfer", "transfer"),
    "validation": Program(
        Net,
        loaded,
        "validation",
        "validation",
        settings={"limit_val_batches": 3, "val_check_interval": 4},
        advice="Write Trainer(",
    ),
}
