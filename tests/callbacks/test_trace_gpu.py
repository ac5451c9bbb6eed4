"""Traces of training on a GPU: kernels, and what they belong to."""

from collections import Counter

import pytest

from strobe.callbacks.trace import TraceProfiler
from strobe.callbacks.tracefile import Trace, read_trace
from support.fitting import SOME_VALIDATION, fit
from support.readers import Plugin, board, crossing
from support.traces import TWO, numbers

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def profiler(tmp_path_factory: pytest.TempPathFactory) -> TraceProfiler:
    profiler = TraceProfiler(tmp_path_factory.mktemp("logdir") / "run", tables=None, **TWO)
    fit(profiler, accelerator="gpu", devices=1, **SOME_VALIDATION)
    return profiler


@pytest.fixture(scope="module")
def trace(profiler: TraceProfiler) -> Trace:
    return read_trace(profiler.traces[0])


def test_the_steps_are_the_hosts(profiler: TraceProfiler, trace: Trace) -> None:
    assert numbers(profiler.traces[0]) == [2, 3]
    assert not crossing(trace["traceEvents"])


def test_validation_lies_between_steps_though_torch_draws_steps_twice(trace: Trace) -> None:
    ranges = [event for event in trace["traceEvents"] if event["ph"] == "X" and event["cat"] == "user_annotation"]
    steps = [event for event in ranges if event["name"].startswith("ProfilerStep#")]
    validations = [event for event in ranges if event["name"] == "validation"]
    assert validations
    for event in validations:
        assert not [s for s in steps if s["ts"] < event["ts"] + event["dur"] and event["ts"] < s["ts"] + s["dur"]]


def test_kernels_belong_to_operators(trace: Trace) -> None:
    ranges = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    kernels = [event for event in ranges if event["cat"] == "kernel"]
    assert kernels
    operators = {event["args"]["External id"]: event["name"] for event in ranges if event["cat"] == "cpu_op"}
    calls = {event["args"].get("correlation"): event["args"] for event in ranges if event["cat"] == "runtime"}
    owners = Counter(
        operators.get(args.get("external id", args.get("External id")))
        for args in (calls[kernel["args"]["correlation"]] for kernel in kernels)
    )
    assert owners[None] == 0
    assert {"aten::addmm", "aten::mm"} & owners.keys()


def test_phases_are_shown_on_the_device(trace: Trace) -> None:
    shown = {e["name"] for e in trace["traceEvents"] if e.get("cat") == "gpu_user_annotation"}
    assert {"forward", "backward", "optimizer"} <= shown


def test_the_plugin_shows_runtime_and_device_time(profiler: TraceProfiler) -> None:
    with board(profiler.directory.parent) as address:
        plugin = Plugin(address, profiler.directory.name)
        (worker,) = plugin.workers()
        assert plugin.shares(worker, "1")["Runtime"] > 0
        assert plugin.steps(worker, "1") == ["2", "3"]
        assert sum(row["device_total_duration"] for row in plugin.operators(worker, "1").values()) > 0
