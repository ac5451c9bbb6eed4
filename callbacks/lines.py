"""In which lines of the user's own code training is: the training thread's stack, looked at now and then."""

import gc
import sys
import sysconfig
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread, get_ident
from types import FrameType
from typing import Any

from .columns import COLLECTING, OWNED

EVERY = 0.05  # seconds between two looks, each of which takes some 30 microseconds from the thread that trains
MOST = 2000  # looks: of a long training its first minutes
FEWEST = 5  # looks at a line, below which it is not told
OLDEST = 2  # generation of a garbage collection: all objects
_OUTSIDE = ("/trainer/trainer.py", "/strobe/probe/loader.py")  # from here outwards nothing is training's or loading's
_INSTALLED = ("/site-packages/", "/dist-packages/")
_LIBRARIES = ("<", f"{sysconfig.get_path('stdlib')}/", f"{Path(__file__).absolute().parent.parent}/")  # the last: ours

Line = tuple[str, int, str]  # file, number, function


class Lines:
    """Looks at the stack of the thread that makes it, from another one, until ``end``.

    And where it is when Python collects garbage as a whole, which ``gc.collect()`` asks for.

    Args:
        phase: what that thread is in now, such as ``forward`` or ``callbacks/<name>``.
    """

    def __init__(self, phase: Callable[[], str]) -> None:
        self._phase, self._thread = phase, get_ident()
        self._seen, self._looks = Counter[tuple[str, Line | None]](), Counter[str]()
        self._over = Event()
        gc.callbacks.append(self._collects)
        Thread(target=self._look, name="strobe lines", daemon=True).start()

    def end(self) -> None:
        """Look no more. A second call does nothing."""
        self._over.set()
        if self._collects in gc.callbacks:
            gc.callbacks.remove(self._collects)

    def found(self) -> list[dict[str, Any]]:
        """``phase``, ``file``, ``line``, ``function`` and ``share`` of the looks at that phase; most looks first."""
        return [
            {"phase": phase, "file": line[0], "line": line[1], "function": line[2], "share": count / self._looks[phase]}
            for (phase, line), count in self._seen.most_common()
            if line and count >= FEWEST
        ]

    def _look(self) -> None:
        while not self._over.wait(EVERY) and self._looks.total() < MOST:
            self._note(self._phase(), sys._current_frames().get(self._thread))

    def _collects(self, when: str, told: dict[str, int]) -> None:
        """As ``gc.callbacks``; a collection within a callback's hook is that callback's."""
        whole = when == "start" and told["generation"] == OLDEST and get_ident() == self._thread
        if whole and not self._phase().startswith(OWNED):
            self._note(COLLECTING, sys._getframe(1))

    def _note(self, phase: str, frame: FrameType | None) -> None:
        self._looks[phase] += 1
        self._seen[phase, own_line(frame)] += 1


def own_line(frame: FrameType | None) -> Line | None:
    """The innermost line of the stack that is in no library; None where training or loading is in none."""
    found: Line | None = None
    while frame is not None:
        file = frame.f_code.co_filename
        if file.endswith(_OUTSIDE):
            break
        if found is None and not file.startswith(_LIBRARIES) and not any(part in file for part in _INSTALLED):
            found = file, frame.f_lineno, _function(frame)
        frame = frame.f_back
    return found


def _function(frame: FrameType) -> str:
    """The function's name; of a comprehension that of the function around it."""
    around, inner, _ = frame.f_code.co_qualname.partition(".<locals>.<")
    return around.rpartition(".")[2] if inner else frame.f_code.co_name
