"""One run in a process of its own: how it ended is told, and nothing of it is left."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from strobe.app.run import apart as training
from strobe.app.run.apart import OUTPUT, train
from support.processes import living, wait_for
from support.sweeping import training_into

# In train.py's place: trains until it is asked to end, and leaves a record then.
SCRIPT = """
import json, sys, time
from pathlib import Path
folder = Path(sys.argv[-1].partition("=")[2].strip("'"))
(folder / "trains").touch()
try:
    time.sleep(100)
except KeyboardInterrupt:
    (folder / "summary.json").write_text(json.dumps({"status": "interrupted"}))
    sys.exit(130)
"""


@pytest.fixture
def script(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("script")
    (folder / "train.py").write_text(SCRIPT)
    monkeypatch.setattr(training, "ROOT", folder)
    return folder


def meanwhile(folder: Path, act: Callable[[int], None]) -> threading.Thread:
    """Do something to the run's process as soon as it trains."""

    def watch() -> None:
        wait_for((folder / "trains").exists)
        act(min(training_into(folder)))

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


def request(number: signal.Signals = signal.SIGINT) -> None:
    signal.pthread_kill(threading.main_thread().ident or 0, number)


def test_a_wrong_value_is_its_sentence(tmp_path: Path) -> None:
    folder = tmp_path / "it's"
    folder.mkdir()
    (folder / "summary.json").write_text('{"status": "completed"}')  # of an earlier run
    ended = train(["data.batch_size=0"], folder)
    assert (ended.status, ended.folder) == ("failed", folder)
    assert ended.error == "data.batch_size=0 is out of range; it must be at least 1"
    assert ended.error in (folder / OUTPUT).read_text()


def test_a_mistake_is_told_by_its_sentence(tmp_path: Path) -> None:
    assert train(["data.batchsize=1"], tmp_path).error.startswith("data.batchsize is not a key; did you mean")


def test_a_folder_that_cannot_be_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ended = train([], tmp_path / "file" / "run")
    assert (ended.status, ended.error) == ("failed", f"{tmp_path}/file/run: Not a directory")


@pytest.mark.usefixtures("script")
def test_a_killed_run_says_by_what(tmp_path: Path) -> None:
    thread = meanwhile(tmp_path, lambda pid: os.kill(pid, signal.SIGKILL))
    ended = train([], tmp_path)
    thread.join()
    assert ended.status == "failed"
    assert ended.error == "its process was ended by SIGKILL, for example because memory ran out"


@pytest.mark.usefixtures("script")
def test_a_run_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    ended = train([], tmp_path, timeout=0.5)
    assert (ended.status, ended.error) == ("failed", "it took more than 0.5 s")
    assert not training_into(tmp_path)


@pytest.mark.usefixtures("script")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_request_to_end_ends_the_run_first(tmp_path: Path, number: signal.Signals) -> None:
    handler = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
    signal.signal(number, handler)  # whatever these tests were started from
    begun: set[int] = set()
    thread = meanwhile(tmp_path, lambda pid: (begun.add(pid), request(number))[0])
    with pytest.raises(KeyboardInterrupt):
        train([], tmp_path)
    thread.join()
    assert begun
    assert not living(begun)
    assert "interrupted" in (tmp_path / "summary.json").read_text()
    assert signal.getsignal(number) == handler


@pytest.mark.usefixtures("script")
def test_a_request_to_end_is_heard_while_a_late_run_is_ended(tmp_path: Path) -> None:
    stopped: list[int] = []

    def ask_twice(pid: int) -> None:
        os.kill(pid, signal.SIGSTOP)  # so that it does not end
        stopped.append(pid)
        asked = re.compile(r"^ShdPnd:.*[2367abef]$", re.MULTILINE)  # SIGINT waits for it
        wait_for(lambda: bool(asked.search(Path(f"/proc/{pid}/status").read_text())))
        request()
        time.sleep(0.3)
        if living({pid}):
            request()  # no more patience

    thread = meanwhile(tmp_path, ask_twice)
    with pytest.raises(KeyboardInterrupt):
        train([], tmp_path, timeout=2.4)
    thread.join()
    assert stopped
    assert not living(set(stopped))


def test_the_run_ends_with_a_command_that_is_killed(script: Path, tmp_path: Path) -> None:
    code = f"""
from pathlib import Path
from strobe.app.run import apart as training
training.ROOT = Path({str(script)!r})
training.train([], Path({str(tmp_path)!r}))
"""
    command = subprocess.Popen([sys.executable, "-c", code])
    wait_for((tmp_path / "trains").exists)
    begun = training_into(tmp_path)
    assert begun
    command.kill()
    command.wait()
    wait_for(lambda: not living(begun))
