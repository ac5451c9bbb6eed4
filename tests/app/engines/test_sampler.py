"""Which images make which batch: each index once an epoch, dealt out evenly to the ranks, again the same by seed."""

from itertools import chain, pairwise
from pathlib import Path

import pytest
from lightning import Trainer

from strobe.app.engines.sampler import EndlessBatches, EpochSampler, ShardedBatches
from support.composing import composed_data
from support.files import plant
from support.photo_files import photograph, save


def sharded(size: int, batch_size: int, world: int) -> list[list[list[int]]]:
    return [
        list(ShardedBatches(EpochSampler(size, shuffle=True, seed=3), batch_size, rank=rank, world=world))
        for rank in range(world)
    ]


@pytest.mark.parametrize("world", [1, 2, 3, 8])
@pytest.mark.parametrize("batch_size", [1, 2, 8, 32])
def test_ranks_share_an_epoch_exactly(batch_size: int, world: int) -> None:
    for size in (1, 2, 16, 31, 32, 33, 34, 64, 65, 66, 67, 100, 127):
        ranks = sharded(size, batch_size, world)
        assert sorted(index for rank in ranks for batch in rank for index in batch) == list(range(size))
        order = EpochSampler(size, shuffle=True, seed=3)
        # Of one length, or a rank would wait in a collective for ever.
        assert {len(rank) for rank in ranks} == {len(ShardedBatches(order, batch_size, world=world))}
        if batch_size > 1 and size >= 2 * world:
            assert min(len(batch) for rank in ranks for batch in rank) >= 2  # batch normalisation fails on one
        for step in zip(*ranks, strict=True):
            assert max(map(len, step)) - min(map(len, step)) <= 1


def test_ranks_together_make_the_batches_of_one_process() -> None:
    two, one = sharded(64, 8, 2), sharded(64, 16, 1)
    assert [sorted(a + b) for a, b in zip(*two, strict=True)] == [sorted(batch) for batch in one[0]]


@pytest.mark.parametrize("shuffle", [True, False])
def test_epochs_differ_and_repeat_only_when_shuffled(shuffle: bool) -> None:
    def epoch(number: int, seed: int = 1) -> list[int]:
        sampler = EpochSampler(50, shuffle=shuffle, seed=seed)
        sampler.set_epoch(number)
        return list(sampler)

    epochs = [*map(epoch, range(4)), epoch(2, seed=2)]
    assert epoch(2) == epochs[2]
    if shuffle:
        assert all(a != b for a, b in pairwise(epochs))
        assert epochs[4] != epochs[2]
    else:
        assert epochs == [list(range(50))] * 5


@pytest.mark.parametrize("world", [1, 2])
def test_the_endless_order_yields_each_index_once_an_epoch(world: int) -> None:
    size, epochs = 103, 3
    seen: dict[int, list[int]] = {epoch: [] for epoch in range(epochs)}
    for rank in range(world):
        for indices in EndlessBatches(EpochSampler(size, shuffle=True, seed=1), 8, rank=rank, world=world):
            if indices.epoch == epochs:
                break
            seen[indices.epoch] += indices
    assert all(sorted(indices) == list(range(size)) for indices in seen.values())
    assert seen[0] != seen[1] != seen[2]
    first = ShardedBatches(EpochSampler(size, shuffle=True, seed=1), 8, world=world)
    endless = iter(EndlessBatches(EpochSampler(size, shuffle=True, seed=1), 8, world=world))
    assert list(first) == [next(endless) for _ in range(len(first))]


def test_an_empty_order_ends() -> None:
    assert list(EndlessBatches(EpochSampler(0, shuffle=True, seed=1), 8)) == []


@pytest.mark.parametrize(("before", "after"), [((2, 4), (1, 4)), ((1, 4), (2, 4)), ((2, 3), (3, 2)), ((1, 5), (4, 3))])
@pytest.mark.parametrize("done", [0, 1, 2, 3])
def test_other_ranks_go_on_within_an_epoch_and_see_the_rest_once(
    before: tuple[int, int], after: tuple[int, int], done: int
) -> None:
    first, rest = broken_off(41, before, after, done, least=2)
    assert sorted(first + rest) == list(range(41))


@pytest.mark.parametrize(
    ("size", "before", "after", "done", "twice"),
    [
        (18, (1, 4), (2, 4), 4, 0),
        (19, (1, 4), (2, 8), 4, 0),
        (18, (1, 5), (3, 2), 3, 0),
        (17, (1, 4), (2, 4), 3, 0),
        (17, (1, 8), (2, 4), 1, 0),
        (17, (1, 2), (2, 4), 7, 0),
        (17, (1, 1), (3, 4), 16, 2),  # one image, and each rank needs one
    ],
)
def test_what_is_left_of_an_epoch_is_seen_once_if_there_is_an_image_for_each_rank(
    size: int, before: tuple[int, int], after: tuple[int, int], done: int, twice: int
) -> None:
    first, rest = broken_off(size, before, after, done, least=1)
    assert {*first, *rest} == set(range(size))
    assert len(first) + len(rest) - size == twice


def broken_off(
    size: int, before: tuple[int, int], after: tuple[int, int], done: int, *, least: int
) -> tuple[list[int], list[int]]:
    """The images of so many batches of an epoch, and those of the rest with other ranks and batch sizes."""

    def epoch(world: int, batch_size: int, start: int = 0, seen: int | None = None) -> list[list[int]]:
        ranks = [
            ShardedBatches(
                EpochSampler(size, shuffle=True, seed=5),
                batch_size,
                rank=rank,
                world=world,
                start=lambda: start,
                seen=lambda: seen,
            )
            for rank in range(world)
        ]
        dealt = [list(one) for one in ranks]
        assert len({len(one) for one in dealt}) == 1  # or one would wait forever
        assert all(len(indices) >= least for one in dealt for indices in one)
        return [[*chain(*batches)] for batches in zip(*dealt, strict=True)]

    first = [*chain(*epoch(*before)[:done])]
    world, batch_size = after
    used = ShardedBatches(EpochSampler(size, shuffle=True, seed=5), batch_size, world=world).used(len(first))
    return first, [*chain(*epoch(*after, start=used, seen=len(first)))]


@pytest.mark.parametrize("size", [32, 64])
def test_no_rank_is_left_with_a_single_image_that_is_too_small_to_be_normalised_alone(
    size: int, sample_root: Path, tmp_path: Path
) -> None:
    for path in sorted((sample_root / "tiles/seed42-10").glob("*/*.tif"))[:20]:
        plant(tmp_path, {f"{path.parent.name}/{path.stem}.jpg": b""})
        save(tmp_path / path.parent.name / f"{path.stem}.jpg", photograph(80, 80, 1))
    given = ("data=image_folder", f"data.root={tmp_path}", f"data.size={size}", "data.framing=resize")
    data = composed_data(*given, "data.batch_size=4")
    data.setup()
    data.trainer = Trainer(accelerator="cpu", devices=1, logger=False, enable_checkpointing=False)
    count = len(data.datasets["train"])
    data.resume({"epoch": 0, "seen": count - 1})
    assert data._resumed[2] == count - 1 - (size == 32)
