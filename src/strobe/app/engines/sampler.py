"""Which images are in which batch: a pure function of seed, epoch and rank, so that a run can be resumed."""

from collections.abc import Callable, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Sampler


class EpochSampler(Sampler[int]):
    """The indices 0 to ``size`` - 1, in order, or shuffled anew in each epoch."""

    def __init__(self, size: int, *, shuffle: bool, seed: int) -> None:
        self.size = size
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch; Lightning calls this on a batch sampler's ``sampler``."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[int]:
        return iter(self.order().tolist())

    def order(self) -> NDArray[np.int64]:
        """The indices of this epoch (``size``,)."""
        order = np.arange(self.size)
        return np.random.default_rng([self.seed, self.epoch]).permutation(order) if self.shuffle else order


class Indices(list[int]):
    """The indices of one batch, with its epoch and number, as they are sent to a worker process."""

    def __init__(self, indices: Iterable[int], *, split: str, epoch: int, number: int) -> None:
        super().__init__(indices)
        self.split = split
        self.epoch = epoch
        self.number = number  # in its epoch, from 0


class ShardedBatches(Sampler[list[int]]):
    """Batches of indices for one rank; the ranks together see each index exactly once an epoch.

    Every ``batch_size * world`` indices of the order are dealt out to the ranks evenly, so all ranks
    have the same number of batches and none waits forever in a collective. A remainder that would leave a rank with
    fewer than two images (too few for batch normalisation) joins the batch before it.

    ``start`` returns, when an epoch begins, how many of its batches were used before the run was resumed, and ``seen``
    how many of its images, where that is not as many as these batches have: with other ranks or another batch size, the
    first batch begins there. It has an image for each rank, if need be some that were seen: none may go without.
    ``split`` is what the batches are for: ``train``, ``val`` or ``test``.
    """

    def __init__(
        self,
        order: EpochSampler,
        batch_size: int,
        *,
        rank: int = 0,
        world: int = 1,
        start: Callable[[], int] = lambda: 0,
        seen: Callable[[], int | None] = lambda: None,
        split: str = "train",
    ) -> None:
        self.seen = seen
        self.sampler = order
        self.batch_size = batch_size
        self.rank = rank
        self.world = world
        self.start = start
        self.split = split

    def __len__(self) -> int:
        whole, rest = divmod(len(self.sampler), self.batch_size * self.world)
        return max(whole + (rest >= self.least), 1 if rest else 0)

    @property
    def least(self) -> int:
        """Images of a batch of all ranks, at least."""
        return self.world * min(2, self.batch_size)

    def used(self, seen: int) -> int:
        """The batches that were used when so many images were seen; what is left of one joins the next."""
        whole = -(-seen // (self.batch_size * self.world))
        return len(self) if seen >= len(self.sampler) else min(whole, len(self) - 1)

    def __iter__(self) -> Iterator[Indices]:
        epoch, order, first, seen = self.sampler.epoch, self.sampler.order(), self.start(), self.seen()
        for number in range(first, len(self)):
            yield self.batch(order, number, epoch, seen if number == first else None)

    def batch(self, order: NDArray[np.int64], number: int, epoch: int, seen: int | None = None) -> Indices:
        """One batch of an epoch with this ``order``, from 0; where images were ``seen``, it begins behind these."""
        stride = self.batch_size * self.world
        end = len(order) if number == len(self) - 1 else (number + 1) * stride
        begin = number * stride if seen is None else min(seen, max(0, end - self.world))
        mine = order[begin + self.rank : end : self.world].tolist()
        return Indices(mine, split=self.split, epoch=epoch, number=number)


class EndlessBatches(ShardedBatches):
    """The same batches, epoch after epoch without a pause, to measure a steady state."""

    def __iter__(self) -> Iterator[Indices]:
        while len(self):
            yield from super().__iter__()
            self.sampler.set_epoch(self.sampler.epoch + 1)
