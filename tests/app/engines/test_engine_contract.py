"""What training gets is the same by every loader, engine and number of workers; all are found by listing conf/."""

import gc
import multiprocessing
import os
import pickle
import random
import resource
import threading
import time
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch

from strobe.app.engines.base import WholeBatches
from strobe.app.engines.sampler import EndlessBatches, EpochSampler, Indices, ShardedBatches
from strobe.app.loaders.base import Batch, LoadedData
from strobe.errors import DataError
from support.choices import make
from support.pipeline_parts import BESIDE, CPU, ENGINES, PAIRS, PROCESSES, SIZE, batches, dataset, loader

FIRST = {form: (form, name) for form, name in reversed(PAIRS)}.values()  # one loader for each form, tried at length


@pytest.fixture(params=PAIRS, ids="-".join)
def pair(request: pytest.FixtureRequest) -> tuple[str, str]:
    """A form of data and a loader that reads it."""
    return request.param


@pytest.fixture(autouse=True)
def _nothing_is_left_behind() -> object:
    threads, shared = set(threading.enumerate()), set(shared_memory())
    yield
    gc.collect()  # what an error's frames held
    assert multiprocessing.active_children() == []
    deadline = time.monotonic() + 60
    while not set(threading.enumerate()) <= threads and time.monotonic() < deadline:
        time.sleep(0.001)  # torch does not wait for the threads of its queues
    assert set(threading.enumerate()) <= threads  # another test's may have ended meanwhile
    assert set(shared_memory()) <= shared


def shared_memory() -> list[str]:
    """What workers made and this process still holds: it has no name in /dev/shm any more."""
    found: list[str] = []
    for link in Path("/proc/self/fd").glob("*"):
        try:
            found.append(os.readlink(link))  # noqa: PTH115
        except OSError:  # closed meanwhile
            continue
    maps = Path("/proc/self/maps")
    lines = maps.read_text().splitlines() if maps.exists() else []
    return [text for text in (*found, *lines) if "/torch_" in text]


def test_pixels_and_order_are_the_same_everywhere(pair: tuple[str, str], tmp_path: Path) -> None:
    images = dataset(*pair, tmp_path)
    sharded = batches()
    expected = [(list(i), WholeBatches(images).__getitems__(i)[0].clone()) for i in sharded]
    assert sorted(index for indices, _ in expected for index in indices) == list(range(SIZE))
    for name in ENGINES:
        for workers in (0, 1, 2) if pair in FIRST else (1 if name in PROCESSES else 0,):
            with_workers = loader(name, images, sharded, workers, persistent_workers=False)
            found = [(labels.tolist(), pixels) for pixels, labels in with_workers]
            assert len(found) == len(with_workers) == len(expected)
            for (indices, pixels), (labels, loaded) in zip(expected, found, strict=True):
                assert labels == indices, (name, workers)
                assert loaded.dtype == pixels.dtype
                assert torch.equal(loaded.float(), pixels.float()), (name, workers)


@pytest.mark.parametrize(("form", "name"), [pair for pair in PAIRS if pair[0] != "array"])
def test_an_unreadable_file_is_named_in_training(form: str, name: str, tmp_path: Path) -> None:
    workers = 2 if (form, name) in FIRST else 0
    dataset(form, name, tmp_path)  # skips where the loader cannot run
    (tmp_path / "bad").mkdir()
    for engine in ENGINES:
        with pytest.raises(DataError, match=rf"{form}_7\.\w+ ") as caught:
            list(loader(engine, dataset(form, name, tmp_path / "bad", bad=7), batches(), workers))
        assert "\n" not in str(caught.value)
        del caught  # and with it the frames that hold the workers


def test_shared_memory_that_is_held_is_found(tmp_path: Path) -> None:
    kept = list(loader("torch", dataset("array", "memory", tmp_path), batches(), 1))
    assert shared_memory() if Path("/proc/self/maps").exists() else kept
    del kept


@pytest.mark.parametrize(
    ("name", "workers", "persistent"),
    [*((name, workers, False) for name in ENGINES for workers in (0, 2)), *((name, 2, True) for name in PROCESSES)],
)
def test_two_iterators_at_once_and_a_new_start(name: str, workers: int, persistent: bool, tmp_path: Path) -> None:
    images = dataset("array", "memory", tmp_path)
    both = loader(name, images, batches(), workers, persistent_workers=persistent)
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


class FirstIsLate(LoadedData):
    """Images of which the first is made when the second was already handed on."""

    def __init__(self) -> None:
        super().__init__(None, range(SIZE))
        self.done = [multiprocessing.get_context("fork").Event() for _ in range(SIZE)]

    def __getitem__(self, index: int) -> Batch:
        if index == 0:
            assert self.done[3].wait(60)
        self.done[index].set()
        return torch.zeros(1), torch.tensor(index)


