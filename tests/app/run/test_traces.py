"""Traces of whole runs of the application: with loader workers, and of runs that do not end well."""

import os
import signal
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from strobe.callbacks.tracefile import read_trace
from support.interruptions import before_each_step, raising
from support.readers import crossing
from support.runs import Train
from support.traces import Event, read


def events_of(path: Path) -> list[Event]:
    return [event for event in read_trace(path)["traceEvents"] if event["ph"] == "X"]


def numbers(path: Path) -> list[int]:
    return [int(step["name"].partition("#")[2]) for step in read(path)[0]]


@pytest.mark.parametrize(
    ("stop", "code", "status"),
    [
        (signal.SIGTERM, 143, "interrupted"),
        (signal.SIGINT, 130, "interrupted"),
        (signal.SIGHUP, 129, "interrupted"),
        (None, 1, "failed"),
    ],
)
def test_a_run_that_is_stopped_leaves_a_trace(
    train: Train, monkeypatch: pytest.MonkeyPatch, stop: signal.Signals | None, code: int, status: str
) -> None:
    def stopped(model: Any, _: Any) -> None:
        if model.global_step == 3:
            os.kill(os.getpid(), stop) if stop else raising(ZeroDivisionError("the run's own"))

    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    before_each_step(monkeypatch, stopped)
    ended = train("profiler=trace", "profiler.active=9", "trainer.limit_train_batches=7")
    assert ended.code == code
    assert ended.summary["status"] == status
    (name,) = ended.summary["traces"]
    assert "_rank0_partial." in name
    events = events_of(ended.directory / name)
    assert numbers(ended.directory / name) == [2, 3]
    assert not crossing(events)
    assert (ended.directory / "tables" / "operators_by_cpu_time.txt").is_file()
    said = {
        143: "ended by SIGTERM, which SLURM",
        130: "ended by Ctrl-C",
        129: "ended by SIGHUP: its terminal",
        1: "own",
    }
    assert said[code] in ended.summary["error"]["message"]
    assert said[code] in ended.output
    assert ("Traceback" in ended.output) == ("ZeroDivisionError: the run's own" in ended.output) == (stop is None)
    assert len((ended.directory / "steps.csv").read_text().splitlines()) >= 4


def test_a_worker_that_learns_of_sigterm_first_does_not_make_the_run_a_failure(
    train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(_: Any, __: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        raise RuntimeError("DataLoader worker (pid 715) is killed by signal: Terminated. ")

    before_each_step(monkeypatch, stopped)
    ended = train()
    assert ended.code == 143
    assert ended.summary["status"] == "interrupted"
    assert "SIGTERM" in ended.summary["error"]["message"]


def test_workers_and_their_batches_are_in_the_trace(train: Train) -> None:
    ended = train(
        "profiler=trace",
        "profiler.active=10",
        "profiler.warmup=2",
        "profiler.repeat=1",
        "engine.num_workers=2",
        "trainer.limit_train_batches=15",
        "loader=tifffile",
    )
    assert ended.code == 0, ended.output
    assert 'href="./traces.html"' in (ended.directory / "report.html").read_text()
    assert "loader worker 1" in (ended.directory / "traces.html").read_text()  # among the threads at work
    trace = read_trace(ended.directory / ended.summary["traces"][0])
    names = {e["pid"]: e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name"}
    workers = {pid: name for pid, name in names.items() if name.startswith("loader worker")}
    assert sorted(workers.values()) == ["loader worker 0", "loader worker 1"]
    events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert not crossing(events)
    steps = [event for event in events if event["name"].startswith("ProfilerStep#")]
    assert len(steps) == 10
    work = [event for event in events if event.get("cat") == "loader"]
    assert {event["pid"] for event in work} == workers.keys()
    batches = {event["args"]["batch"]: event for event in work if event["name"] == "batch"}
    files = Counter(e["args"]["batch"] for e in work if e["name"] == "decode" and e["args"]["batch"] in batches)
    firsts = {pid: min(event["ts"] for event in batches.values() if event["pid"] == pid) for pid in workers}
    used = [int(step["name"].partition("#")[2]) for step in steps]  # later ones may end when spans are off again
    whole = [n for n in used if n in batches and batches[n]["ts"] > firsts[batches[n]["pid"]]]  # begun within the trace
    assert whole
    assert {files[number] for number in whole} == {4}
    apart = []
    for step in steps:  # its batch was made before it was fetched, and waited from then on
        number = int(step["name"].partition("#")[2])
        (fetch,) = (
            event
            for event in events
            if event["name"] == "fetch" and step["ts"] <= event["ts"] <= step["ts"] + step["dur"]
        )
        fetched = fetch["ts"] + fetch["dur"]
        if number in batches:
            assert batches[number]["ts"] + batches[number]["dur"] <= fetched + 1000
        waits = [event for event in work if event["name"] == f"batch {number} waiting"]
        for wait in waits:
            apart.append(abs(wait["ts"] + wait["dur"] - fetched))
            assert workers[wait["pid"]] == f"loader worker {number % 2}"
    assert median(apart) < 1000  # microseconds; the median, as a busy machine may stop between two clocks


def test_a_second_cycle_shows_only_what_waits_in_it(train: Train) -> None:
    ended = train(
        "profiler=trace",
        "profiler.wait=8",
        "profiler.active=2",
        "engine.num_workers=1",
        "trainer.max_epochs=2",
        "trainer.limit_train_batches=15",
    )
    assert ended.code == 0, ended.output
    for name, steps, earliest in zip(ended.summary["traces"], ([9, 10], [20, 21]), ((0, 9), (1, 5)), strict=True):
        path = ended.directory / name
        assert numbers(path) == steps
        waits = [event["args"] for event in events_of(path) if event["name"].endswith(" waiting")]
        assert waits
        assert min((args["epoch"], args["batch"]) for args in waits) >= earliest


def test_few_steps_are_traced_less_unless_told_otherwise(train: Train) -> None:
    few = ("profiler=trace", "trainer.limit_train_batches=9")
    ended = train(*few)
    assert ended.code == 0, ended.output
    assert ended.summary["steps"] == {"measured": 6, "profiled": 3, "skipped": 0}
    assert "Training is short (steps: 9), so fewer are traced" in ended.output
    assert len(ended.summary["traces"]) == 1
    told = train(*few, "profiler.active=3", "profiler.repeat=2", name="told")
    assert told.summary["steps"]["profiled"] == 9
    assert "fewer are traced" not in told.output


def test_the_first_steps_loading_is_seen(train: Train) -> None:
    ended = train("profiler=trace", "profiler.wait=0", "profiler.warmup=0", "profiler.active=2", "profiler.repeat=1")
    assert ended.code == 0, ended.output
    events = events_of(ended.directory / ended.summary["traces"][0])
    assert [event["args"]["batch"] for event in events if event["name"] == "batch"] == [0, 1]
