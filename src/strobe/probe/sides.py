"""What sides of a training reach alone: measured one after another, each by all ranks at once."""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

import torch

from strobe.callbacks.batches import bytes_of
from strobe.errors import StrobeError
from strobe.measure.timing import Rate
from strobe.measure.untouched import let_go
from strobe.probe.asked import LOADER
from strobe.probe.ceilings import blank, enter, in_one_line, share_cores
from strobe.probe.loader import Loading, loading_parts, measure_loader, measure_transfer
from strobe.probe.ranks import Ranks

T = TypeVar("T")

log = logging.getLogger(__name__)


class Sides:
    """Measures sides of a training alone, each together with the other ranks; rates are those of all.

    Args:
        seconds: of each side, at most.
        ranks: all of them; None for a lone one.
        say: called with the side that is measured now.

    Attributes:
        ceilings: those of the record.
        failures: why some of them are not known.
        ranks: as given.
    """

    sentences: ClassVar[tuple[type[BaseException], ...]] = (StrobeError,)  # errors whose text is one

    def __init__(self, seconds: float, ranks: Ranks | None = None, say: Callable[..., None] = lambda _: None) -> None:
        self.ceilings, self.failures = blank(), list[str]()
        self.ranks = ranks
        self._limit, self._say = seconds, say

    def attempt(self, side: str, measure: Callable[[], T], changes: Sequence[str] = ()) -> T | None:
        """What ``measure`` finds of a side with such changes; None, with why among the failures, if it raises."""
        self._say(side)
        try:
            self.begin(side, changes)
            return measure()
        except Exception as error:
            self.fail(side, error)
            return None

    def begin(self, side: str, changes: Sequence[str] = ()) -> None:
        """Begin a side together with the other ranks."""
        if self.ranks:
            self.ranks.begin([side, *changes])

    def fail(self, side: str, error: BaseException) -> None:
        """Note why a side is not known."""
        self.failures.append(f"{side}: {self.why(error)}")
        let_go(error)

    def why(self, error: BaseException) -> str:
        """An error as a sentence, which the other ranks hear; or that of another rank, which it followed from."""
        why = in_one_line(error, self.sentences)
        return self.ranks.fail(why) if self.ranks else why

    def loader(self, loader: Iterable[Any], device: torch.device, seconds: float | None = None) -> Loading:
        """What this loader gives, in images/s of all ranks."""
        seconds = self._limit if seconds is None else seconds
        loading = measure_loader(loader, device=device, seconds=seconds, ranks=self.ranks)
        return replace(loading, rate=self.of_all(loading.rate))

    def transfer(self, batch: Any, device: torch.device, *, pinned: bool) -> Rate:
        """Copies of a batch to the device of each rank."""
        seconds = self._limit
        return self.of_all(measure_transfer(batch, device, pinned=pinned, seconds=seconds, ranks=self.ranks))

    def parts(self, loader: Any) -> dict[str, Any] | None:
        """Where the time of making a batch goes; None if that cannot be measured: a data set may want a worker."""
        try:
            return loading_parts(loader, seconds=self._limit / 2)
        except Exception as error:
            log.info("The parts of making a batch were not measured: %s", in_one_line(error, self.sentences))
            let_go(error)
            return None

    def of_all(self, rate: Rate) -> Rate:
        """The rate of all ranks, at the pace of the slowest."""
        return (self.ranks and self.ranks.slowest(rate)) or rate

    def enter_loading(self, loading: Loading, device: torch.device, *, ranks: int, workers: int) -> None:
        """Write what was found of a loader, of so many workers in each rank of this machine, into the record."""
        enter(self.ceilings, LOADER, loading.rate)
        self.ceilings["shared_cores"] = share_cores(device, ranks=ranks, workers=workers)
        self.ceilings["batch_bytes"] = bytes_of(loading.batch)[0] or None
