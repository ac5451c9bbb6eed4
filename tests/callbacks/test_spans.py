"""Spans of loading work, written by threads and processes and read by the training process; and their folder."""

import json
import logging
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from time import monotonic_ns

import pytest

from strobe.callbacks import spans
from strobe.callbacks.ring_buffer import CAPACITY, Span, Track
from strobe.callbacks.spans import SpanFolder, batch_span, span
from support.interruptions import full_disk

EVER = (0, 1 << 62)


def rings(directory: Path) -> list[Path]:
    return sorted(directory.glob("*/*.ring"))


def names(folder: SpanFolder) -> list[str]:
    return [s.name for track in folder.read(*EVER) for s in track.spans]


def in_child(work: Callable[[], None]) -> int:
    """Run in a forked process; its exit code."""
    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join()
    assert child.exitcode is not None
    return child.exitcode


def in_thread(work: Callable[[], None], name: str) -> None:
    thread = threading.Thread(target=work, name=name)
    thread.start()
    thread.join()


def work(name: str = "read") -> None:
    with span(name, 1):
        pass


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[SpanFolder]:
    folder = SpanFolder(tmp_path)
    folder.start()
    yield folder
    folder.close()


@pytest.fixture
def recording(folder: SpanFolder) -> SpanFolder:
    folder.switch(True)
    return folder


def only(tracks: list[Track]) -> Track:
    assert len(tracks) == 1
    return tracks[0]


def test_nothing_is_written_while_off(folder: SpanFolder, tmp_path: Path) -> None:
    work()
    with batch_span(0, 1, 2):
        work()
    assert in_child(work) == 0
    assert rings(tmp_path) == []
    assert folder.read(*EVER) == []
    assert span("read") is span("decode") is batch_span(0, 1)  # no object is made


def test_spans_come_back_as_they_were(recording: SpanFolder) -> None:
    noted = [monotonic_ns()]
    with batch_span(3, 7, 2, "val"):
        noted.append(monotonic_ns())
        with span("read", 2):
            noted.append(monotonic_ns())
        noted.append(monotonic_ns())
    noted.append(monotonic_ns())
    work("décodage des tuiles")
    track = only(recording.read(*EVER))
    assert (track.pid, track.tid, track.worker, track.lost) == (os.getpid(), threading.get_native_id(), None, 0)
    assert track.name == threading.current_thread().name
    batch, inner, outside = track.spans
    assert (batch.name, batch.files, batch.split, batch.epoch, batch.batch) == ("batch", 2, "val", 3, 7)
    assert (inner.name, inner.files, inner.split, inner.epoch, inner.batch) == ("read", 2, "val", 3, 7)
    assert (outside.name, outside.files, outside.split, outside.epoch, outside.batch) == (
        "décodage des tu", 1, "", None, None,
    )  # fmt: skip
    edges = [noted[0], batch.start, noted[1], inner.start, noted[2], inner.end, noted[3], batch.end, noted[4]]
    assert edges == sorted(edges)


def test_a_failing_batch_is_recorded_and_its_error_passes(recording: SpanFolder) -> None:
    with pytest.raises(ZeroDivisionError), batch_span(0, 0), span("read"):
        _ = 1 / 0
    work("after")
    track = only(recording.read(*EVER))
    assert [(s.name, s.end is not None, s.batch) for s in track.spans] == [
        ("batch", True, 0), ("read", True, 0), ("after", True, None),
    ]  # fmt: skip


def test_only_what_overlaps_the_time_is_read(recording: SpanFolder) -> None:
    for name in "abc":
        work(name)
    a, b, c = only(recording.read(*EVER)).spans
    assert only(recording.read(b.start, b.end)).spans == [b]
    assert only(recording.read(a.end, c.start)).spans == [a, b, c]
    assert recording.read(c.end + 1, EVER[1]) == []
    with span("open"):
        assert only(recording.read(c.end + 1, EVER[1])).spans[0].end is None
        assert recording.read(0, a.start - 1) == []


