"""Fresh processes, forked from a server that has only imported libraries."""

import contextlib
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import connection, get_context, resource_tracker, set_start_method
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

from strobe.errors import ConfigError
from strobe.process.signals import noted

LONGEST = 70  # characters: multiprocessing adds 32, and unix(7) allows 107
PATIENCE = 10.0  # seconds for a process to end by itself after its result
GONE = 30.0  # seconds until killed processes are gone, unless a driver holds them
TAIL = 1 << 16  # bytes at the end of the output to search for its last line
TOLD = 500  # characters of it
TRAILING = re.compile(
    r"\s|object_type=|Config search path:|Set the environment variable HYDRA_FULL_ERROR"
)  # below Hydra's own errors
COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
FOR_MEMORY = (signal.SIGKILL, signal.SIGBUS)  # signals that end a process when memory, or shared memory, runs out
# torch's words on a GPU's and on this machine's memory, and this project's on it and on what workers pass batches by
MEMORY = re.compile(
    r"out of memory|allocate memory|not enough memory|ALLOC_FAILED|MemoryError|/dev/shm|often memory ran out|"
    r"engine=resident does not fit",
    re.IGNORECASE,
)
BEGIN = None  # the first message to each process, and from a guard


@dataclass(frozen=True)
class Failure:
    """Why a process gave no result."""

    reason: str  # one sentence
    memory: bool = False  # whether memory ran out: a limit, not a mistake


class FreshProcess:
    """A process that runs ``body(pipe, *arguments)`` as the leader of its own session; a context manager.

    Both ends of the pipe send and receive. Ctrl-C in a terminal does not reach it: :meth:`close` ends it. A
    guarded process and its session also end when this process ends in any way, SIGKILL included, even while it is
    paused: a second process waits for that.

    Args:
        body: a function at module level.
        arguments: picklable.
        preload: modules that the server imports, if this is the first process that it forks.

    Raises:
        ConfigError: ``TMPDIR`` is too long for a socket.
    """

    def __init__(
        self, body: Callable[..., None], *arguments: Any, preload: Sequence[str] = (), guarded: bool = False
    ) -> None:
        self._guard: FreshProcess | None = None
        context = get_context("forkserver")
        context.set_forkserver_preload(list(preload))
        self.pipe, theirs = context.Pipe()
        self._process = context.Process(target=_lead, args=(body, theirs, *arguments))
        try:
            if len(folder := tempfile.gettempdir()) > LONGEST:
                raise ConfigError(
                    f"TMPDIR={folder} is longer than {LONGEST} characters, which is too long for a socket; "
                    "set TMPDIR to a shorter path"
                )
            with _uninterrupted():  # otherwise the server could start a process that nobody knows of
                if guarded:
                    self._guard = FreshProcess(_guard, preload=preload)
                    self._guard.pipe.recv()  # it leads its session, so killing the command's group spares it
                self._process.start()
                assert self._process.pid is not None
                self.pid = self._process.pid
                if self._guard is not None:
                    self._guard.pipe.send(self.pid)
                self.pipe.send(BEGIN)
        except BaseException:
            self.close()
            raise
        finally:
            theirs.close()

    def receive(self, timeout: float, *, remedy: str = "") -> Any:
        """The next thing it sends, within ``timeout`` seconds; else a :class:`Failure`, which may name a ``remedy``."""
        ready = connection.wait([self.pipe, self._process.sentinel], timeout)
        if not ready:
            return Failure(f"it took more than {timeout:.0f} s{remedy and f'; {remedy}'}")
        if self._process.sentinel in ready:  # its children could hold the pipe open, and make us wait forever
            end_session(self.pid)
        if self.pipe.poll():
            with contextlib.suppress(EOFError, OSError):  # it died before its message was whole
                return self.pipe.recv()
        self._process.join(PATIENCE)
        code = self._process.exitcode
        return Failure(ending(code), memory=code is not None and -code in FOR_MEMORY)

    def pause(self) -> None:
        """Pause its whole session, with all threads and processes."""
        _signal_session(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Resume its session."""
        _signal_session(self.pid, signal.SIGCONT)

    def join(self, seconds: float) -> None:
        """Wait at most so many seconds for it to end by itself."""
        self._process.join(seconds)

    def close(self) -> None:
        """End its session, paused or not, and wait until nothing of it is left. A second call does nothing."""
        if self.pipe.closed:
            return
        if self._process.pid is not None:
            if self._process.is_alive():  # perhaps it has not made itself a session yet
                self._process.kill()
            end_session(self._process.pid)
            self._process.join()
        self._process.close()
        self.pipe.close()
        if self._guard is not None:
            self._guard.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def in_fresh_process(body: Callable[..., None], *arguments: Any, timeout: float, preload: Sequence[str] = ()) -> Any:
    """What ``body(pipe, *arguments)`` sends from a fresh process; a Failure if nothing comes in ``timeout`` seconds."""
    with FreshProcess(body, *arguments, preload=preload) as process:
        outcome = process.receive(timeout, remedy="timeout_seconds=N waits longer")
        process.join(PATIENCE if not isinstance(outcome, Failure) else 0)
        return outcome


def print_into(path: Path) -> None:
    """Redirect the output of this process, and of those it starts, to a file; their input is empty."""
    sys.stdout.flush()
    sys.stderr.flush()
    with path.open("ab") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    with contextlib.suppress(OSError):
        os.close(0)
    os.set_inheritable(os.open(os.devnull, os.O_RDONLY), True)  # by a program that takes this process's place, too


def last_said(output: Path) -> str:
    """The last meaningful line that a process printed into a file; empty if there is none."""
    lines = reversed(last_lines(output))
    return next((line.strip()[:TOLD] for line in lines if not TRAILING.match(line)), "")


def last_lines(output: Path) -> list[str]:
    """The end of what a process printed into a file: some lines, without empty ones."""
    with contextlib.suppress(OSError), output.open("rb") as file:
        file.seek(max(0, output.stat().st_size - TAIL))
        lines = COLOURS.sub("", file.read().decode(errors="replace")).splitlines()
        return [line.rstrip() for line in lines if line.strip()]
    return []


def members(session: int) -> list[int]:
    """The processes of a session that have not ended."""
    return [pid for pid, _, its in _processes() if its == session]


def children(parent: int) -> list[int]:
    """The processes that a process has started, and that have not ended."""
    return [pid for pid, its, _ in _processes() if its == parent]


def _processes() -> Iterator[tuple[int, int, int]]:
    """All that have not ended: their number, their parent's and their session's."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has just gone
            state, parent, _, session = path.read_text().rpartition(")")[2].split()[:4]
            if state not in "ZX":
                yield int(path.parent.name), int(parent), int(session)


def memory_of(pid: int) -> int:
    """Bytes of a process's memory, of which it shares some: those in as many parts as there are users."""
    with contextlib.suppress(OSError, StopIteration):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("Pss:")).split()[1]) * 1024
    return 0


