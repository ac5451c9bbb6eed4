"""Fresh processes for cells, forked from a server that has imported libraries and done nothing else."""

import contextlib
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from multiprocessing import connection, get_context, resource_tracker
from pathlib import Path
from typing import Any

from strobe.bench.harness.declare import Cell, Visit
from strobe.bench.harness.visit import LOG, Failure, Report, attend
from strobe.errors import ConfigError

LONGEST = 70  # characters: multiprocessing adds 32, and unix(7) allows 107
PATIENCE = 10.0  # seconds for a process that has told its result to end by itself
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # with which a user, the system or a terminal ends a command
PRELOADED = ["strobe.bench.harness.preload"]


def visit_cell(cell: Cell, visit: Visit, *, turn: float, timeout: float) -> Report | Failure:
    """Measure a cell in a process of its own, and leave no process behind, also not on Ctrl-C."""
    visit.folder.mkdir(parents=True, exist_ok=True)
    try:
        outcome = in_fresh_process(attend, cell, visit, turn, timeout=timeout)
    finally:
        _tidy(visit.folder)
    if isinstance(outcome, Failure):
        return outcome
    assert isinstance(outcome, Report)
    return outcome


def in_fresh_process(body: Callable[..., None], *arguments: Any, timeout: float) -> Any:
    """What ``body(pipe, *arguments)`` sends; a Failure if it sends nothing in time. It must make itself a session."""
    if len(tempfile.gettempdir()) > LONGEST:
        raise ConfigError(
            f"TMPDIR={tempfile.gettempdir()} is longer than {LONGEST} characters, so that no socket can lie below it; "
            "set TMPDIR to a shorter path"
        )
    context = get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=body, args=(theirs, *arguments))
    try:
        with _uninterrupted():  # else the server would have begun a process of which nobody knows
            process.start()
        theirs.close()
        assert process.pid is not None
        ready = connection.wait([ours, process.sentinel], timeout)
        if not ready:
            return Failure(f"it took more than {timeout:.0f} s; timeout_seconds=N waits longer")
        if process.sentinel in ready:  # what it has started could hold the pipe open, and let us wait for ever
            _end_session(process.pid)
        if ours.poll():
            with contextlib.suppress(EOFError, OSError):  # it died before its message was whole
                outcome = ours.recv()
                process.join(PATIENCE)
                return outcome
        process.join(PATIENCE)
        return Failure(_ending(process.exitcode))
    finally:
        if process.pid is not None:
            _end_session(process.pid)
            if process.is_alive():  # before it made itself a session
                process.kill()
            process.join()
        process.close()
        ours.close()


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Put the command's end off until that of the block; processes begun in it never see Ctrl-C.

    A terminal sends Ctrl-C to each process of the command: the server and the cells would answer with tracebacks. They
    inherit that it is blocked, and are ended by this process. The resource tracker unblocks it when it begins, so that
    it must have begun before.
    """
    came: list[int] = []
    resource_tracker.ensure_running()
    before = {number: signal.signal(number, lambda one, _: came.append(one)) for number in ENDING}
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])


def _ending(code: int | None) -> str:
    if code is not None and code < 0:
        cause = ", for example because memory ran out" if -code == signal.SIGKILL else ""
        return f"its process was ended by {signal.Signals(-code).name}{cause}"
    return f"its process ended with code {code} and told no result"


def _end_session(pid: int) -> None:
    """Kill what a process has started, and itself if it is still there."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _tidy(folder: Path) -> None:
    """Remove what is empty of what a visit has left."""
    log = folder / LOG
    if log.is_file() and not log.stat().st_size:
        log.unlink()
    with contextlib.suppress(OSError):
        folder.rmdir()
