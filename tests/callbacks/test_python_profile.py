"""Python profiles of real training runs, read back from their files."""

import cProfile
import importlib.util
import pickle
import pstats
import re
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer
from torch.utils.data import DataLoader, Dataset

from strobe.callbacks.python_profile import PythonProfiler
from support.fitting import SAMPLES, Model, fit, trainer_with

FINE = 5e-4  # seconds between samples: tiny steps get some
EVENTS = ["python_events.prof", "python_events.txt"]
SAMPLES_FILES = ["python_sampling.html", "python_sampling.txt"]
FILES = {"events": EVENTS, "sampling": SAMPLES_FILES}


@pytest.fixture(autouse=True)
def _no_profiler_stays_on() -> Iterator[None]:
    yield
    assert sys.getprofile() is None


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def calls(directory: Path, function: str, name: str = "python_events.prof") -> int:
    """How often functions of this name were called."""
    stats: Any = pstats.Stats(str(directory / name))
    return sum(row[1] for (_, _, called), row in stats.stats.items() if called == function)


@pytest.mark.parametrize(
    ("window", "trainer", "expected"),
    [
        pytest.param({"skip_first": 2, "steps": 3}, {}, 3, id="inside"),
        pytest.param({"skip_first": 0, "steps": 2}, {}, 2, id="from the first"),
        pytest.param({"skip_first": 0, "steps": 0}, {"max_epochs": 2}, 12, id="all"),
        pytest.param({"skip_first": 4, "steps": 3}, {"max_epochs": 2}, 3, id="over epochs"),
        pytest.param({"skip_first": 4, "steps": 0}, {}, 2, id="to the end"),
        pytest.param({"skip_first": 4, "steps": 9}, {}, 2, id="early end"),
        pytest.param({"skip_first": 1}, {"fail_at": 4}, 4, id="error"),  # with the step that failed
        pytest.param({"skip_first": 2, "steps": 4}, {}, 4, id="to the last step"),
        pytest.param({"skip_first": 1, "steps": 3}, {"accumulate_grad_batches": 2}, 3, id="accumulation"),
    ],
)
def test_events_count_the_calls_of_whole_steps(
    tmp_path: Path, window: dict[str, int], trainer: dict[str, Any], expected: int
) -> None:
    profiler = PythonProfiler(tmp_path / "new" / "tables", **window)
    model = Model(trainer.get("fail_at", -1))
    with pytest.raises(ArithmeticError) if "fail_at" in trainer else nullcontext():
        fit(profiler, model=model, **{key: value for key, value in trainer.items() if key != "fail_at"})
    assert names(profiler.directory) == EVENTS
    assert sorted(profiler.files) == [profiler.directory / name for name in EVENTS]
    assert calls(profiler.directory, "training_step") == 2 * expected  # the model's, and the strategy's round it
    assert calls(profiler.directory, "fetch") == expected


def test_the_tables_are_sorted(tmp_path: Path) -> None:
    fit(PythonProfiler(tmp_path))
    cumulative, own = (tmp_path / "python_events.txt").read_text().split("Functions by own time")
    for table, column in ((cumulative, 3), (own, 1)):
        rows = [line.split() for line in table.partition("ncalls")[2].splitlines()[1:] if line]
        seconds = [float(row[column]) for row in rows]
        assert len(seconds) > 20
        assert seconds == sorted(seconds, reverse=True)
    assert "fitting.py" in cumulative
    assert all(name in cumulative for name in ("(training_step)", "run_backward", "builtins.next"))
    assert not [root for root in sys.path if root and f" {root}/" in cumulative]  # paths are from the import root


@pytest.mark.parametrize("window", [{"skip_first": 1, "steps": 220}, {"skip_first": 0, "steps": 0}], ids=str)
def test_sampling_shows_the_loop_as_a_tree(tmp_path: Path, window: dict[str, int]) -> None:
    fit(PythonProfiler(tmp_path, kind="sampling", interval=FINE, **window), max_epochs=40)
    assert names(tmp_path) == SAMPLES_FILES
    tree = (tmp_path / "python_sampling.txt").read_text()
    assert f"Training from step {window['skip_first']}" in tree
    for frame in ("Model.training_step", "run_backward", "SGD.step", "DataLoaderIter.__next__"):
        assert frame in tree
    assert "_call_and_handle_interrupt" not in tree  # the stem that all samples share is cut
    page = (tmp_path / "python_sampling.html").read_text()
    assert "training_step" in page
    assert set(re.findall(r"https?://[^/]*", page)) == {"http://www.w3.org"}  # a name, not an address: needs no network


def test_a_run_shorter_than_its_start_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fit(PythonProfiler(tmp_path / "tables", skip_first=6))
    assert "training ended after 6 steps, skip_first=6" in caplog.text
    assert not (tmp_path / "tables").exists()


@pytest.mark.parametrize("kind", FILES)
def test_another_profiler_is_left_alone(tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    model, other = Model(), cProfile.Profile()
    other.enable()
    try:
        fit(PythonProfiler(tmp_path / "tables", kind=kind), model=model)
    finally:
        other.disable()
    assert model.batches == 6
    beside = kind == "sampling" and sys.version_info >= (3, 12)  # where cProfile has a slot of its own
    assert ("No Python profile: another profiler runs in this thread" in caplog.text) is not beside
    assert (tmp_path / "tables").exists() is beside
    stats: Any = pstats.Stats(other)
    assert sum(row[1] for (_, _, name), row in stats.stats.items() if "method 'run_backward'" in name) == 6


def test_ranks_have_files_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Trainer, "world_size", 2)
    fit(PythonProfiler(tmp_path))
    assert names(tmp_path) == ["python_events_rank0.prof", "python_events_rank0.txt"]


class Watched(Dataset[list[torch.Tensor]]):
    """Says of each sample's process whether it is profiled."""

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> list[torch.Tensor]:
        return [torch.randn(4), torch.tensor(sys.getprofile() is not None)]


class Note(Model):
    profiled = 0

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        self.profiled += int(batch[1].sum())
        return super().training_step(batch)


@pytest.mark.parametrize("kind", FILES)
def test_workers_that_start_meanwhile_are_not_profiled(tmp_path: Path, kind: str) -> None:
    model = Note()
    trainer = trainer_with(PythonProfiler(tmp_path, kind=kind, skip_first=1, steps=9), max_epochs=2)
    trainer.fit(
        model, DataLoader(Watched(), batch_size=4, num_workers=1, multiprocessing_context="fork"), DataLoader(SAMPLES)
    )
    assert model.batches == 12
    assert model.profiled == 0
    assert names(tmp_path) == FILES[kind]


def test_serves_several_fits(tmp_path: Path) -> None:
    profiler = pickle.loads(pickle.dumps(PythonProfiler(tmp_path, skip_first=1)))  # strategies that spawn pickle it
    for batches in (3, 5):
        fit(profiler, limit_train_batches=batches)
        assert calls(tmp_path, "training_step") == 2 * (batches - 1)
    assert [path.name for path in profiler.files] == EVENTS


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"kind": "guess"}, "kind=guess is not a choice; choose one of events, sampling"),
        ({"skip_first": -1}, "skip_first=-1 "),
        ({"steps": -1}, "steps=-1 "),
        ({"interval": 0.0}, "interval=0.0 "),
    ],
    ids=str,
)
def test_bad_values_are_named(tmp_path: Path, bad: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        PythonProfiler(tmp_path, **bad)


def test_without_pyinstrument_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    PythonProfiler(tmp_path, kind="events")
    with pytest.raises(ImportError, match="pip install pyinstrument"):
        PythonProfiler(tmp_path, kind="sampling")
