"""Files of traces: read, written, given to the command; and from what torch exports to the trace that is kept."""

import gzip
import json
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, record_function

from strobe.callbacks.normalise import main
from strobe.callbacks.ranges import Step
from strobe.callbacks.trace_writer import begin_steps, clock_of, fit_updates, keep_first_steps, name_fetches
from strobe.callbacks.tracefile import Trace, TraceError, all_read, read_trace, write_trace
from support.places import ROOT

WAIT = {
    "ph": "X",
    "cat": "user_annotation",
    "name": "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
    "pid": 1,
    "tid": 1,
    "ts": 1,
    "dur": 2,
}


@pytest.mark.parametrize("name", ["a.json", "a.json.gz"])
def test_what_is_written_is_read(tmp_path: Path, name: str) -> None:
    events = [WAIT | {"name": f"é {n}", "ts": n + 0.125} for n in range(2500)]
    trace = {"traceEvents": events, "distributedInfo": {"rank": 3}}
    (tmp_path / name).touch(mode=0o640)
    (tmp_path / name).chmod(0o640)
    (tmp_path / "link.gz").symlink_to(tmp_path / name)
    write_trace(tmp_path / name, trace)
    assert read_trace(tmp_path / name) == trace
    assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o640
    assert (tmp_path / "link.gz").is_symlink()
    raw = (tmp_path / name).read_bytes()
    assert raw.startswith(b"\x1f\x8b") == name.endswith(".gz")
    write_trace(tmp_path / name, trace)
    assert (tmp_path / name).read_bytes() == raw


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    def stop(*_: Any) -> None:
        raise error

    path = tmp_path / "a.json"
    path.write_text("old")
    monkeypatch.setattr(Path, "replace", stop)
    with pytest.raises(error):
        write_trace(path, {"traceEvents": []})
    assert [found.name for found in tmp_path.iterdir()] == ["a.json"]
    assert path.read_text() == "old"