def end_session(session: int) -> None:
    """Kill all processes of a session, and wait until they are gone."""
    deadline = time.monotonic() + GONE
    while (left := members(session)) and time.monotonic() < deadline:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)


def _lead(body: Callable[..., None], pipe: Connection, *arguments: Any) -> None:
    os.setsid()  # so that this process can be ended with those it starts
    try:
        pipe.recv()  # by now its guard knows of it
    except EOFError:  # its parent has ended
        return
    set_start_method(None, force=True)  # as in train.py; otherwise loader workers come from another server
    body(pipe, *arguments)
    pipe.close()


def _guard(pipe: Connection) -> None:
    """End a session, whose number is received first, when the process at the pipe's other end has ended."""
    with contextlib.suppress(BrokenPipeError):
        pipe.send(BEGIN)
    with contextlib.suppress(EOFError):
        session = pipe.recv()
        with contextlib.suppress(EOFError):
            pipe.recv()  # nothing ever comes
        if not members(session):  # it has ended, or has not made itself a session yet
            with contextlib.suppress(ProcessLookupError):
                os.kill(session, signal.SIGKILL)
        end_session(session)


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Delay requests to end until the end of the block; processes started in it never see Ctrl-C.

    A terminal sends Ctrl-C to every process of a command, and they would print tracebacks, so they inherit a mask.
    """
    resource_tracker.ensure_running()  # it unblocks Ctrl-C when it starts
    came: list[int] = []
    try:
        with noted() as came:
            blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
            try:
                yield
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    finally:
        if came:
            signal.raise_signal(came[0])


def ending(code: int | None) -> str:
    """How a process ended, in words, from its exit code."""
    if code is not None and code < 0:
        cause = ", for example because memory ran out" if -code == signal.SIGKILL else ""
        return f"its process was ended by {signal.Signals(-code).name}{cause}"
    return f"its process ended with code {code} and left no result"


def _signal_session(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, number)
    for member in members(pid):
        with contextlib.suppress(ProcessLookupError):
            if os.getpgid(member) != pid:  # a second SIGCONT could undo a stop of the group's own
                os.kill(member, number)
