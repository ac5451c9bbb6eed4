"""Threads that load: no failure makes training wait for ever, and other threads compute as before."""

import gc
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from strobe.app.engines.sampler import EpochSampler, Indices, ShardedBatches
from strobe.app.loaders.base import Batch, LoadedData
from strobe.app.loaders.threads import become_worker
from strobe.errors import DataError
from support.interruptions import raising
from support.pipeline_parts import loader

SIZE = 40


class Fails(LoadedData):
    """Images of which one cannot be loaded."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> Batch:
        if index == 13 and self.error is not None:
            raise self.error
        return torch.zeros(1), torch.tensor(index)


class Lost(ShardedBatches):
    """An order that fails at its third batch."""

    def __iter__(self) -> Iterator[Indices]:
        for indices in super().__iter__():
            if indices.number == 2:
                raise DataError("the order is lost")
            yield indices


def in_order(kind: type[ShardedBatches] = ShardedBatches, start: Callable[[], int] = lambda: 0) -> ShardedBatches:
    return kind(EpochSampler(SIZE, shuffle=False, seed=0), 4, start=start)


def outcome(dataset: LoadedData, order: ShardedBatches) -> tuple[list[int], BaseException | None]:
    """The labels had and what then was raised, found out in a thread that is not waited for for ever."""
    had: list[int] = []
    raised: list[BaseException] = []

    def consume() -> None:
        try:
            for _, labels in loader("spdl", dataset, order, 2):
                had.extend(labels.tolist())
        except BaseException as error:
            raised.append(error.with_traceback(None))

    training = threading.Thread(target=consume, daemon=True)
    training.start()
    training.join(30)
    assert not training.is_alive()
    gc.collect()
    assert [thread for thread in threading.enumerate() if thread.name.startswith("loader")] == []
    return had, raised[0] if raised else None


class Unusual(BaseException):
    pass


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), Unusual("odd"), DataError("broken")])
def test_whatever_a_data_set_raises_arrives_in_its_place(error: BaseException) -> None:
    had, raised = outcome(Fails(error), in_order())
    assert had == list(range(12))
    assert raised is error


def test_what_the_order_raises_arrives_after_its_batches() -> None:
    had, raised = outcome(Fails(), in_order(Lost))
    assert had == list(range(8))
    assert repr(raised) == repr(DataError("the order is lost"))


def test_what_start_raises_arrives_as_it_was_raised() -> None:
    error = DataError("no beginning")
    assert outcome(Fails(), in_order(start=lambda: raising(error))) == ([], error)


def test_only_workers_compute_on_one_thread() -> None:
    def in_a_new_thread() -> int:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(torch.get_num_threads).result()

    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        together = threading.Barrier(4)
        with ThreadPoolExecutor(4, initializer=become_worker) as pool:
            assert [pool.submit(together.wait, 10) for _ in range(4)]  # each in a thread of its own
            workers = [pool.submit(lambda: (together.wait(10), torch.get_num_threads())[1]) for _ in range(4)]
            assert [worker.result() for worker in workers] == [1] * 4
            assert in_a_new_thread() == 3
        assert torch.get_num_threads() == 3
        assert in_a_new_thread() == 3
    finally:
        torch.set_num_threads(before)
    assert in_a_new_thread() == before
