"""Requests to end, which all come as a ``KeyboardInterrupt``."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

REQUESTS = (signal.SIGTERM, signal.SIGHUP)  # beside Ctrl-C: of a system, a scheduler, a terminal that is closed


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Let a request to end raise ``KeyboardInterrupt(its number)`` within the block, so that nothing is left behind.

    What the caller has decided about a signal stays: to ignore it, as nohup does, or a handler of its own.
    """
    taken = []
    if threading.current_thread() is threading.main_thread():  # others cannot have handlers
        taken = [number for number in REQUESTS if signal.getsignal(number) == signal.SIG_DFL]
    for number in taken:
        signal.signal(number, _interrupt)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def exit_code(interrupt: KeyboardInterrupt) -> int:
    """What a shell shows for a command that ended so: 130 after Ctrl-C, 143 after SIGTERM."""
    number = interrupt.args[0] if interrupt.args else signal.SIGINT
    return 128 + int(number)


def _interrupt(number: int, _: FrameType | None) -> None:
    raise KeyboardInterrupt(number)
