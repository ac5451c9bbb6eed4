"""Requests to end: Ctrl-C, a scheduler's SIGTERM, and SIGHUP when a terminal is closed.

A request that the caller ignores, as under nohup and in a shell's background commands, is
ignored here too. Other threads than the main one cannot have handlers, so nothing changes there.
"""

import atexit
import contextlib
import math
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Any

REQUESTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
DEADLINE = 20.0  # seconds after a request in which a process ends by itself
LAST = 5.0  # seconds for its last words, if it did not
EVERY = 0.25  # seconds between two looks at what others say
_TOLD: dict[int, str] = {
    signal.SIGINT: "It was ended by Ctrl-C.",
    signal.SIGTERM: "It was ended by SIGTERM, which SLURM, kill and timeout send.",
    signal.SIGHUP: "It was ended by SIGHUP: its terminal was closed.",
}
_early: list[int] = []  # that :func:`listen` heard
_answers: list[Callable[[int, FrameType | None], object]] = []  # of the latest training, to SLURM's SIGUSR1
_unanswered: list[int] = []
_wakes: set[int] = set()  # the files of this process to which signals are written
_starter = os.getppid()


class AskedToEnd(SystemExit):
    """A request to end, raised where it does no harm. Lightning would kill other ranks for a ``KeyboardInterrupt``."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.number = number


def listen() -> None:
    """For the first line of a command, before it imports libraries.

    From here on a request raises ``KeyboardInterrupt(number)``, which ends the command without a traceback; its exit
    code is 128 and the number. SLURM's SIGUSR1, by which it asks a training to save, ends no command.
    """
    _early.clear()
    if "SLURM_JOB_ID" in os.environ and signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL:
        signal.signal(signal.SIGUSR1, _answer)  # Lightning then leaves the signal to it
    for number in REQUESTS:
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, _hear)
    sys.excepthook = _without_traceback
    sys.unraisablehook = _again


def heard() -> int | None:
    """The number of the first request that came since :func:`listen`: what fails after it may be its consequence."""
    return _early[0] if _early else None


def answer_slurm(answer: Callable[[int, FrameType | None], object]) -> None:
    """Let ``answer(number, frame)`` be called for SLURM's SIGUSR1, until :func:`forget_slurm`.

    Also for one that :func:`listen` has heard before.
    """
    _answers[:] = [answer]
    while _unanswered:
        answer(_unanswered.pop(), None)


def forget_slurm() -> None:
    """Keep SLURM's SIGUSR1 for the next training."""
    _answers.clear()


def _answer(number: int, frame: FrameType | None) -> None:
    for answer in _answers:
        answer(number, frame)
    if not _answers:
        _unanswered[:] = [number]


def over() -> None:
    """For a command's last line: a request ends it while libraries clean up, who print errors and forget them."""
    for number in REQUESTS:
        if signal.getsignal(number) is _hear and threading.current_thread() is threading.main_thread():
            signal.signal(number, _leave)


