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
    if isinstance(interrupt, SystemExit) and interrupt.__context__ is not None:  # Lightning's
        interrupt = interrupt.__context__
    asked = isinstance(interrupt, KeyboardInterrupt) and interrupt.args
    return 128 + int(asked[0] if asked else signal.SIGINT)


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
