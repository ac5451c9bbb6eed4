"""Rewriting traces: small ones made by hand, and one of a real closure."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch

from strobe.callbacks.normalise import main, normalise
from strobe.callbacks.tracefile import read_trace
from support.readers import crossing

Event = dict[str, Any]
MAIN, AUTOGRAD = 7, 8
STEP = "Optimizer.step#SGD.step"
WAIT = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
EVALUATE = "autograd::engine::evaluate_function: MmBackward0"


def event(name: str, cat: str, ts: float, dur: float, tid: int = MAIN, pid: int = 1, **args: Any) -> Event:  # noqa: PLR0917
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def rewrite(*events: Event) -> tuple[list[Event], dict[str, int]]:
    """The events afterwards, in their order, after checking that a second time changes nothing."""
    trace = {"traceEvents": copy.deepcopy(list(events))}
    changes = normalise(trace)
    once = copy.deepcopy(trace)
    assert not normalise(trace)
    assert trace == once
    return trace["traceEvents"], changes


def test_waits_and_optimizer_ranges_become_operators() -> None:
    names = [WAIT, "enumerate(DataPipe)#Mapper", STEP, "Optimizer.zero_grad#SGD.zero_grad", "ProfilerStep#3", "fetch"]
    events, changes = rewrite(*(event(name, "user_annotation", 10 * n, 5) for n, name in enumerate(names)))
    assert [e["cat"] for e in events] == ["cpu_op"] * 4 + ["user_annotation"] * 2
    assert changes == {"loader waits made operators": 2, "optimizer ranges made operators": 2}


def test_a_call_is_tied_to_the_innermost_operator_of_its_thread() -> None:
    events, changes = rewrite(
        event("ProfilerStep#0", "user_annotation", 0, 100, **{"External id": 1}),
        event("aten::linear", "cpu_op", 10, 30, **{"External id": 2}),
        event("aten::mm", "cpu_op", 20, 10, **{"External id": 3}),
        event("aten::mm", "cpu_op", 20, 10, AUTOGRAD, **{"External id": 4}),
        event("cudaLaunchKernel", "cuda_runtime", 21, 2, **{"External id": 901, "correlation": 901}),
        event("cuLaunchKernel", "cuda_driver", 35, 2, **{"External id": 3, "correlation": 3}),
        event("cudaLaunchKernel", "cuda_runtime", 50, 2, **{"correlation": 903}),
        event("cudaLaunchKernel", "cuda_runtime", 200, 2, **{"External id": 904, "correlation": 904}),
        event("gemm", "kernel", 40, 9, 0, 0, **{"External id": 901, "correlation": 901}),
        event("Memset", "gpu_memset", 60, 9, 0, 0, **{"External id": 3, "correlation": 3}),
    )
    calls = [e for e in events if e["cat"] == "runtime"]
    assert [e["args"].get("external id") for e in calls] == [3, 2, 1, 0]
    assert [e["args"].get("External id") for e in calls] == [901, 3, None, 904]
    assert [e["args"]["external id"] for e in events[-2:]] == [3, 2]
    assert changes == {
        "cuda calls made runtime": 4,
        "cuda calls tied to operators": 4,
        "kernels tied to operators": 2,
    }


def test_good_ties_stay() -> None:
    events, changes = rewrite(
        event("aten::mm", "cpu_op", 20, 10, **{"External id": 3}),
        event("aten::copy_", "cpu_op", 22, 2, **{"External id": 4}),
        event("cudaLaunchKernel", "runtime", 22, 1, **{"External id": 3, "correlation": 901}),
        event("cudaLaunchKernel", "runtime", 25, 1, -9, **{"External id": 3, "correlation": 902}),  # pthread's number
        event("gemm", "kernel", 40, 9, 0, 0, **{"External id": 3, "correlation": 901}),
    )
    assert not changes
    assert not any("external id" in e["args"] for e in events)


def test_a_step_is_counted_once() -> None:
    gpu = event("ProfilerStep#5", "gpu_user_annotation", 3, 9, 0, 0, **{"External id": 1})
    events, changes = rewrite(event("ProfilerStep#5", "user_annotation", 0, 10, **{"External id": 1}), gpu)
    assert [e["name"] for e in events] == ["ProfilerStep#5", "GPU ProfilerStep#5"]
    assert changes == {"gpu steps renamed": 1}


CLOSURE = [event(STEP, "cpu_op", 100, 900), event("aten::add_", "cpu_op", 800, 100)]


@pytest.mark.parametrize(
    ("inside", "begin"),
    [
        pytest.param([], 100, id="no closure"),
        pytest.param([event(EVALUATE, "cpu_op", 300, 200.5)], 500.5, id="backward"),
        pytest.param([event(EVALUATE, "cpu_op", 300, 200, AUTOGRAD)], 500, id="autograd's own thread"),
        pytest.param([event(EVALUATE, "cpu_op", 300, 200, pid=2)], 100, id="another process"),
        pytest.param([event(EVALUATE, "cpu_op", 40, 50), event(EVALUATE, "cpu_op", 1100, 9)], 100, id="outside"),
        pytest.param([event("forward", "user_annotation", 90, 200)], 290, id="forward"),
        pytest.param([event("forward", "user_annotation", 90, 200, AUTOGRAD)], 100, id="another thread"),
        pytest.param(
            [event("backward", "user_annotation", 200, 400), event(EVALUATE, "cpu_op", 300, 200)], 600, id="range"
        ),
        pytest.param(
            [event("closure", "user_annotation", 150, 500), event(EVALUATE, "cpu_op", 300, 200)], 650, id="around both"
        ),
        pytest.param(
            [
                event("optimizer", "user_annotation", 101, 5),
                event("backward", "user_annotation", 110, 400),
                event("optimizer", "user_annotation", 700, 295),
            ],
            700,
            id="its own range",
        ),
        pytest.param(
            [event(EVALUATE, "cpu_op", 300, 200), event("optimizer", "user_annotation", 700, 400)], 700, id="longer"
        ),
        pytest.param([event("optimizer", "user_annotation", 700, 400)], 700, id="longer, no passes"),
        pytest.param([event("optimizer", "user_annotation", 700, 200)], 100, id="no passes"),
        pytest.param(
            [event("sgd.py(70): step", "python_function", 110, 880), event(EVALUATE, "cpu_op", 300, 200)],
            100,
            id="stacks",
        ),
    ],
)
def test_an_optimizers_step_begins_behind_its_closure(inside: list[Event], begin: float) -> None:
    events, changes = rewrite(*CLOSURE, *inside)
    assert events[0]["ts"] == begin
    assert events[0]["ts"] + events[0]["dur"] == 1000
    assert events[1:] == [*CLOSURE[1:], *inside]
    assert changes == ({"optimizer steps shortened": 1} if begin != 100 else {})
    assert not crossing(events)


def test_a_real_closure(tmp_path: Path) -> None:
    layer = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)

    def closure() -> float:
        optimizer.zero_grad()
        loss = layer(torch.ones(4, 8)).sum()
        loss.backward()
        return float(loss.detach())

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        optimizer.step(closure)
        optimizer.step(closure)
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    assert main([str(tmp_path / "trace.json")]) == 0
    events = read_trace(tmp_path / "trace.json")["traceEvents"]
    steps = [e for e in events if e["name"] == STEP]
    backward = [e for e in events if e["name"].startswith("autograd::engine::evaluate_function")]
    assert len(steps) == 2
    for step in steps:
        before = [e for e in backward if e["ts"] < step["ts"]]
        assert before == [e for e in backward if e["ts"] < step["ts"] + step["dur"]]
        assert step["ts"] == pytest.approx(max(e["ts"] + e["dur"] for e in before), abs=0.01)
    assert not crossing(events)


def test_what_others_wrote_survives() -> None:
    others = [
        {"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "args": {"name": "é\udc80"}},
        {"ph": "s", "id": 5, "pid": 1, "tid": MAIN, "ts": 21, "cat": "fwdbwd", "name": "fwdbwd"},
        {"ph": "C", "name": "memory", "pid": 1, "ts": 4, "args": {"bytes": 10**20}},
        {"ph": "X", "name": "no category", "pid": "Spans", "tid": "x", "ts": 1, "dur": 2, "mine": [None, True]},
        {"ph": "X", "cat": "cpu_op", "name": "no length", "pid": 1, "tid": MAIN, "ts": 3},
        event("python", "python_function", 1, 5, **{"Python id": 3}),
    ]
    assert rewrite(*others) == (others, {})


def test_copies_must_not_replace_one_another(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.json").write_text('{"traceEvents": []}')
    with pytest.raises(SystemExit) as stop:
        main([str(tmp_path / "a" / "x.json"), str(tmp_path / "b" / "x.json"), "--output", str(tmp_path / "out")])
    assert stop.value.code == 2
    assert "no two of the traces may have one name" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
