"""Which lines loader workers are in."""

import hashlib
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset
from torch.utils.data._utils import worker
from torchvision.datasets import FakeData
from torchvision.transforms import ColorJitter, Compose, ToTensor, v2

from strobe.attach.callback import Strobe
from strobe.callbacks import lines
from strobe.callbacks.columns import COLLATING, LOADING
from strobe.callbacks.steps import StepRecorder
from strobe.callbacks.worker_lines import WorkerLines
from support.fitting import Model, trainer_with
from support.looks import often
from support.steps import recorder

__all__ = ["often", "recorder"]
LOOP = worker._worker_loop


@pytest.fixture(autouse=True)
def _nobody_else_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the tests before have left: a process looks at its workers once."""
    monkeypatch.setattr(worker, "_worker_loop", LOOP)


def read_slowly() -> None:
    time.sleep(0.05)


def read_for_validation() -> None:
    time.sleep(0.05)


class Slow(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> torch.Tensor:
        read_slowly()
        return torch.zeros(1, 4)


class Other(Slow):
    def __getitem__(self, index: int) -> torch.Tensor:
        read_for_validation()
        return torch.zeros(1, 4)


def look_often(_: int) -> None:
    """Also in a worker that was not forked, which knows nothing of this test's patches."""
    lines.EVERY = 0.001


def lines_of(loader: DataLoader[Any], folder: Path) -> list[dict[str, Any]]:
    looking = WorkerLines(folder)
    assert worker._worker_loop is not LOOP
    for _ in loader:
        pass
    looking.end()
    assert worker._worker_loop is LOOP
    return looking.looks.records()


@pytest.mark.parametrize(("how", "workers"), [("fork", 2), ("spawn", 1)])
def test_the_line_that_takes_the_time_of_workers_is_told(how: str, workers: int, tmp_path: Path) -> None:
    loader = DataLoader(Slow(), 4, num_workers=workers, multiprocessing_context=how, worker_init_fn=look_often)
    found = lines_of(loader, tmp_path)
    assert {one["phase"] for one in found} == {LOADING}
    assert (found[0]["function"], Path(found[0]["file"]).name) == ("read_slowly", Path(__file__).name)
    assert Path(__file__).read_text().splitlines()[found[0]["line"] - 1] == "    time.sleep(0.05)"
    assert found[0]["share"] > 0.8  # the rest of the time they wait to be asked
    assert not list(tmp_path.iterdir())


class Multiplying(Slow):
    """Whose samples torch computes on so many threads, and a thread of Python's, too, which ends."""

    def __init__(self, threads: int) -> None:
        self.threads = threads

    def __getitem__(self, index: int) -> torch.Tensor:
        torch.set_num_threads(self.threads)
        beside = threading.Thread(target=hashlib.sha256, args=(bytes(10_000_000),))
        beside.start()
        product = torch.ones(1000, 1000) @ torch.ones(1000, 1000)
        beside.join()
        return product[:1, :4]


# Forked after torch has used several threads, as in another test, a worker that uses them, too, hangs.
@pytest.mark.parametrize(("how", "threads"), [("fork", 1), ("forkserver", 2)])
def test_threads_of_a_library_in_workers_are_counted(how: str, threads: int, tmp_path: Path) -> None:
    looking = WorkerLines(tmp_path)
    for _ in DataLoader(Multiplying(threads), 4, num_workers=1, multiprocessing_context=how):
        pass
    looking.end()
    own, libraries = looking.computed
    assert own > 0
    assert (libraries > own / 2) == (threads > 1)


def test_workers_of_a_validation_are_left_alone(tmp_path: Path) -> None:
    with torch.no_grad():
        assert lines_of(DataLoader(Slow(), 4, num_workers=1), tmp_path) == []


def test_workers_that_stay_are_seen_before_they_end(tmp_path: Path) -> None:
    looking, loader = WorkerLines(tmp_path), DataLoader(Slow(), 4, num_workers=1, persistent_workers=True)
    list(loader)
    looking.end()
    assert looking.looks.records()[0]["function"] == "read_slowly"
    list(loader)  # whose worker finds nowhere to write any more


def test_a_library_that_loads_alone_is_told_with_its_function(tmp_path: Path) -> None:
    for transform in (ColorJitter(0.5, 0.5, 0.5, 0.5), v2.ColorJitter(0.5, 0.5, 0.5, 0.5)):
        data = FakeData(24, (3, 400, 400), transform=Compose([transform, ToTensor()]))
        found = lines_of(DataLoader(data, 4, num_workers=1), tmp_path)
        functions = [one["function"] for one in found if "transforms" in str(one["file"])]
        assert functions, found
        assert functions[0] in ("ColorJitter.forward", "transform"), found
        assert len(set(functions)) == len(functions)  # whichever of its lines was seen


def test_time_in_default_collate_is_told(tmp_path: Path) -> None:
    class Large(Slow):
        sample = torch.zeros(1_000_000)

        def __getitem__(self, index: int) -> torch.Tensor:
            return self.sample

    found = lines_of(DataLoader(Large(), 8, sampler=[0] * 160, num_workers=1), tmp_path)
    assert found[0]["library"] == COLLATING


def test_a_recorder_tells_of_the_workers_of_its_training_alone(recorder: StepRecorder) -> None:
    trainer = trainer_with(recorder)
    trainer.fit(Model(), DataLoader(Slow(), 4, num_workers=1), DataLoader(Other(), 4, num_workers=1))
    assert recorder.step_log is not None
    seen = {str(one["function"]) for one in recorder.step_log.threads.lines() if one["phase"] == LOADING}
    assert "read_slowly" in seen
    assert "read_for_validation" not in seen
    assert worker._worker_loop is LOOP


def test_workers_that_start_while_optimizers_are_made_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By `estimated_stepping_batches`: those that stay start never again. Nothing of it is left."""

    class Scheduled(Model):
        def configure_optimizers(self) -> Any:
            assert self.trainer.estimated_stepping_batches
            return super().configure_optimizers()

    strobe = Strobe(tmp_path / "here", report=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    trainer = trainer_with(strobe)
    trainer.fit(Scheduled(), DataLoader(Slow(), 4, num_workers=1, persistent_workers=True), DataLoader(Other(), 4))
    log = strobe._recorder.step_log
    assert log is not None
    assert "read_slowly" in {one["function"] for one in log.threads.lines() if one["phase"] == LOADING}
    assert not list(tmp_path.glob("strobe-workers*"))
    assert worker._worker_loop is LOOP


def test_workers_of_a_fit_that_does_not_begin_are_looked_at_no_more(tmp_path: Path) -> None:
    class Failing(Model):
        def configure_optimizers(self) -> Any:
            raise ValueError("no optimizer")

    with pytest.raises(ValueError, match="no optimizer"):
        trainer_with(Strobe(tmp_path / "here")).fit(Failing(), DataLoader(Slow(), 4), DataLoader(Other(), 4))
    assert worker._worker_loop is LOOP


def test_a_worker_loop_of_somebody_else_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Theirs:
        pass

    theirs = Theirs()
    monkeypatch.setattr(worker, "_worker_loop", theirs)
    looking = WorkerLines(tmp_path)
    assert worker._worker_loop is theirs
    looking.end()
    assert worker._worker_loop is theirs
