"""What a script does outside of its trainings: before the first one, between them, and after the last one.

Only under ``strobe run``, which sees the whole script. Its main thread is looked at from torch's import to the end.
"""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread, get_ident
from typing import TYPE_CHECKING

from strobe.attach import place
from strobe.process.output import note

if TYPE_CHECKING:
    from strobe.callbacks.frames import Line

EVERY, MOST = 0.1, 2000  # seconds between two looks; of more looks every second one is left out, and so on
NOTABLE, LEAST = 0.1, 3.0  # of the script's time, and seconds: less is not told
NAMED, SHARE = 3, 0.15  # so many calls, each with so much of that time
IMPORTING = "<frozen importlib._bootstrap>"

_trained: list[tuple[float, float]] = []  # from when to when, by time.monotonic()
_ours: list[tuple[float, float]] = []  # likewise, what Strobe does as a training begins and ends
_sampler: "StackSampler | None" = None


def trained(began: float, ended: float) -> None:
    """A training has a record from then to then."""
    _trained.append((began, ended))


@contextmanager
def own_work() -> Iterator[None]:
    """What Strobe does is no part of the script."""
    began = time.monotonic()
    try:
        yield
    finally:
        _ours.append((began, time.monotonic()))


def begin() -> None:
    """Look at the calling thread from now on."""
    global _sampler  # noqa: PLW0603  # once in a process
    _sampler = StackSampler()


def stop() -> None:
    """Look no more, as trainings follow that have no record."""
    if _sampler is not None:
        _sampler.stop()


def tell() -> None:
    """Say where that time went, unless it is short, or no training has a record."""
    try:
        if _sampler is not None and (sentence := _sampler.told()):
            note(sentence)
    except Exception as error:  # the script's exit code is its own
        place.tell(error, None)


class StackSampler:
    """Samples the stack of the thread that creates it, until ``stop`` or ``told`` is called."""

    def __init__(self) -> None:
        from strobe.callbacks.frames import is_users, user_lines
        from strobe.callbacks.lines import stacks

        self._stacks, self._lines, self._own = stacks, user_lines, is_users
        self._thread, self._every, self._over = get_ident(), EVERY, Event()
        self._began = self._ended = time.monotonic()
        self._seen: list[tuple[float, tuple[Line, ...] | None]] = []  # when, and which calls; None: it imports
        Thread(target=self._look, name="strobe outside", daemon=True).start()

    def _look(self) -> None:
        while not self._over.wait(self._every):
            self._seen.append((time.monotonic(), self._calls()))
            if len(self._seen) == MOST:
                del self._seen[::2]
                self._every *= 2

    def _calls(self) -> "tuple[Line, ...] | None":
        stack = self._stacks().get(self._thread, [])  # whose frames keep objects until this returns
        inner = next((file for each in stack if (file := each.f_code.co_filename) == IMPORTING or self._own(file)), "")
        return None if inner == IMPORTING else self._lines(stack, beyond=True) or ()

    def stop(self) -> None:
        """Look no more; a second time does nothing."""
        if not self._over.is_set():
            self._over.set()
            self._ended = time.monotonic()

    def told(self) -> str:
        """A sentence on where that time went; empty if it is short."""
        self.stop()
        seen = [(at, lines) for at, lines in list(self._seen) if not _within(at, _ours)]
        apart = [lines is not None and not _within(at, _trained) for at, lines in seen]
        whole = self._ended - self._began - sum(last - first for first, last in _ours)
        seconds = whole * sum(apart) / max(1, len(seen))
        if not _trained or seconds < max(LEAST, NOTABLE * whole):
            return ""
        from strobe.callbacks.frames import located
        from strobe.callbacks.lines import own_calls
        from strobe.diagnose.looks import at_line
        from strobe.present.format import duration

        calls = Counter(own_calls([lines or () for _, lines in seen], apart))
        most = [(located(call), count / sum(apart)) for call, count in calls.most_common(NAMED) if call]
        places = [
            f"{duration(share * seconds)} {at_line(one['file'], one['line'], one['code'])}"
            for one, share in most
            if share >= SHARE
        ]
        sentence = f"Outside of training, this script spent {duration(seconds)} of {duration(whole)}"
        return f"{sentence}{': ' * bool(places)}{', '.join(places)}. The findings are about training alone."


def _within(at: float, spans: list[tuple[float, float]]) -> bool:
    return any(first <= at <= last for first, last in spans)
