"""Every engine keeps the same promises; new ones are found by listing conf/engine."""

import random
from itertools import pairwise

import numpy as np
import pytest
import torch

from strobe.app.engines.base import Engine
from strobe.app.engines.sampler import EpochSampler, ShardedBatches
from strobe.app.loaders.base import Batch, LoadedData
from strobe.app.loaders.memory import MemoryLoader
from strobe.app.loaders.sources import ArraySource
from support.choices import make as made
from support.pipeline_parts import CPU, ENGINES, PROCESSES

SIZE = 103


def make(name: str, **options: object) -> Engine:
    engine: Engine = made(ENGINES[name], **options)
    return engine


def numbered(*, batched: bool = True) -> LoadedData:
    """Images whose label is their index."""
    images = torch.zeros(SIZE, 1, 2, 2, dtype=torch.uint8)
    return MemoryLoader(batched=batched, scale="device").dataset(
        ArraySource(images, torch.arange(SIZE), torch.arange(SIZE))
    )


def batches(*, shuffle: bool = True, seed: int = 0, size: int = 8) -> ShardedBatches:
    return ShardedBatches(EpochSampler(SIZE, shuffle=shuffle, seed=seed), size)


def labels(loader: object) -> list[int]:
    return [label for _, batch in loader for label in batch.tolist()]


@pytest.mark.parametrize(("batched", "workers"), [(False, 2), (True, 0), (True, 1)])
@pytest.mark.parametrize("name", ENGINES)
def test_an_epoch_yields_each_index_once(name: str, batched: bool, workers: int) -> None:
    loader = make(name, num_workers=workers).loader(numbered(batched=batched), batches(), seed=1, device=CPU)
    first, second = labels(loader), labels(loader)
    assert sorted(first) == sorted(second) == list(range(SIZE))
    assert len(loader) == -(-SIZE // 8)
    assert first == second  # the epoch has not been advanced
    loader.batch_sampler.sampler.set_epoch(1)
    third = labels(loader)
    assert sorted(third) == list(range(SIZE))
    assert third != first


@pytest.mark.parametrize("name", ENGINES)
def test_the_order_depends_on_the_seed_alone(name: str) -> None:
    orders = [
        labels(make(name, num_workers=workers).loader(numbered(), batches(seed=seed), seed=1, device=CPU))
        for seed, workers in ((5, 0), (5, 2), (6, 0))
    ]
    assert orders[0] == orders[1] != orders[2]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", ENGINES)
def test_a_resumed_epoch_goes_on_at_the_next_batch(name: str, workers: int) -> None:
    had = 0
    sharded = ShardedBatches(EpochSampler(SIZE, shuffle=True, seed=0), 8, start=lambda: had)
    loader = make(name, num_workers=workers).loader(numbered(), sharded, seed=1, device=CPU)
    whole, unasked = labels(loader), iter(loader)
    had = 5
    rest = labels(loader)
    assert whole[5 * 8 :] == rest
    assert labels(unasked) == rest  # asked for its first batch only now
    assert len(loader) == -(-SIZE // 8)
    del unasked


class Draws(LoadedData):
    """Random numbers and thread counts, as a worker sees them."""

    def __getitem__(self, index: int) -> Batch:
        draws = [random.random(), np.random.random(), float(torch.rand(()))]
        return torch.tensor([*draws, torch.get_num_threads()], dtype=torch.float64), torch.tensor(index)


@pytest.mark.parametrize("name", PROCESSES)
def test_workers_draw_differently_and_again_the_same(name: str) -> None:
    def draws(seed: int) -> torch.Tensor:
        loader = make(name, num_workers=2).loader(Draws(None, range(SIZE)), batches(size=10), seed=seed, device=CPU)
        return torch.cat([pixels for pixels, _ in loader])

    first = draws(1)
    for column in range(3):
        assert len(first[:, column].unique()) == SIZE
    assert torch.equal(first, draws(1))
    assert not torch.equal(first[:, :3], draws(2)[:, :3])
    assert set(first[:, 3].tolist()) == {1.0}  # each worker computes on one thread


def sharded(size: int, batch_size: int, world: int, *, shuffle: bool = True) -> list[list[list[int]]]:
    return [
        list(ShardedBatches(EpochSampler(size, shuffle=shuffle, seed=3), batch_size, rank=rank, world=world))
        for rank in range(world)
    ]


@pytest.mark.parametrize("world", [1, 2, 3, 8])
@pytest.mark.parametrize("batch_size", [1, 2, 8, 32])
def test_ranks_share_an_epoch_exactly(batch_size: int, world: int) -> None:
    for size in (1, 2, 16, 31, 32, 33, 34, 64, 65, 66, 67, 100, 127):
        share_exactly(size, batch_size, world)


def share_exactly(size: int, batch_size: int, world: int) -> None:
    ranks = sharded(size, batch_size, world)
    assert sorted(index for rank in ranks for batch in rank for index in batch) == list(range(size))
    lengths = {len(rank) for rank in ranks}
    assert len(lengths) == 1  # or a rank would wait in a collective for ever
    order = EpochSampler(size, shuffle=True, seed=3)
    assert lengths == {len(ShardedBatches(order, batch_size, world=world))}
    if batch_size > 1 and size >= 2 * world:
        assert min(len(batch) for rank in ranks for batch in rank) >= 2  # batch normalisation fails on one
    for step in zip(*ranks, strict=True):
        assert max(map(len, step)) - min(map(len, step)) <= 1


def test_ranks_together_make_the_batches_of_one_process() -> None:
    two, one = sharded(64, 8, 2), sharded(64, 16, 1)
    together = [sorted(a + b) for a, b in zip(*two, strict=True)]
    assert together == [sorted(batch) for batch in one[0]]


def test_epochs_differ_and_repeat() -> None:
    order = EpochSampler(50, shuffle=True, seed=1)

    def epoch(number: int) -> list[int]:
        order.set_epoch(number)
        return list(order)

    epochs = [epoch(number) for number in range(4)]
    assert all(a != b for a, b in pairwise(epochs))
    assert epoch(2) == epochs[2]


def test_without_shuffling_the_order_is_the_index() -> None:
    order = EpochSampler(5, shuffle=False, seed=1)
    order.set_epoch(3)
    assert list(order) == [0, 1, 2, 3, 4]