def _hear_no_more() -> None:
    """A request changes no exit code once nothing is left to do; but Ctrl-C still ends a process that hangs there."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        if signal.getsignal(number) in (_hear, _leave, _answer):
            signal.signal(number, signal.SIG_IGN)


def _hear(number: int, _: FrameType | None) -> None:
    _early.append(number)
    _tell_starter(number)
    raise KeyboardInterrupt(number)


def _tell_starter(number: int) -> None:
    """Let the first rank, which started this one and may wait for it to join, hear of a request that came only here."""
    if os.environ.get("LOCAL_RANK", "0") != "0" and os.getppid() == _starter:
        os.kill(_starter, number)


def _leave(number: int, _: FrameType | None) -> None:
    _last_words(lambda _: None, number)
    _end_children()
    os._exit(128 + number)


def _last_words(late: Callable[[int], None], number: int) -> None:
    with contextlib.suppress(Exception):
        late(number)
        sys.stdout.flush()


def _without_traceback(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if isinstance(error, KeyboardInterrupt):
        sys.exit(exit_code(error))
    if (number := heard()) is not None:  # within an import, say, which left a library half imported
        sys.exit(128 + number)
    sys.__excepthook__(kind, error, trace)


def _again(lost: "sys.UnraisableHookArgs") -> None:
    """Send a request again that came in a place where Python forgets errors, such as a callback of its importer."""
    if not isinstance(lost.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(lost)
        return
    again = threading.Timer(EVERY, os.kill, (os.getpid(), exit_code(lost.exc_value) - 128))
    again.daemon = True
    again.start()


class Requests:
    """Requests to end a process, from the main thread's :func:`requests` on.

    Attributes:
        number: of the first one; None so far.
        patience: seconds for which a request waits for somebody to look at ``number``; then, and with 0, it raises
            ``KeyboardInterrupt(number)`` wherever the main thread is. Ctrl-C a second time waits for nobody.

    Args:
        heeds: whether a signal that has come is a request, also where Python gets to no handler of it.
    """

    def __init__(self, heeds: Callable[[int], bool] = REQUESTS.__contains__) -> None:
        self._heeds = heeds
        self.number: int | None = None
        self.patience = 0.0
        self._asked: int | None = None  # as the threads know it, where the main one is stuck
        self._write = -1
        self._writes, self._looking, self._over = threading.Lock(), threading.Lock(), threading.Event()
        self._threads: list[threading.Thread] = []

    def hear(self, number: int, _: FrameType | None) -> None:
        """A signal's handler."""
        again = self.number is not None
        self.number = self.number or number
        self._asked = self._asked or number
        if self._write >= 0:
            os.write(self._write, b"\0")
        if number == signal.SIGINT if again else not self.patience:
            _tell_starter(number)
            raise KeyboardInterrupt(number)

    def check(self) -> None:
        """Raise :class:`AskedToEnd` if there was one; nothing interrupts what the process does about it."""
        with self._looking:
            if (number := self.number) is None:
                return
            self.patience = math.inf
        raise AskedToEnd(number)

    def watch(
        self,
        late: Callable[[int], None],
        look: Callable[[int | None], int | None] | None = None,
        deadline: float = DEADLINE,
    ) -> None:
        """From here on end this process ``deadline`` seconds after a request, whatever its main thread waits for.

        ``late(number)`` is called just before that. Another thread calls ``look(number)`` several times a second, with
        the request's number, or None so far; it returns the number, or that of a request which another process got. It
        may wait for others as long as it likes: the deadline does not wait for it.
        """
        pipe, self._write = os.pipe()
        os.set_blocking(self._write, False)
        if _exchange_wakeup(-1, self._write):
            _wakes.add(self._write)
        self._begin(self._watch, pipe, late, deadline)
        if look is not None:
            self._begin(self._look, look)

    def close(self) -> None:
        """End what :meth:`watch` began.

        ``look`` may be in a library of C++, where a thread that is still there when Python has ended aborts the process
        ("terminate called without an active exception").
        """
        self._over.set()
        if self._write >= 0:
            _exchange_wakeup(self._write, -1)
            _wakes.discard(self._write)
            with self._writes:
                write, self._write = self._write, -1
                os.close(write)  # which the thread that waits for it reads as its end
        for thread in self._threads:
            thread.join(LAST)

    def _begin(self, work: Callable[..., None], *given: Any) -> None:
        self._threads.append(thread := threading.Thread(target=work, args=given, daemon=True, name="requests to end"))
        thread.start()

    def _look(self, look: Callable[[int | None], int | None]) -> None:
        while not self._over.wait(EVERY):
            if (told := look(self._asked)) is not None and self._asked is None:
                self._pass_on(told)
                with self._writes:
                    if self._write >= 0:
                        os.write(self._write, bytes([told]))

    def _watch(self, pipe: int, late: Callable[[int], None], deadline: float) -> None:
        self._asked, since = self.number, math.inf
        ready = select.poll()  # not select(), which knows no descriptor above 1023
        ready.register(pipe, select.POLLIN)
        while time.monotonic() - since < deadline:
            if ready.poll(None if self._asked is None else EVERY * 1000):
                if not (came := os.read(pipe, 64)):
                    os.close(pipe)
                    return
                self._asked = self._asked or next(filter(self._heeds, came), None)
            if self._asked is None:
                continue
            since = min(since, time.monotonic())
            with self._looking:
                if self.patience and time.monotonic() - since > self.patience:
                    self.number, self.patience = None, 0.0
                    self._pass_on(self._asked)
        number = self._asked or 0
        last = threading.Thread(target=_last_words, args=(late, number), daemon=True)
        last.start()
        last.join(LAST)
        _end_children()
        os._exit(128 + number)

    def _pass_on(self, number: int) -> None:
        """Let the main thread know of a request that it did not get."""
        if self.patience:
            self.number = self.number or number
        elif self.number is None:
            signal.pthread_kill(threading.main_thread().ident or 0, number)


