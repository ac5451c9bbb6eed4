"""What training gets is the same by every loader, engine and number of workers; all are found by listing conf/."""

import gc
import multiprocessing
import os
import threading
from itertools import chain
from pathlib import Path

import pytest
import torch
from pipeline_parts import BESIDE, ENGINES, PAIRS, SIZE, batches, dataset, loader

from strobe.engines.base import WholeBatches
from strobe.engines.order import Indices
from strobe.errors import DataError


@pytest.fixture(params=PAIRS, ids="-".join)
def pair(request: pytest.FixtureRequest) -> tuple[str, str]:
    """A form of data and a loader that reads it."""
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(autouse=True)
def _nothing_is_left_behind() -> object:
    threads = threading.enumerate()
    yield
    gc.collect()  # what an error's frames held
    assert multiprocessing.active_children() == []
    assert threading.enumerate() == threads
    assert not list(Path("/dev/shm").glob(f"torch_{os.getpid()}_*"))


def test_pixels_and_order_are_the_same_everywhere(pair: tuple[str, str], tmp_path: Path) -> None:
    images = dataset(*pair, tmp_path)
    sharded = batches()
    expected = [(list(i), WholeBatches(images).__getitems__(i)[0].clone()) for i in sharded]
    assert sorted(index for indices, _ in expected for index in indices) == list(range(SIZE))
    for name in ENGINES:
        for workers in (0, 1, 2):
            with_workers = loader(name, images, sharded, workers, persistent_workers=False)
            found = [(labels.tolist(), pixels) for pixels, labels in with_workers]
            assert len(found) == len(with_workers) == len(expected)
            for (indices, pixels), (labels, loaded) in zip(expected, found, strict=True):
                assert labels == indices, (name, workers)
                assert loaded.dtype == pixels.dtype
                assert torch.equal(loaded.float(), pixels.float()), (name, workers)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_unreadable_file_is_named_in_training(pair: tuple[str, str], workers: int, tmp_path: Path) -> None:
    form, name = pair
    if form == "array":
        pytest.skip("reads no files")
    dataset(form, name, tmp_path)  # skips where the loader cannot run
    (tmp_path / "bad").mkdir()
    for engine in ENGINES:
        with pytest.raises(DataError, match=rf"{form}_7\.\w+ ") as caught:
            list(loader(engine, dataset(form, name, tmp_path / "bad", bad=7), batches(), workers))
        assert "\n" not in str(caught.value)
        del caught  # and with it the frames that hold the workers


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", ENGINES)
def test_two_iterators_at_once_and_a_new_start(name: str, workers: int, tmp_path: Path) -> None:
    images = dataset("array", "memory", tmp_path)
    both = loader(name, images, batches(), workers, persistent_workers=False)
    whole = [labels.tolist() for _, labels in both]
    pairs = [(first.tolist(), second.tolist()) for (_, first), (_, second) in zip(both, both, strict=True)]
    assert pairs == [(labels, labels) for labels in whole]
    broken_off = iter(both)
    assert next(broken_off)[1].tolist() == whole[0]
    broken_off.close()
    both.batch_sampler.sampler.set_epoch(1)
    again = [labels.tolist() for _, labels in both]
    assert sorted(chain(*again)) == list(range(SIZE))
    assert again != whole  # nothing of the epoch that was broken off


@pytest.mark.parametrize("name", BESIDE)
def test_ordering_is_given_up_only_where_that_is_asked_for(name: str, tmp_path: Path) -> None:
    images = dataset("array", "memory", tmp_path)
    free = loader(name, images, batches(), 2, ordered=False, persistent_workers=False)
    for _ in range(2):
        labels = [label for _, labels in free for label in labels.tolist()]
        assert sorted(labels) == list(range(SIZE))


def test_a_batch_is_made_of_its_indices(pair: tuple[str, str], tmp_path: Path) -> None:
    whole = WholeBatches(dataset(*pair, tmp_path))
    pixels, labels = whole.__getitems__(Indices([5, 0, 5], split="train", epoch=0, number=0))
    assert labels.tolist() == [5, 0, 5]
    assert torch.equal(pixels[0].float(), pixels[2].float())
    assert not torch.equal(pixels[0].float(), pixels[1].float())
