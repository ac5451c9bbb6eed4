"""Batches without an end, as ceilings take them."""

import pytest

from strobe.app.engines.sampler import EndlessBatches, EpochSampler, ShardedBatches


@pytest.mark.parametrize("world", [1, 2])
def test_the_endless_order_yields_each_index_once_an_epoch(world: int) -> None:
    size, epochs = 103, 3
    seen: dict[int, list[int]] = {epoch: [] for epoch in range(epochs)}
    for rank in range(world):
        endless = EndlessBatches(EpochSampler(size, shuffle=True, seed=1), 8, rank=rank, world=world)
        for indices in endless:
            if indices.epoch == epochs:
                break
            seen[indices.epoch] += indices
    assert all(sorted(indices) == list(range(size)) for indices in seen.values())
    assert seen[0] != seen[1] != seen[2]
    first = ShardedBatches(EpochSampler(size, shuffle=True, seed=1), 8, world=world)
    endless = iter(EndlessBatches(EpochSampler(size, shuffle=True, seed=1), 8, world=world))
    assert [list(indices) for indices in first] == [list(next(endless)) for _ in range(len(first))]


def test_an_empty_order_ends() -> None:
    assert list(EndlessBatches(EpochSampler(0, shuffle=True, seed=1), 8)) == []
