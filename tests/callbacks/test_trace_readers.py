"""Real traces of other people's runs, as each reader takes them before and after they are rewritten."""

import gzip
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from strobe.callbacks.normalise import main, normalise
from strobe.callbacks.tracefile import read_trace
from support.places import DATA
from support.readers import Plugin, board, crossing

TRACES = DATA / "traces"
A100, RANK0, CPU = "gpu_training_a100", "gpu_rank0_no_dataloader", "cpu_only"
STEPS = {A100: list(range(1009, 1015)), RANK0: list(range(101, 106)), CPU: [551]}

pytestmark = pytest.mark.skipif(not TRACES.is_dir(), reason="no traces in STROBE_DATA")


def copy(name: str, folder: Path) -> Path:
    """A trace under a name by which the plugin finds it."""
    folder.mkdir(parents=True, exist_ok=True)
    return shutil.copyfile(TRACES / f"{name}.json.gz", folder / f"{name}.1.pt.trace.json.gz")


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs: `raw`, and `rewritten` by the command."""
    folder = tmp_path_factory.mktemp("logdir")
    for name in STEPS:
        copy(name, folder / "raw")
    copies = [str(copy(name, folder / "rewritten")) for name in STEPS]
    assert main(copies) == 0
    return folder


@pytest.fixture(scope="module")
def plugins(logdir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Plugin, Plugin]]:
    """The plugin on the raw A100 trace, and on both rewritten GPU traces."""
    shown = tmp_path_factory.mktemp("shown")
    for run, name in (("raw", A100), ("rewritten", A100), ("rewritten", RANK0)):
        (shown / run).mkdir(exist_ok=True)
        shutil.copy(logdir / run / f"{name}.1.pt.trace.json.gz", shown / run)
    with board(shown) as address:
        both = Plugin(address, "raw"), Plugin(address, "rewritten")
        assert both[0].workers() == [A100]
        assert both[1].workers() == [RANK0, A100]
        yield both


def test_the_plugin_gets_its_runtime_share(plugins: tuple[Plugin, Plugin]) -> None:
    raw, rewritten = (plugin.shares(A100) for plugin in plugins)
    assert raw["Runtime"] == 0
    assert rewritten["Runtime"] == pytest.approx(3.18, abs=0.02)
    assert sum(rewritten.values()) == pytest.approx(100, abs=0.1)
    assert plugins[1].shares(RANK0)["Runtime"] == pytest.approx(0.84, abs=0.02)


def test_the_plugin_gets_its_loader_share(plugins: tuple[Plugin, Plugin]) -> None:
    raw, rewritten = (plugin.shares(A100)["DataLoader"] for plugin in plugins)
    assert raw == 0
    events = read_trace(TRACES / f"{A100}.json.gz")["traceEvents"]
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


def test_a_kernel_is_tied_to_the_right_operator(plugins: tuple[Plugin, Plugin]) -> None:
    rows = [row for row in plugins[1].kernels(A100) if "sgemm" in row["Name"]]
    assert rows
    assert {row["Operator"] for row in rows} <= {"aten::mm", "aten::addmm", "aten::bmm", "aten::linear"}


def test_the_plugin_counts_the_same_steps(plugins: tuple[Plugin, Plugin]) -> None:
    for plugin in plugins:
        assert plugin.steps(A100) == [str(step) for step in STEPS[A100]]


def test_the_plugins_trace_view_gets_valid_json(plugins: tuple[Plugin, Plugin]) -> None:
    for name in (A100, RANK0):
        shown = plugins[1].trace(name)["traceEvents"]
        assert len(shown) > len(read_trace(TRACES / f"{name}.json.gz")["traceEvents"])  # and the GPU's metrics


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


@pytest.mark.parametrize(("name", "slack_us"), [(A100, 0.001), (CPU, 0.001), (RANK0, 1)])
def test_ranges_of_a_thread_nest(logdir: Path, name: str, slack_us: float) -> None:
    """The slack is the resolution of the raw file: microseconds since 1970 in a double."""
    events = read_trace(logdir / "rewritten" / f"{name}.1.pt.trace.json.gz")["traceEvents"]
    assert not crossing(events, slack_us)


def test_a_crossing_would_be_found() -> None:
    ranges = [{"ph": "X", "cat": "cpu_op", "pid": 1, "tid": 1, "name": name, "dur": 10} for name in "abc"]
    times = [{"ts": 0}, {"ts": 5}, {"ts": 15}]
    assert crossing([event | time for event, time in zip(ranges, times, strict=True)]) == [("a", "b")]


@pytest.mark.filterwarnings("ignore:The inplace keyword in:DeprecationWarning:hta")  # HTA 0.5 on pandas 3
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
    text = gzip.decompress((logdir / "rewritten" / f"{RANK0}.1.pt.trace.json.gz").read_bytes())
    assert list(json.loads(text))[-1] == "traceEvents"  # the plugin's Trace view splices at the last bracket