@pytest.mark.parametrize("name", BESIDE)
def test_ordering_is_given_up_only_where_that_is_asked_for(name: str) -> None:
    orders = {}
    for ordered in (True, False):
        one_each = ShardedBatches(EpochSampler(SIZE, shuffle=False, seed=0), 1)
        options = {"ordered": ordered, "prefetch_factor": 4, "persistent_workers": False}
        with_workers = loader(name, FirstIsLate(), one_each, 2, **options)
        orders[ordered] = [int(labels) for _, labels in with_workers]
    assert orders[True] == list(range(SIZE))
    assert sorted(orders[False]) == list(range(SIZE))
    if hasattr(make(ENGINES[name]), "ordered"):  # else it knows no other order
        assert orders[False] != orders[True]
    else:
        assert orders[False] == orders[True]


@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_that_was_used_can_be_sent_to_another_process(name: str, tmp_path: Path) -> None:
    engine, images = make(ENGINES[name], num_workers=0, persistent_workers=False), dataset("array", "memory", tmp_path)
    first = [labels.tolist() for _, labels in engine.loader(images, batches(), seed=1, device=CPU)]
    sent_engine, sent_images = pickle.loads(pickle.dumps((engine, images)))
    sent = [labels.tolist() for _, labels in sent_engine.loader(sent_images, batches(), seed=1, device=CPU)]
    assert sent == first
    assert len(pickle.dumps(engine)) < 1000  # without its images


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", ENGINES)
def test_a_resumed_epoch_goes_on_at_the_next_batch(name: str, workers: int, tmp_path: Path) -> None:
    had = 0
    sharded = batches(batch_size=2, start=lambda: had)
    resumed = loader(name, dataset("array", "memory", tmp_path), sharded, workers)
    whole, unasked = [batch.tolist() for _, batch in resumed], iter(resumed)
    had = 4
    rest = [batch.tolist() for _, batch in resumed]
    assert whole[4:] == rest
    assert [batch.tolist() for _, batch in unasked] == rest  # asked for its first batch only now
    assert len(resumed) == len(whole)
    del unasked


class Draws(LoadedData):
    """Random numbers and thread counts, as a worker sees them."""

    def __getitem__(self, index: int) -> Batch:
        draws = [random.random(), np.random.random(), float(torch.rand(()))]
        return torch.tensor([*draws, torch.get_num_threads()], dtype=torch.float64), torch.tensor(index)


@pytest.mark.parametrize("name", PROCESSES)
def test_workers_draw_differently_and_again_the_same(name: str) -> None:
    def draws(seed: int) -> torch.Tensor:
        engine = make(ENGINES[name], num_workers=2, persistent_workers=False)
        drawing = engine.loader(Draws(None, range(103)), batches(103, 10), seed=seed, device=CPU)
        return torch.cat([pixels for pixels, _ in drawing])

    first = draws(1)
    for column in range(3):
        assert len(first[:, column].unique()) == 103
    assert torch.equal(first, draws(1))
    assert not torch.equal(first[:, :3], draws(2)[:, :3])
    assert set(first[:, 3].tolist()) == {1.0}  # each worker computes on one thread


def test_a_batch_is_made_of_its_indices(pair: tuple[str, str], tmp_path: Path) -> None:
    whole = WholeBatches(dataset(*pair, tmp_path))
    pixels, labels = whole.__getitems__(Indices([5, 0, 5], split="train", epoch=0, number=0))
    assert labels.tolist() == [5, 0, 5]
    assert torch.equal(pixels[0].float(), pixels[2].float())
    assert not torch.equal(pixels[0].float(), pixels[1].float())


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


@pytest.mark.parametrize(
    ("form", "by", "name", "workers"),
    [
        *((form, by, "torch", 0) for form, by in (("array", "memory"), ("tiles", "native"), ("tiles", "packed"))),
        *(("tiles", "native", name, 2) for name in ENGINES),
    ],
)
def test_a_thousand_batches_take_no_more_memory(form: str, by: str, name: str, workers: int, tmp_path: Path) -> None:
    images = dataset(form, by, tmp_path, scale="device", batched=True)
    endless = EndlessBatches(EpochSampler(SIZE, shuffle=True, seed=0), SIZE)
    endlessly = iter(loader(name, images, endless, workers))
    size = sum(next(endlessly)[0].nbytes for _ in range(300)) // 300
    memory, files = resident_bytes(), open_files()
    for _ in range(1_000):
        next(endlessly)
    assert resident_bytes() - memory < size * 1_000 // 4
    assert open_files() <= files + 20
    endlessly.close()