def test_each_thread_has_its_own_track(recording: SpanFolder) -> None:
    def batch(number: int) -> None:
        with batch_span(0, number):
            barrier.wait(60)
            work()

    barrier = threading.Barrier(2)
    threads = [threading.Thread(target=batch, args=(n,), name=f"decoder {n}") for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    tracks = {track.name: track for track in recording.read(*EVER)}
    assert [(s.name, s.batch) for s in tracks["decoder 0"].spans] == [("batch", 0), ("read", 0)]
    assert [(s.name, s.batch) for s in tracks["decoder 1"].spans] == [("batch", 1), ("read", 1)]
    assert [tracks[f"decoder {n}"].tid for n in range(2)] == [thread.native_id for thread in threads]


def test_what_a_killed_process_did_is_kept(recording: SpanFolder) -> None:
    def die() -> None:
        work()
        with span("decode"):
            os.kill(os.getpid(), signal.SIGKILL)

    work("parent")
    assert in_child(die) == -signal.SIGKILL
    parent, child = sorted(recording.read(*EVER), key=lambda track: track.pid != os.getpid())
    assert [s.name for s in parent.spans] == ["parent"]
    assert [(s.name, s.end is None) for s in child.spans] == [("read", False), ("decode", True)]


def test_a_full_ring_keeps_the_newest(recording: SpanFolder) -> None:
    with span("outer"):
        for number in range(CAPACITY + 100):
            work(f"{number}")
    track = only(recording.read(*EVER))
    assert [s.name for s in track.spans] == [f"{number}" for number in range(101, CAPACITY + 100)]
    assert all(a.end <= b.start for a, b in pairwise(track.spans))  # the outer one's end went nowhere
    assert track.lost == 102
    recording.switch(False)
    recording.switch(True)
    work("last")
    assert only(recording.read(*EVER)).lost == 0  # the 102 were of the recording before


def test_reading_disturbs_no_writer(recording: SpanFolder) -> None:
    def write() -> None:
        while not done.is_set():
            work("x" * 16)

    done = threading.Event()
    writer = threading.Thread(target=write)
    writer.start()
    found: list[Span] = []
    # A reading finds nothing where the writer went round the whole buffer meanwhile.
    while not (tracks := recording.read(*EVER)) or tracks[0].lost < 3 * CAPACITY or not found:
        found += tracks[0].spans if tracks else []
    done.set()
    writer.join()
    assert {(s.name, s.files) for s in found} == {("x" * 16, 1)}
    assert all(s.end is None or EVER[0] < s.start <= s.end for s in found)


def test_loading_goes_on_when_nothing_can_be_written(
    recording: SpanFolder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    done = []
    with full_disk(1000):
        for _ in range(3):
            with batch_span(0, 0), span("read"):
                done.append(1)
    assert len(done) == 3
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "File too large" in caplog.text
    assert rings(tmp_path) == []


def test_a_folder_that_cannot_be_made_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = SpanFolder(tmp_path / "missing")
    folder.start()
    folder.switch(True)
    work()
    assert folder.read(*EVER) == []
    folder.close()
    assert "Loading is not recorded: " in caplog.text
    assert spans.FOLDER not in os.environ


def test_a_folder_removed_by_others_is_no_error(recording: SpanFolder, tmp_path: Path) -> None:
    work()
    for path in tmp_path.iterdir():
        shutil.rmtree(path)
    work()
    in_thread(work, "new")
    assert recording.read(*EVER) == []
    recording.switch(True)


def test_a_closed_folder_is_gone_and_forgotten(tmp_path: Path) -> None:
    folder = SpanFolder(tmp_path)
    folder.close()
    for _ in range(2):  # it opens again
        folder.start()
        folder.start()
        folder.switch(True)
        assert os.environ[spans.FOLDER] == spans.folder()
        work()
        assert names(folder) == ["read"]
        assert in_child(folder.close) == 0  # not the child's
        assert names(folder) == ["read"]
        with span("across the end"):
            folder.close()
            folder.close()
        work()
        folder.switch(True)
        assert folder.read(*EVER) == []
        assert list(tmp_path.iterdir()) == []
        assert spans.FOLDER not in os.environ
        assert spans.folder() is None


def test_what_a_killed_process_left_is_removed(recording: SpanFolder, tmp_path: Path) -> None:
    code = (
        "import os, sys; from strobe.callbacks.spans import *; SpanFolder(sys.argv[1]).start(); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path], check=False, timeout=30)
    left = {path for path in tmp_path.iterdir() if path != Path(str(spans.folder()))}
    assert len(left) == 1
    other = SpanFolder(tmp_path)
    other.start()
    assert not left & set(tmp_path.iterdir())
    assert len(list(tmp_path.iterdir())) == 2
    other.close()


def test_workers_that_outlive_the_folder_record_no_more(recording: SpanFolder) -> None:
    def outlive() -> None:
        work()
        theirs.send("ready")
        theirs.recv()
        work()
        theirs.send(span("off") is span("off"))

    ours, theirs = multiprocessing.Pipe()
    worker = multiprocessing.get_context("fork").Process(target=outlive)
    worker.start()
    assert ours.recv() == "ready"
    recording.close()
    ours.send("go on")
    assert ours.recv() is True
    worker.join()
    assert worker.exitcode == 0


@pytest.mark.parametrize("inner_first", [True, False])
def test_children_write_to_the_newest_of_two(recording: SpanFolder, tmp_path: Path, inner_first: bool) -> None:
    work("before")
    with closing(SpanFolder(tmp_path)) as inner:
        inner.start()
        inner.switch(True)
        work("within")
        assert in_child(work) == 0
        assert names(recording) == ["before"]
        assert sorted(names(inner)) == ["read", "within"]  # process numbers begin again at some time
        first, last = (inner, recording) if inner_first else (recording, inner)
        first.close()
        work("between")
        assert "between" in names(last)
        last.close()
        assert spans.FOLDER not in os.environ
        assert list(tmp_path.iterdir()) == []


def test_what_ended_threads_left_goes_when_recording_begins_again(recording: SpanFolder, tmp_path: Path) -> None:
    work("alive")
    in_thread(lambda: work("ended"), "ended")
    assert in_child(work) == 0
    recording.switch(False)
    assert sorted(names(recording)) == ["alive", "ended", "read"]
    recording.switch(True)
    assert names(recording) == ["alive"]
    assert len(rings(tmp_path)) == 1


CHILD = """
import json, sys
from strobe.callbacks import spans
spans.join(*sys.argv[1:])
with spans.span("child", 5):
    pass
print(json.dumps([spans.folder(), sorted({"torch", "lightning", "numpy"} & set(sys.modules))]))
"""


def run_child(*arguments: str, **environment: str) -> tuple[str | None, list[str]]:
    variables = {key: value for key, value in os.environ.items() if key != spans.FOLDER} | environment
    command = [sys.executable, "-c", CHILD, *(arguments or [""])]
    output = subprocess.check_output(command, env=variables, text=True, timeout=60)
    where, heavy = json.loads(output)
    return where, heavy


def test_a_new_process_finds_the_folder_and_imports_little(recording: SpanFolder) -> None:
    where = spans.folder()
    assert where is not None
    assert run_child(**{spans.FOLDER: where}) == (where, [])
    assert run_child(where) == (where, [])  # told, as by a fork server's child
    assert run_child(where, **{spans.FOLDER: "/gone"}) == (where, [])
    assert run_child("/gone", **{spans.FOLDER: where}) == (where, [])
    assert run_child() == (None, [])
    assert names(recording) == ["child"] * 4


def test_a_training_process_stays_with_its_own_folder(recording: SpanFolder, tmp_path: Path) -> None:
    (tmp_path / "switch").write_bytes(b"\1")
    own = spans.folder()
    spans.join(str(tmp_path))
    assert spans.folder() == own