@contextlib.contextmanager
def postponed(number: signal.Signals) -> Iterator[None]:
    """Let a signal's handler wait for the end of the block; what ends that early is enough to be handled."""
    came: list[tuple[int, FrameType | None]] = []
    handler = signal.getsignal(number)
    with _handled([number] if callable(handler) else [], lambda *given: came.append(given)):
        yield
    if came and callable(handler):
        handler(*came[-1])


def is_of_handler(error: BaseException) -> bool:
    """Whether an error was raised by a signal's handler, which may have interrupted whatever code."""
    import traceback

    handlers = [one for one in map(signal.getsignal, signal.valid_signals()) if callable(one)]
    codes = {getattr(each, "__code__", None) for one in handlers for each in (one, type(one).__call__)}
    return any(frame.f_code in codes for frame, _ in traceback.walk_tb(error.__traceback__))


def _exchange_wakeup(old: int, new: int) -> bool:
    """Let signals be written to another file, if it is this one so far, and nobody else's, such as asyncio's."""
    if (found := signal.set_wakeup_fd(new, warn_on_full_buffer=False)) != old:
        signal.set_wakeup_fd(found)
    return found == old


@contextlib.contextmanager
def requests() -> Iterator[Requests]:
    """Hear of requests within the block; raises ``KeyboardInterrupt`` if one came before that was lost."""
    if _early:  # and some library's `except` swallowed it
        raise KeyboardInterrupt(_early[0])
    found = Requests()
    with _handled(_heeded(), found.hear):
        try:
            yield found
        finally:
            found.close()


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Let requests to end raise ``KeyboardInterrupt(number)`` within the block, so cleanup runs.

    The caller's own handlers stay, such as Python's for Ctrl-C.
    """

    def interrupt(number: int, _: FrameType | None) -> None:
        raise KeyboardInterrupt(number)

    with _handled([number for number in REQUESTS if signal.getsignal(number) == signal.SIG_DFL], interrupt):
        yield


@contextlib.contextmanager
def noted() -> Iterator[list[int]]:
    """Note the numbers of requests to end without interrupting the block."""
    came: list[int] = []
    with _handled(_heeded(), lambda number, _: came.append(number)):
        yield came


def exit_code(interrupt: BaseException) -> int:
    """A shell's exit code for a command that ended this way: 130 after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP.

    That of a ``sys.exit`` which nobody asked for is its own; 1 for a text.
    """
    if (number := _request(interrupt)) is None and isinstance(interrupt, SystemExit):
        return interrupt.code if isinstance(interrupt.code, int) else int(interrupt.code is not None)
    return 128 + (number or signal.SIGINT)


def what_ended(error: BaseException) -> str | None:
    """Who or what asked a training to end, in a sentence; None for any other error."""
    if (number := _request(error)) is not None:
        return _TOLD.get(number, f"It was ended by signal {number}.")
    return f"It ended itself: sys.exit({error.code!r})." if isinstance(error, SystemExit) else None


def _request(error: BaseException) -> int | None:
    """The number of the signal by which a training was asked to end; None if it was not."""
    if isinstance(error, AskedToEnd):
        return error.number
    if type(error).__name__ == "SIGTERMException":  # of either Lightning
        return int(signal.SIGTERM)
    if isinstance(error, SystemExit) and error.__context__ is not None:  # Lightning's
        error = error.__context__
    if not isinstance(error, KeyboardInterrupt):
        return None
    return int(error.args[0]) if error.args and isinstance(error.args[0], int) else int(signal.SIGINT)


def _heeded() -> list[signal.Signals]:
    """The requests that this process does not ignore."""
    return [number for number in REQUESTS if signal.getsignal(number) not in (signal.SIG_IGN, None)]


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


def _in_child() -> None:
    """A child that was forked is ended by its parent, which may need it for the step that it ends first."""
    for wakes in _wakes:
        _exchange_wakeup(wakes, -1)
    numbers = _heeded()
    if any(getattr(signal.getsignal(number), "__module__", None) == __name__ for number in numbers):
        for number in numbers:
            signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else signal.SIG_IGN)


os.register_at_fork(after_in_child=_in_child)
atexit.register(_hear_no_more)  # before libraries register theirs, as the first one is called last


def _end_children() -> None:
    """Kill the loader workers of this process, which would live on for seconds."""
    from multiprocessing import active_children

    for child in active_children():
        child.kill()
