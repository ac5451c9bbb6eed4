"""What is said of a request to end."""

import math
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from lightning.pytorch.utilities.exceptions import SIGTERMException

from strobe.process.signals import AskedToEnd, exit_code, interruptible, requests, what_ended


def lightnings(cause: BaseException) -> SystemExit:
    """What Lightning makes of Ctrl-C."""
    error = SystemExit(1)
    error.__context__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (KeyboardInterrupt(), 130, "It was ended by Ctrl-C."),
        (lightnings(KeyboardInterrupt()), 130, "It was ended by Ctrl-C."),
        (lightnings(KeyboardInterrupt(signal.SIGHUP)), 129, "It was ended by SIGHUP: its terminal was closed."),
        (AskedToEnd(signal.SIGTERM), 143, "It was ended by SIGTERM, which SLURM, kill and timeout send."),
        (SIGTERMException(), 143, "It was ended by SIGTERM, which SLURM, kill and timeout send."),
        (KeyboardInterrupt(signal.SIGUSR1), 138, "It was ended by signal 10."),
        (SystemExit(3), 3, "It ended itself: sys.exit(3)."),
        (SystemExit("enough"), 1, "It ended itself: sys.exit('enough')."),
        (SystemExit(), 0, "It ended itself: sys.exit(None)."),
        (ValueError("3"), 130, None),
    ],
)
def test_who_or_what_ended_it(error: BaseException, code: int, said: str | None) -> None:
    assert exit_code(error) == code
    assert what_ended(error) == said


def send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


def test_a_request_is_at_once_or_waits_until_somebody_looks() -> None:
    with requests() as asked:
        with pytest.raises(KeyboardInterrupt) as at_once:
            send(signal.SIGHUP)
        assert (at_once.value.args, asked.number) == ((signal.SIGHUP,), signal.SIGHUP)
        send(signal.SIGTERM)  # while it ends
    with requests() as asked:
        asked.check()
        asked.patience = math.inf
        send(signal.SIGINT)
        send(signal.SIGHUP)
        with pytest.raises(AskedToEnd) as ended:
            asked.check()
        assert ended.value.code == 130
        with pytest.raises(KeyboardInterrupt):  # no more patience
            send(signal.SIGINT)


def test_patience_ends_when_somebody_has_looked() -> None:
    """What a process does about a request may take longer, and is not broken off."""
    with requests() as asked:
        asked.watch(lambda _: None)
        asked.patience = 0.5  # within which a busy machine gets to look
        send(signal.SIGTERM)
        with pytest.raises(AskedToEnd):
            asked.check()
        time.sleep(1)


def test_what_the_caller_ignores_is_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with requests() as asked, interruptible():
        send(signal.SIGHUP)
    assert asked.number is None


def test_one_that_came_elsewhere_is_heard() -> None:
    with requests() as asked:
        asked.watch(lambda _: None, lambda number: number or signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt) as ended:
            time.sleep(60)
    assert exit_code(ended.value) == 143


def test_whoever_looks_has_ended_when_the_block_ends() -> None:
    """Python must not end before it: in a library of C++ it would abort the process."""
    looking, looked = threading.Event(), list[bool]()

    def look(number: int | None) -> int | None:
        looking.set()
        time.sleep(0.1)
        looked.append(True)
        return number

    with requests() as asked:
        asked.watch(lambda _: None, look)
        assert looking.wait(30)
    assert looked
    assert "requests to end" not in [thread.name for thread in threading.enumerate()]


# Its main thread never looks. A child of it holds the output open.
BUSY = """
import math, multiprocessing, os, signal, sys, time
from strobe.process.signals import requests

patience, deadline = map(float, sys.argv[1:3])
look = (lambda number: time.sleep(100)) if "stuck" in sys.argv else None
with requests() as asked:
    asked.watch(lambda number: print("the last words after", number, flush=True), look, deadline)
    asked.patience = patience
    multiprocessing.get_context("fork").Process(target=time.sleep, args=(100,), daemon=True).start()
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(100)
    except KeyboardInterrupt:
        sys.exit("broken off")
"""


@pytest.mark.parametrize("others", ["silent", "stuck"])  # or whoever asks them waits for ever
@pytest.mark.parametrize(
    ("patience", "deadline", "code", "said"),
    [(0.1, 60.0, 1, "broken off\n"), (math.inf, 1.0, 143, "the last words after 15\n")],
)
def test_a_process_that_does_not_look_ends_all_the_same(
    patience: float, deadline: float, code: int, said: str, others: str
) -> None:
    given = [sys.executable, "-c", BUSY, str(patience), str(deadline), others]
    told = subprocess.run(given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=50, check=False)
    assert (told.returncode, told.stdout) == (code, said)


LOST = """
import time, weakref
from strobe.process.signals import listen

class Callback:
    pass

def ask(_):
    import os, signal
    os.kill(os.getpid(), signal.SIGTERM)

listen()
thing = Callback()
reference = weakref.ref(thing, ask)
del thing
time.sleep(30)
"""


def test_a_request_in_a_callback_that_forgets_errors_is_heard() -> None:
    """As the importer of Python has them: it would print a traceback and go on."""
    found = subprocess.run([sys.executable, "-c", LOST], capture_output=True, text=True, timeout=60, check=False)
    assert (found.returncode, found.stderr) == (143, "")


AT_THE_END = """
import os, signal, sys
from strobe.process.signals import listen, over

class Last:
    def __del__(self, kill=os.kill, own=os.getpid(), number=int(sys.argv[1])):
        kill(own, number)

listen()
over()
last = Last()  # goes with this module, when Python hears no signals any more
sys.exit(3)
"""


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, -signal.SIGINT), (signal.SIGTERM, 3), (signal.SIGHUP, 3), (signal.SIGUSR1, 3)],
)
def test_when_nothing_is_left_to_do_only_ctrl_c_changes_the_exit_code(number: signal.Signals, code: int) -> None:
    """A process that hangs there can be ended."""
    command = [sys.executable, "-c", AT_THE_END, str(int(number))]
    variables = os.environ | {"SLURM_JOB_ID": "7"}
    ended = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (code, "")


@pytest.mark.parametrize("job", [True, False])
def test_slurms_signal_ends_no_command_and_reaches_a_training(job: bool) -> None:
    script = (
        "import os, signal\nfrom strobe.process.signals import answer_slurm, listen\nlisten()\n"
        "os.kill(os.getpid(), signal.SIGUSR1)\nanswer_slurm(lambda number, _: print('heard', number))\n"
        "os.kill(os.getpid(), signal.SIGUSR1)"
    )
    variables = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
    variables |= {"SLURM_JOB_ID": "7"} if job else {}
    command = [sys.executable, "-c", script]
    ended = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == ((0, "heard 10\nheard 10\n") if job else (-signal.SIGUSR1, ""))
