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

from strobe.process.training import OUTPUT, train
from support.processes import living, wait_for
from support.sweeping import TINY, training_into


def meanwhile(folder: Path, act: Callable[[int], None]) -> threading.Thread:
    """Do something to the run's process as soon as it trains, or imports what it needs to."""

    def watch() -> None:
        wait_for(lambda: (folder / ".hydra").is_dir() and bool(training_into(folder)))
        act(min(training_into(folder)))

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


def test_a_wrong_value_is_its_sentence(tmp_path: Path) -> None:
    folder = tmp_path / "it's"
    ended = train(["data.batch_size=0"], folder)
    assert (ended.status, ended.folder) == ("failed", folder)
    assert ended.error == "data.batch_size=0 is out of range; it must be at least 1"
    assert ended.error in (folder / OUTPUT).read_text()


def test_hydras_error_is_told_by_its_reason(tmp_path: Path) -> None:
    assert train(["data.batchsize=1"], tmp_path).error == "Key 'batchsize' not in 'SampleConfig'"


def test_a_folder_that_cannot_be_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ended = train([], tmp_path / "file" / "run")
    assert (ended.status, ended.error) == ("failed", f"{tmp_path}/file/run: Not a directory")


def test_an_old_record_is_not_this_runs(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text('{"status": "completed"}')
    assert train(["seed=-1"], tmp_path).error == "seed=-1 is out of range; it must be at least 0 and at most 4294967295"


def test_a_killed_run_says_by_what(tmp_path: Path, sample_root: Path) -> None:
    thread = meanwhile(tmp_path, lambda pid: os.kill(pid, signal.SIGKILL))
    ended = train([*TINY, f"data.root={sample_root}"], tmp_path)
    thread.join()
    assert ended.status == "failed"
    assert ended.error is not None
    assert ended.error.startswith("its process was ended by SIGKILL, for example because memory ran out")


def test_a_run_that_takes_too_long_is_ended(tmp_path: Path, sample_root: Path) -> None:
    ended = train([*TINY, f"data.root={sample_root}", "trainer.max_epochs=-1"], tmp_path, timeout=1.5)
    assert (ended.status, ended.error) == ("failed", "it took more than 1.5 s")
    assert not training_into(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_request_to_end_ends_the_run_first(tmp_path: Path, sample_root: Path, number: signal.Signals) -> None:
    handler = signal.getsignal(number)
    begun: set[int] = set()

    def ask(pid: int) -> None:
        begun.add(pid)
        signal.pthread_kill(threading.main_thread().ident or 0, number)

    thread = meanwhile(tmp_path, ask)
    with pytest.raises(KeyboardInterrupt):
        train([*TINY, f"data.root={sample_root}", "trainer.max_epochs=-1"], tmp_path)
    thread.join()
    assert begun
    assert not living(begun)
    assert signal.getsignal(number) == handler


def test_a_request_to_end_is_heard_while_a_late_run_is_ended(tmp_path: Path) -> None:
    stopped: list[int] = []

    def request() -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    def ask_twice() -> None:
        wait_for(lambda: bool(training_into(tmp_path)))
        pid = min(training_into(tmp_path))
        os.kill(pid, signal.SIGSTOP)  # so that it does not end
        stopped.append(pid)
        asked = re.compile(r"^ShdPnd:.*[2367abef]$", re.MULTILINE)  # SIGINT waits for it
        wait_for(lambda: bool(asked.search(Path(f"/proc/{pid}/status").read_text())))
        request()
        time.sleep(0.3)
        if living({pid}):
            request()  # no more patience

    thread = threading.Thread(target=ask_twice)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        train(TINY, tmp_path, timeout=2.0)
    thread.join()
    assert stopped
    assert not living(set(stopped))


def test_the_run_ends_with_a_command_that_is_killed(tmp_path: Path, sample_root: Path) -> None:
    overrides = [*TINY, f"data.root={sample_root}", "trainer.max_epochs=-1"]
    imports = "from pathlib import Path; from strobe.process.training import train"
    code = f"{imports}; train({overrides}, Path({str(tmp_path)!r}))"
    command = subprocess.Popen([sys.executable, "-c", code])
    wait_for((tmp_path / ".hydra").is_dir)
    begun = training_into(tmp_path)
    assert begun
    command.kill()
    command.wait()
    wait_for(lambda: not living(begun))


def test_it_starts_without_torch() -> None:
    code = (
        "import sys, strobe.process.training, strobe.app.sweep.campaign, strobe.app.sweep.ending; print(*sys.modules)"
    )
    loaded = subprocess.check_output([sys.executable, "-c", code], text=True, timeout=60).split()
    assert not {"torch", "lightning", "numpy"} & set(loaded)
