"""Worker processes: kept between epochs, and an error, not a hang, when one is lost."""

import os
import signal
import time

import pytest
import torch

from strobe.app.engines.sampler import EpochSampler, ShardedBatches
from strobe.app.engines.torch import lost_batch
from strobe.app.loaders.base import Batch, LoadedData
from strobe.errors import DataError
from support.pipeline_parts import PROCESSES, loader
from support.refusals import refusal

SIZE = 40


class Pids(LoadedData):
    """Images that tell which process loaded them; that process ends at image ``last``."""

    def __init__(self, last: int | None = None, by: signal.Signals = signal.SIGKILL) -> None:
        self.last = last
        self.by = by

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> Batch:
        if index == self.last:
            os.kill(os.getpid(), self.by)
        return torch.tensor([os.getpid()]), torch.tensor(index)


def in_order() -> ShardedBatches:
    return ShardedBatches(EpochSampler(SIZE, shuffle=False, seed=0), 4)


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
