"""Traces as each reader takes them: other people's before and after they are rewritten, and this callback's own."""

import gzip
import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from strobe.callbacks.normalise import main, normalise
from strobe.callbacks.spans import span
from strobe.callbacks.trace import TraceProfiler
from strobe.callbacks.trace_writer import keep_first_steps
from strobe.callbacks.tracefile import read_trace, write_trace
from support.fitting import SAMPLES, Model, trainer_with
from support.places import DATA
from support.readers import Plugin, board, crossing
from support.traces import numbers, read

pytestmark = [
    pytest.mark.skipif(not (DATA / "traces").is_dir(), reason="needs real data: the public traces"),
    pytest.mark.filterwarnings("ignore:The inplace keyword in:DeprecationWarning:hta"),  # HTA 0.5 on pandas 3
]

A100, RANK0, CPU = "gpu_training_a100", "gpu_rank0_no_dataloader", "cpu_only"
STEPS = {A100: [1009, 1010], RANK0: [101, 102], CPU: [551]}  # the first of each recording
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
def logdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs under names by which the plugin finds them: `raw`, and `rewritten` by the command."""
    folder = tmp_path_factory.mktemp("logdir")
    for run in ("raw", "rewritten"):
        (folder / run).mkdir()
    for name, steps in STEPS.items():
        trace = read_trace(DATA / "traces" / f"{name}.json.gz")
        keep_first_steps(trace, len(steps))
        write_trace(folder / "raw" / f"{name}.1.pt.trace.json.gz", trace)
        shutil.copy(folder / "raw" / f"{name}.1.pt.trace.json.gz", folder / "rewritten")
    assert main([str(path) for path in (folder / "rewritten").iterdir()]) == 0
    return folder


@pytest.fixture(scope="module")
def profilers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TraceProfiler]:
    folder, profilers = tmp_path_factory.mktemp("own"), {}
    for name in LOADERS:
        loader = Engine() if name == "another_engine" else DataLoader(Slow(), 4, num_workers=2 * (name == LOADERS[0]))
        profilers[name] = TraceProfiler(folder / name, wait=1, warmup=2, active=6)
        trainer_with(profilers[name]).fit(Working(), loader, DataLoader(SAMPLES))
    return profilers


@pytest.fixture(scope="module")
def address(
    logdir: Path, profilers: dict[str, TraceProfiler], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A TensorBoard on the raw A100 trace, both rewritten GPU traces, and this callback's."""
    shown = tmp_path_factory.mktemp("shown")
    for run, name in (("raw", A100), ("rewritten", A100), ("rewritten", RANK0)):
        (shown / run).mkdir(exist_ok=True)
        shutil.copy(logdir / run / f"{name}.1.pt.trace.json.gz", shown / run)
    for name, profiler in profilers.items():
        shutil.copytree(profiler.directory, shown / name)
    with board(shown) as address:
        yield address


@pytest.fixture(scope="module")
def plugins(address: str) -> tuple[Plugin, Plugin]:
    both = Plugin(address, "raw"), Plugin(address, "rewritten")
    assert both[0].workers() == [A100]
    assert both[1].workers() == [RANK0, A100]
    return both


def test_the_plugin_gets_its_runtime_share(plugins: tuple[Plugin, Plugin]) -> None:
    raw, rewritten = (plugin.shares(A100) for plugin in plugins)
    assert raw["Runtime"] == 0
    assert rewritten["Runtime"] == pytest.approx(4.3, abs=0.02)
    assert sum(rewritten.values()) == pytest.approx(100, abs=0.1)
    assert plugins[1].shares(RANK0)["Runtime"] == pytest.approx(1.25, abs=0.02)


def test_the_plugin_gets_its_loader_share(plugins: tuple[Plugin, Plugin], logdir: Path) -> None:
    raw, rewritten = (plugin.shares(A100)["DataLoader"] for plugin in plugins)
    assert raw == 0
    events = read_trace(logdir / "raw" / f"{A100}.1.pt.trace.json.gz")["traceEvents"]
    waited = sum(event["dur"] for event in events if event["name"].startswith("enumerate(DataLoader)"))
    all_of_it = 100 * waited / len(STEPS[A100]) / plugins[1].step_us(A100)
    assert 0 < rewritten <= all_of_it + 0.01  # kernels that run meanwhile go first


def test_the_plugin_ties_kernels_to_operators(plugins: tuple[Plugin, Plugin]) -> None:
    raw, rewritten = (plugin.operators(A100) for plugin in plugins)
    assert not any(row["device_total_duration"] for row in raw.values())
    assert not {row["Operator"] for row in plugins[0].kernels(A100)} & set(raw)
    kernels = plugins[1].kernels(A100)
    not_in_the_table = {"Optimizer.step#FusedAdam.step", "nccl:all_reduce"}  # which launch kernels themselves
    assert {row["Operator"] for row in kernels} <= set(rewritten) | not_in_the_table
    in_kernels = sum(row["Total Duration (us)"] for row in kernels)
    in_operators = sum(row["device_self_duration"] for row in rewritten.values())
    assert in_kernels == sum(row["Total Duration (us)"] for row in plugins[0].kernels(A100))
    assert in_operators == pytest.approx(in_kernels, rel=0.05)  # copies besides, and without those two
    products = [row for row in kernels if "sgemm" in row["Name"]]
    assert products
    assert {row["Operator"] for row in products} <= {"aten::mm", "aten::addmm", "aten::bmm", "aten::linear"}


