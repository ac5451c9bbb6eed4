"""Requests to end: Ctrl-C, a scheduler's SIGTERM, and SIGHUP when a terminal is closed.

A request that the caller ignores, as under nohup and in a shell's background commands, is
ignored here too. Other threads than the main one cannot have handlers, so nothing changes there.
"""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

REQUESTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_TOLD: dict[int, str] = {
    signal.SIGINT: "It was ended by Ctrl-C.",
    signal.SIGTERM: "It was ended by SIGTERM, which SLURM, kill and timeout send.",
    signal.SIGHUP: "It was ended by SIGHUP: its terminal was closed.",
}


@contextlib.contextmanager
def interruptible(*numbers: signal.Signals) -> Iterator[None]:
    """Let these signals, or all requests to end, raise ``KeyboardInterrupt(number)`` within the block, so cleanup runs.

    The caller's own handlers stay, such as Python's for Ctrl-C.
    """

    def interrupt(number: int, _: FrameType | None) -> None:
        raise KeyboardInterrupt(number)

    taken = [number for number in numbers or REQUESTS if signal.getsignal(number) == signal.SIG_DFL]
    with _handled(taken, interrupt):
        yield


@contextlib.contextmanager
def noted() -> Iterator[list[int]]:
    """Note the numbers of requests to end without interrupting the block."""
    came: list[int] = []
    heard = [number for number in REQUESTS if signal.getsignal(number) not in (signal.SIG_IGN, None)]
    with _handled(heard, lambda number, _: came.append(number)):
        yield came


@contextlib.contextmanager
def lightnings_interrupt() -> Iterator[None]:
    """Let Ctrl-C in a Lightning training raise ``KeyboardInterrupt``, and work again afterwards.

    Lightning turns it into ``SystemExit``, and ignores it from then on.
    """
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    except SystemExit as error:
        if isinstance(error.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt(*error.__context__.args) from None
        raise
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)


def exit_code(interrupt: BaseException) -> int:
    """A shell's exit code for a command that ended this way: 130 after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP."""
    return 128 + (_request(interrupt) or signal.SIGINT)


def what_ended(error: BaseException) -> str | None:
    """Who or what asked a training to end, in a sentence; None for any other error."""
    if (number := _request(error)) is not None:
        return _TOLD.get(number, f"It was ended by signal {number}.")
    return f"It ended itself: sys.exit({error.code!r})." if isinstance(error, SystemExit) else None


def _request(error: BaseException) -> int | None:
    """The number of the signal by which a training was asked to end; None if it was not."""
    if type(error).__name__ == "SIGTERMException":  # of either Lightning
        return int(signal.SIGTERM)
    if isinstance(error, SystemExit) and error.__context__ is not None:  # Lightning's
        error = error.__context__
    if not isinstance(error, KeyboardInterrupt):
        return None
    return int(error.args[0]) if error.args and isinstance(error.args[0], int) else int(signal.SIGINT)


@contextlib.contextmanager
def _handled(numbers: list[signal.Signals], handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        numbers = []
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
