"""The folder through which loaders report: who finds it, how long it lives, and what is left of it."""

import json
import multiprocessing
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from strobe.callbacks import spans
from strobe.callbacks.spans import SpanFolder, span
from support.recording import EVER, in_child, in_thread, names, rings, work


@pytest.fixture
def recording(tmp_path: Path) -> Iterator[SpanFolder]:
    folder = SpanFolder(tmp_path)
    folder.start()
    folder.switch(True)
    yield folder
    folder.close()


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