def test_the_plugin_counts_the_same_steps_and_adds_the_gpus_metrics(
    plugins: tuple[Plugin, Plugin], logdir: Path
) -> None:
    for plugin in plugins:
        assert plugin.steps(A100) == [str(step) for step in STEPS[A100]]
    raw = read_trace(logdir / "raw" / f"{A100}.1.pt.trace.json.gz")["traceEvents"]
    assert len(plugins[1].trace(A100)["traceEvents"]) > len(raw)  # valid JSON for its Trace view


@pytest.mark.parametrize("name", STEPS)
def test_only_what_must_change_does(logdir: Path, name: str) -> None:
    raw, rewritten = (read_trace(logdir / run / f"{name}.1.pt.trace.json.gz") for run in ("raw", "rewritten"))
    assert {key: value for key, value in raw.items() if key != "traceEvents"} == {
        key: value for key, value in rewritten.items() if key != "traceEvents"
    }
    for before, after in zip(raw["traceEvents"], rewritten["traceEvents"], strict=True):
        kept = {key: value for key, value in after.items() if key not in {"cat", "args"}}
        assert kept == {key: value for key, value in before.items() if key not in {"cat", "args"}}
        args = {key: value for key, value in after.get("args", {}).items() if key != "external id"}
        assert args == before.get("args", {})
    assert not normalise(rewritten)
    assert not crossing(rewritten["traceEvents"], 1 if name == RANK0 else 0.001)  # us: what the raw file resolves


def test_a_crossing_would_be_found() -> None:
    ranges = [{"ph": "X", "cat": "cpu_op", "pid": 1, "tid": 1, "name": name, "dur": 10} for name in "abc"]
    times = [{"ts": 0}, {"ts": 5}, {"ts": 15}]
    assert crossing([event | time for event, time in zip(ranges, times, strict=True)]) == [("a", "b")]


@pytest.mark.parametrize("name", [CPU, RANK0, pytest.param(A100, marks=pytest.mark.slow)])
def test_holistic_trace_analysis_sees_no_difference(logdir: Path, tmp_path: Path, name: str) -> None:
    trace_diff = pytest.importorskip("hta.trace_diff", reason="HolisticTraceAnalysis is not installed")
    labelled = {}
    for run in ("raw", "rewritten"):
        (tmp_path / run).mkdir()
        shutil.copy(logdir / run / f"{name}.1.pt.trace.json.gz", tmp_path / run)
        labelled[run] = trace_diff.LabeledTrace(run, trace_dir=str(tmp_path / run))
        assert labelled[run].iterations() == STEPS[name]
    rank = labelled["raw"].ranks()
    assert labelled["rewritten"].ranks() == rank  # read from the text of the file
    columns = ["iteration", "index_correlation", "ts", "dur"]
    raw, rewritten = (labelled[run].t.get_trace(rank[0])[columns] for run in ("raw", "rewritten"))
    assert set(STEPS[name]) <= set(rewritten["iteration"])
    assert raw.equals(rewritten)
    difference = trace_diff.TraceDiff.compare_traces(labelled["raw"], labelled["rewritten"])
    assert len(difference) > 1
    assert not difference["diff_counts"].any()
    assert not difference["diff_duration"].any()


def test_a_rewritten_file_is_one_json_object_with_its_events_last(logdir: Path) -> None:
    text = gzip.decompress((logdir / "rewritten" / f"{CPU}.1.pt.trace.json.gz").read_bytes())
    assert list(json.loads(text))[-1] == "traceEvents"  # the plugin's Trace view splices at the last bracket


@pytest.mark.parametrize("name", LOADERS)
def test_the_plugin_shows_the_loader_share_that_was_measured(
    profilers: dict[str, TraceProfiler], address: str, name: str
) -> None:
    profiler = profilers[name]
    measured = [sum(i.end - i.start for i in step.phases if i.name == "data_wait") / 1e3 for step in profiler.steps]
    steps, ranges = read(profiler.traces[0])
    waits = [event["dur"] for event in ranges if event["name"].startswith("enumerate(DataLoader)#")]
    whole = sum(event["dur"] for event in steps)
    assert median(abs(one - other) for one, other in zip(waits, measured, strict=True)) < 1000  # microseconds
    plugin = Plugin(address, name)
    (worker,) = plugin.workers()
    shares = plugin.shares(worker, "1")
    assert shares["DataLoader"] == pytest.approx(100 * sum(waits) / whole, abs=0.1)
    assert shares["DataLoader"] > 40 or name == "two_workers"
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