GOOD = json.dumps({"traceEvents": [WAIT] * 50}).encode()
BAD = {
    "empty.json": (b"", "is empty"),
    "cut.json": (GOOD[:-40], "whole, valid JSON"),
    "cut.json.gz": (gzip.compress(GOOD)[:-40], "is incomplete"),
    "flipped.json.gz": (gzip.compress(GOOD)[:-8] + bytes(8), "damaged gzip"),
    "garbled.json.gz": (gzip.compress(GOOD)[:10] + b"\xff" * 99, "damaged gzip"),
    "latin1.json": ('{"traceEvents": ["é"]}'.encode("latin1"), "not JSON text"),
    "object.json": (b'{"events": []}', "no list of traceEvents"),
    "number.json": (b"3", "no list of traceEvents"),
    "strings.json": (b'["a"]', "no list of traceEvents"),
    "deep.json": (b"[" * 100_000, "whole, valid JSON"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_named_and_stays(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    content, problem = BAD[name]
    path, good = tmp_path / name, tmp_path / "good.json"
    path.write_bytes(content)
    good.write_bytes(GOOD)
    with pytest.raises(TraceError, match=problem):
        read_trace(path)
    assert main([str(path), str(good)]) == 1
    said = capsys.readouterr()
    assert said.err.count("\n") == 1
    assert str(path) in said.err
    assert said.out == f"{good}: 50 loader waits made operators\n"
    assert path.read_bytes() == content
    assert sorted(tmp_path.iterdir()) == sorted([path, good])


@pytest.mark.parametrize("name", ["missing.json", ""])
def test_no_file(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / name)]) == 1
    assert capsys.readouterr().err.startswith(str(tmp_path / name))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        pytest.param("list.json", json.dumps([{"ph": "M", "name": "x"}]).encode(), id="list"),
        pytest.param("packed.json", gzip.compress(b'{"traceEvents": []}'), id="packed"),
        pytest.param("plain.json.gz", b'\n {"traceEvents": []}', id="plain"),
    ],
)
def test_unusual_forms_are_made_usual(
    tmp_path: Path, name: str, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    before = read_trace(path)
    assert main([str(path)]) == 0
    assert "put into the form" in capsys.readouterr().out
    assert read_trace(path) == before
    assert all_read(path)
    written = path.read_bytes()
    assert main([str(path)]) == 0
    assert "nothing had to be changed" in capsys.readouterr().out
    assert path.read_bytes() == written


def test_copies_leave_the_original(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(GOOD)
    assert main([str(path), "--output", str(tmp_path / "new" / "er")]) == 0
    assert path.read_bytes() == GOOD
    assert read_trace(tmp_path / "new" / "er" / "a.json")["traceEvents"][0]["cat"] == "cpu_op"


def test_a_folder_that_cannot_be_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(GOOD)
    assert main([str(path), "--output", str(path / "below")]) == 1
    assert "cannot be written" in capsys.readouterr().err


def test_the_command(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(GOOD)
    command = [sys.executable, "-m", "strobe.callbacks.normalise", str(path), str(tmp_path / "missing.json")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT)
    assert ended.returncode == 1
    assert ended.stdout == f"{path}: 50 loader waits made operators\n"
    assert ended.stderr == f"{tmp_path / 'missing.json'} does not exist; name a .json or .json.gz trace\n"


def event(name: str, ts: float, dur: float, **more: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": "user_annotation", "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur} | more


def named(trace: Trace, name: str) -> list[tuple[float, float]]:
    return [(e["ts"], e["ts"] + e["dur"]) for e in trace["traceEvents"] if e["name"] == name]


def test_the_clock_is_the_traces(tmp_path: Path) -> None:
    noted = []
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for number in range(50):
            before = time.monotonic_ns()
            with record_function(f"range {number}"):
                noted.append((before, time.monotonic_ns()))
                torch.ones(3)
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    trace = read_trace(tmp_path / "trace.json")
    clock = clock_of(trace)
    starts = [named(trace, f"range {number}")[0][0] for number in range(50)]
    agree = [clock(before) - 50 < ts < clock(after) + 50 for ts, (before, after) in zip(starts, noted, strict=True)]
    assert sum(agree) >= 45  # between two readings, and 50 us: a machine may stop in between


def test_a_step_begins_after_what_lies_before_it() -> None:
    copy = event("ProfilerStep#4", 1000, 9000, cat="gpu_user_annotation", tid=7)  # torch draws it last
    trace = {
        "traceEvents": [
            event("ProfilerStep#3", 0, 1000),
            event("ProfilerStep#4", 1000, 9000),
            event("validation", 1010, 4000),
            copy.copy(),
        ]
    }
    begin_steps(trace, [Step(3, 5_000, 0, ()), Step(4, 5_000_000, 0, ())], lambda ns: ns / 1000)
    assert named(trace, "ProfilerStep#3") == [(0, 1000)]  # began with its range, but for the clock's error
    assert named(trace, "ProfilerStep#4")[0] == (5010, 10000)  # behind the range that it would cut
    assert trace["traceEvents"][-1] == copy


def test_torchs_optimizer_range_fits_ours() -> None:
    trace = {
        "traceEvents": [
            event("optimizer", 0, 15),  # before the closure
            event("Optimizer.step#Adam.step", 10, 90),
            event("forward", 15, 35),
            event("backward", 50, 30),
            event("optimizer", 80, 15),
            event("Optimizer.step#Other.step", 300, 10),
        ]
    }
    fit_updates(trace)
    assert named(trace, "Optimizer.step#Adam.step") == [(80, 95)]
    assert named(trace, "Optimizer.step#Other.step") == [(300, 310)]


def test_a_fetch_without_a_waiting_range_gets_one() -> None:
    trace = {
        "traceEvents": [
            event("fetch", 0, 10),
            event("enumerate(DataLoader)#Iter.__next__", 1, 8),
            event("fetch", 20, 10),
        ]
    }
    name_fetches(trace)
    assert named(trace, "enumerate(DataLoader)#loader.__next__") == [(20, 30)]


def test_steps_are_left_out_with_what_is_in_them() -> None:
    events = [event(f"ProfilerStep#{n}", 10 * n, 10) for n in (5, 6, 7)]
    inside = [event("aten::mm", 10 * n + 1, 1, cat="cpu_op") for n in (5, 6, 7)]
    metadata = {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "x"}}
    trace = {"traceEvents": [*inside, *events, metadata]}
    keep_first_steps(trace, 2)
    assert trace["traceEvents"] == [*inside[:2], *events[:2], metadata]
    keep_first_steps(trace, 2)
    assert len(trace["traceEvents"]) == 5
