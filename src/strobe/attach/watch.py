"""``strobe.watch``: a training loop that a script writes itself, recorded as a Trainer's is; needs no Lightning."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch

from strobe.attach import loops
from strobe.attach.entry import DIRECTORY, traces
from strobe.attach.settings import Asked, schedule_of

Batch = TypeVar("Batch")


class watch(Generic[Batch]):  # noqa: N801  # it is used as a function
    """Record a training loop: ``for batch in strobe.watch(loader, optimizer=optimizer):``.

    It gives the batches of the loader, whose length and attributes it has, and changes nothing about them or about the
    training. Loops over the same loader, or with updates by the same optimizer, are epochs of one training; a
    loop between them that updates nothing is a validation. When the process ends, or another training
    begins, or the loader raises, the verdict is printed and the record is complete; ``close`` ends it before, as does
    the end of a ``with`` block. Of several ranks each writes its rows, and rank 0 tells.

    Args:
        loader: A DataLoader, or anything else to iterate over.
        optimizer: The optimizer, or several, whose steps are the updates; by default all that step in this thread.
        directory: Where the record goes; see ``Strobe``, as for ``trace`` and ``report``.

    Raises:
        TypeError: ``loader`` cannot be iterated over, or ``optimizer`` is not a torch optimizer.
        ValueError: ``trace`` has an unknown key, or a number that is out of range.
    """

    def __init__(
        self,
        loader: Iterable[Batch],
        *,
        optimizer: Any = None,
        directory: str | Path | None = None,
        trace: bool | Mapping[str, int] | None = None,
        report: bool = True,
    ) -> None:
        if not hasattr(loader, "__iter__") and not hasattr(loader, "__getitem__"):
            raise TypeError(f"strobe.watch takes something to iterate over, such as a DataLoader, not {loader!r}")
        directory = directory or os.environ.get(DIRECTORY)
        place, schedule = Path(directory) if directory else None, schedule_of(traces() if trace is None else trace)
        self.loader = loader
        self._asked = Asked(loader, _optimizers(optimizer), place, schedule, report)

    def __len__(self) -> int:
        return len(self.loader)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        if name == "loader":  # not set yet, as in a copy
            raise AttributeError(name)
        return getattr(self.loader, name)

    def __iter__(self) -> Iterator[Batch]:
        batches = loops.batches_of(self._asked)
        if batches is None:
            return iter(self.loader)
        batches.source = iter(self.loader)  # here, as without: it may draw random numbers
        return batches

    def __enter__(self) -> "watch[Batch]":
        return self

    def __exit__(self, _: Any, error: BaseException | None, __: Any) -> None:
        loops.close(error)

    def close(self) -> None:
        """End the record now, and print the verdict."""
        loops.close()


def _optimizers(given: Any) -> Sequence[Any] | None:
    """Those of torch that are meant, without what wraps them, as Fabric does."""
    if given is None:
        return None
    optimizers = list(given) if isinstance(given, list | tuple) else [given]
    for place, one in enumerate(optimizers):
        while isinstance(inner := getattr(one, "optimizer", None), torch.optim.Optimizer):
            one = inner  # noqa: PLW2901
        if not isinstance(one, torch.optim.Optimizer):
            raise TypeError(f"strobe.watch(..., optimizer=...) takes torch optimizers, not {type(one).__name__}")
        optimizers[place] = one
    return optimizers
