"""The profiler plugin's figures for this callback's traces, against what the callback measured itself."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from strobe.callbacks.spans import span
from strobe.callbacks.trace import TraceProfiler
from strobe.callbacks.tracefile import read_trace
from support.fitting import SAMPLES, Model, trainer_with
from support.readers import Plugin, board, crossing
from support.traces import numbers, read

pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers")

LOADERS = ("two_workers", "no_workers", "another_engine")


class Slow(Dataset[torch.Tensor]):
    """Five milliseconds an item, as if it were decoded."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.005)
        return torch.full((4,), float(index))


class Engine:
    """Batches from something else than torch's DataLoader."""

    def __len__(self) -> int:
        return 10

    def __iter__(self) -> Iterator[Any]:
        return ([torch.stack([Slow()[i] for i in range(4)])] for _ in range(10))


class Working(Model):
    """Takes as long for a step as two workers take to make its batch, and half as long as one."""

    def training_step(self, batch: Any) -> torch.Tensor:
        time.sleep(0.01)
        return super().training_step([batch[0] if isinstance(batch, list) else batch])


@pytest.fixture(scope="module")
def profilers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TraceProfiler]:
    folder, profilers = tmp_path_factory.mktemp("logdir"), {}
    for name in LOADERS:
        loader = Engine() if name == "another_engine" else DataLoader(Slow(), 4, num_workers=2 * (name == LOADERS[0]))
        profilers[name] = TraceProfiler(folder / name, wait=1, warmup=2, active=6)
        trainer_with(profilers[name]).fit(Working(), loader, DataLoader(SAMPLES))
    return profilers


@pytest.fixture(scope="module")
def address(profilers: dict[str, TraceProfiler]) -> Iterator[str]:
    with board(profilers[LOADERS[0]].directory.parent) as address:
        yield address


@pytest.mark.parametrize("name", LOADERS)
def test_the_plugin_shows_the_loader_share_that_was_measured(
    profilers: dict[str, TraceProfiler], address: str, name: str
) -> None:
    profiler = profilers[name]
    waited = sum(i.end - i.start for step in profiler.steps for i in step.phases if i.name == "data_wait")
    measured = 100 * waited / sum(step.end - step.start for step in profiler.steps)
    plugin = Plugin(address, name)
    (worker,) = plugin.workers()
    shares = plugin.shares(worker, "1")
    assert shares["DataLoader"] == pytest.approx(measured, abs=2)
    assert (measured > 40) == (name != "two_workers")
    assert sum(shares.values()) == pytest.approx(100, abs=0.1)
    assert plugin.steps(worker, "1") == [str(step.number) for step in profiler.steps] == [str(n) for n in range(3, 9)]


@pytest.mark.parametrize("name", LOADERS)
def test_a_trace_is_well_formed(profilers: dict[str, TraceProfiler], name: str) -> None:
    (path,) = profilers[name].traces
    assert numbers(path) == list(range(3, 9))
    assert not crossing(read_trace(path)["traceEvents"])
    steps, ranges = read(path)
    waits = [event for event in ranges if event["name"].startswith("enumerate(DataLoader)#")]
    assert {event["cat"] for event in waits} == {"cpu_op"}
    updates = [event for event in ranges if event["name"] == "Optimizer.step#SGD.step"]
    assert {event["cat"] for event in updates} == {"cpu_op"}
    measured = [i for step in profilers[name].steps for i in step.phases if i.name == "optimizer"]
    updated = sum(i.end - i.start for i in measured) / 1e3
    assert 0 < sum(event["dur"] for event in updates) <= updated < 6 * 10_000  # us: without each forward's nap
    assert len(waits) == len(steps) == 6


@pytest.mark.filterwarnings("ignore:The inplace keyword in:DeprecationWarning:hta")  # HTA 0.5 on pandas 3
def test_holistic_trace_analysis_compares_traces_with_and_without_workers(profilers: dict[str, TraceProfiler]) -> None:
    trace_diff = pytest.importorskip("hta.trace_diff", reason="HolisticTraceAnalysis is not installed")
    labelled = [trace_diff.LabeledTrace(name, trace_dir=str(profilers[name].directory)) for name in LOADERS[:2]]
    for trace in labelled:
        assert trace.iterations() == list(range(3, 9))
        assert set(range(3, 9)) <= set(trace.t.get_trace(trace.ranks()[0])["iteration"])
    difference = trace_diff.TraceDiff.compare_traces(*labelled)
    assert difference.loc["aten::linear", "diff_counts"] == 0


class Noted(Slow):
    """Sleeps in `read` and in `decode`, and notes when."""

    def __init__(self, notes: Path) -> None:
        self.notes = notes

    def __getitem__(self, index: int) -> torch.Tensor:
        for name, seconds in (("read", 0.003), ("decode", 0.006)):
            with span(name, 1):
                began = time.monotonic_ns()
                time.sleep(seconds)
                ended = time.monotonic_ns()
            with self.notes.open("a") as file:
                file.write(f"{os.getpid()} {name} {began} {ended}\n")
        return torch.full((4,), float(index))


@pytest.mark.parametrize("workers", [0, 2])
def test_sleeps_in_read_and_decode_are_in_the_file_where_they_were(tmp_path: Path, workers: int) -> None:
    profiler = TraceProfiler(tmp_path / "traces", wait=1, warmup=2, active=5)
    loader = DataLoader(Noted(tmp_path / "notes"), 4, num_workers=workers)
    trainer_with(profiler).fit(Working(), loader, DataLoader(SAMPLES))
    events = [event for event in read_trace(profiler.traces[0])["traceEvents"] if event["ph"] == "X"]
    starts = {event["name"]: event["ts"] for event in events}
    offset = median(starts[f"ProfilerStep#{step.number}"] - step.start / 1e3 for step in profiler.steps)
    noted = [line.split() for line in (tmp_path / "notes").read_text().splitlines()]
    for name in ("read", "decode"):
        found = [event for event in events if event["name"] == name and "unfinished" not in event["args"]]
        assert len(found) >= 12
        errors = []
        for event in found:
            begins = event["ts"] - offset
            whose = [n for n in noted if n[1] == name and (not workers or int(n[0]) == event["pid"])]
            nearest = min(whose, key=lambda n: abs(int(n[2]) / 1e3 - begins))
            errors += [abs(int(nearest[2]) / 1e3 - begins), abs(int(nearest[3]) / 1e3 - begins - event["dur"])]
        assert median(errors) < 1000  # microseconds; the median, as a busy machine may stop between two clocks
