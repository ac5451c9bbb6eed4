"""Threads and processes that load: kept between epochs, and no failure makes training wait for ever."""

import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from strobe.app.engines.sampler import EpochSampler, Indices, ShardedBatches
from strobe.app.engines.torch import lost_batch
from strobe.app.loaders.base import Batch, LoadedData
from strobe.app.loaders.threads import become_worker
from strobe.errors import DataError
from support.interruptions import raising
from support.pipeline_parts import PROCESSES, loader
from support.refusals import refusal

SIZE = 40


class Fails(LoadedData):
    """Images of which one cannot be loaded."""

    def __init__(self, error: BaseException | None = None) -> None:
        super().__init__(None, range(SIZE))
        self.error = error

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
    training.join(120)
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
            assert [pool.submit(together.wait, 60) for _ in range(4)]  # each in a thread of its own
            workers = [pool.submit(lambda: (together.wait(60), torch.get_num_threads())[1]) for _ in range(4)]
            assert [worker.result() for worker in workers] == [1] * 4
            assert in_a_new_thread() == 3
        assert torch.get_num_threads() == 3
        assert in_a_new_thread() == 3
    finally:
        torch.set_num_threads(before)
    assert in_a_new_thread() == before


class Pids(LoadedData):
    """Images that tell which process loaded them; that process ends at image ``last``."""

    def __init__(self, last: int | None = None, by: signal.Signals = signal.SIGKILL) -> None:
        super().__init__(None, range(SIZE))
        self.last = last
        self.by = by

    def __getitem__(self, index: int) -> Batch:
        if index == self.last:
            os.kill(os.getpid(), self.by)
        return torch.tensor([os.getpid()]), torch.tensor(index)


@pytest.mark.parametrize("name", PROCESSES)
def test_the_same_workers_serve_all_epochs(name: str) -> None:
    batches = loader(name, Pids(), in_order(), 2)
    epochs = [{int(pid) for pids, _ in batches for pid in pids} for _ in range(2)]
    assert epochs[0] == epochs[1]
    assert len(epochs[0]) == 2
    assert os.getpid() not in epochs[0]


@pytest.mark.parametrize(
    ("by", "said"), [(signal.SIGKILL, "the loader worker with process id"), (signal.SIGBUS, "/dev/shm")]
)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # torch raises wherever Python just is
@pytest.mark.parametrize("name", PROCESSES)
def test_a_lost_worker_is_one_sentence(name: str, by: signal.Signals, said: str) -> None:
    batches = loader(name, Pids(last=17, by=by), in_order(), 2)
    began = time.monotonic()
    text = refusal(lambda: list(batches))
    assert said in text
    assert "engine.num_workers" in text
    assert time.monotonic() - began < 60  # no hang


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("received 0 items of ancdata", "ulimit -n"),
        ("Too many open files. Communication with the workers is no longer possible.", "ulimit -n"),
        ("unable to write to file </torch_12_34_0>: No space left on device (28)", "/dev/shm"),
        ("DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that dataloader's workers are out "
         "of shared memory. Please try to raise your shared memory limit.", "/dev/shm"),
        ("DataLoader worker (pid 7) is killed by signal: Killed. ", "process id 7 was killed (Killed)"),
        ("DataLoader worker (pid(s) 7, 8) exited unexpectedly", "process id 7, 8 ended unexpectedly"),
    ],
)  # fmt: skip
def test_what_torch_says_becomes_a_remedy(text: str, remedy: str) -> None:
    explained = lost_batch(RuntimeError(text))
    assert isinstance(explained, DataError)
    assert remedy in str(explained)


def test_other_errors_stay_as_they_are() -> None:
    assert lost_batch(RuntimeError("mat1 and mat2 shapes cannot be multiplied")) is None
