"""In which lines of the user's own code training is: the training thread's stack, looked at now and then."""

import gc
import math
import operator
import sys
import sysconfig
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Event, Thread, get_ident
from types import FrameType
from typing import Any

from .columns import COLLECTING, LOGGING, OWNED, RECOMPUTING, THREAD

EVERY = 0.05  # seconds between two looks, each of which takes some 30 microseconds from the thread that trains
MOST = 2000  # looks: of a long training its first minutes
FEWEST = 5  # looks at a line, below which it is not told
OLDEST = 2  # generation of a garbage collection: all objects
HELD = 0.8  # of Python's switch interval: so much too late, a look waited for Python's lock
_OUTSIDE = ("/trainer/trainer.py", "/strobe/probe/loader.py")  # from here outwards nothing is training's or loading's
_INSTALLED = ("/site-packages/", "/dist-packages/")
_NOT_OWN = ("<", f"{sysconfig.get_path('stdlib')}/", f"{Path(__file__).absolute().parent.parent}/")  # the last: ours

_TORCHS = {"torch", "Tensor"}  # names that a module has which computes with it
_MODULE_CALL = "/torch/nn/modules/module.py"  # runs a network, or a part of one
_CHECKPOINT = "/torch/utils/checkpoint.py"  # which in a backward pass computes activations again
_BESIDE = ("torchmetrics", "torch.utils.tensorboard")  # of torch's kind, but no part of a network
_LOGS = ("/pytorch/core/module.py", ("log", "log_dict"))  # a LightningModule's own, whatever they call

Line = tuple[str, int, str]  # file, number, function


class Lines:
    """Looks at the stack of the thread that makes it, from another one, until ``end``.

    And where it is when Python collects garbage as a whole, which ``gc.collect()`` asks for.

    A look that comes late, and not because it lacked a core, waited for Python's lock. torch's operations release the
    lock; Python code keeps it until another thread has waited for ``sys.getswitchinterval()``.

    Args:
        phase: what that thread is in now, such as ``forward`` or ``callbacks/<name>``.
        others: the busy ones among the other threads, by their ``ident``: they are looked at, too.
    """

    def __init__(self, phase: Callable[[], str], others: Callable[[], Mapping[int, str]] = dict) -> None:
        self._phase, self._thread, self._others = phase, get_ident(), others
        self._seen, self._looks = Counter[tuple[str, Line | None, str]](), Counter[str]()
        self._locked = Counter[tuple[str, Line | None, str]]()
        self._over = Event()
        gc.callbacks.append(self._collects)
        self.looks = Thread(target=self._look, name="strobe lines", daemon=True)
        self.looks.start()

    def end(self) -> None:
        """Look no more. A second call does nothing."""
        self._over.set()
        if self._collects in gc.callbacks:
            gc.callbacks.remove(self._collects)

    def found(self) -> list[dict[str, Any]]:
        """``phase``, ``file``, ``line``, ``function``, ``library``, ``share`` and ``python``; most looks first.

        ``library`` is empty where the line calls none but torch, and ``RECOMPUTING`` where a backward pass computes
        activations again: there the line may be None, as in a library's network. ``share`` is of the looks at that
        phase, and so is ``python``: those that waited for Python's lock. The phase of another thread is its name below
        ``THREAD``, and a library that it runs alone has no line.
        """
        found = []
        for (phase, line, library), count in self._seen.most_common():
            if (line or library) and count >= FEWEST:
                shares = (n / self._looks[phase] for n in (count, self._locked[phase, line, library]))
                names = ("phase", "file", "line", "function", "library", "share", "python")
                found.append(dict(zip(names, (phase, *(line or (None,) * 3), library, *shares), strict=True)))
        return found

    def _look(self) -> None:
        late, looks = 0.0, 0
        while (looks := looks + 1) <= MOST:
            pause = EVERY - min(late, EVERY / 2)  # so that looks come as often, whatever they wait for
            began, queued = time.monotonic(), _seconds_without_core()
            if self._over.wait(pause):
                break
            late = max(0.0, time.monotonic() - began - pause)
            for_lock = late - (_seconds_without_core() - queued)
            frames = stacks()
            self._note(self._phase(), frames.get(self._thread), locked=for_lock > HELD * sys.getswitchinterval())
            for thread, name in self._others().items():
                self._note(f"{THREAD}{name}", frames.get(thread))

    def _collects(self, when: str, told: dict[str, int]) -> None:
        """As ``gc.callbacks``; a collection within a callback's hook is that callback's."""
        whole = when == "start" and told["generation"] == OLDEST and get_ident() == self._thread
        if whole and not self._phase().startswith(OWNED):
            self._note(COLLECTING, sys._getframe().f_back)  # None where a thread ends

    def _note(self, phase: str, frame: FrameType | None, *, locked: bool = False) -> None:
        line, library = own_line(frame)
        if phase.startswith(THREAD) and line is None:
            library = _runs(frame)
        place = phase, line, RECOMPUTING if phase == "backward" and _recomputes(frame) else library
        self._looks[phase] += 1
        self._seen[place] += 1
        self._locked[place] += locked


def _seconds_without_core() -> float:
    """For which the calling thread has waited for a core; not a number where the system does not tell."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) * 1e-9
    except (OSError, ValueError, IndexError):
        return math.nan


def stacks() -> dict[int, FrameType]:
    """The frame of each thread, by its ``ident``.

    Reading them holds a lock of the interpreter. Before Python 3.12 that may begin a garbage collection, whose
    callbacks let other threads run: a process that one of them forks then, such as a loader worker, waits for that
    lock for ever (python/cpython#106883). So no collection begins meanwhile; no thread runs between the calls of one
    ``map``.
    """
    if sys.version_info >= (3, 12) or not gc.isenabled():
        return sys._current_frames()
    calls: tuple[Callable[[], Any], ...] = (gc.disable, sys._current_frames, gc.enable)
    _, found, _ = map(operator.call, calls)
    return found  # type: ignore[no-any-return]


def own_line(frame: FrameType | None) -> tuple[Line | None, str]:
    """The innermost line of the stack that is in no library, and the library that it calls, as ``_called`` tells it.

    None where training or loading is in none.
    """
    within: list[FrameType] = []
    while frame is not None and not frame.f_code.co_filename.endswith(_OUTSIDE):
        file = frame.f_code.co_filename
        if not file.startswith(_NOT_OWN) and not any(part in file for part in _INSTALLED):
            return (file, frame.f_lineno, _function(frame)), _called(within)
        within.append(frame)
        frame = frame.f_back
    return None, ""


def _runs(frame: FrameType | None) -> str:
    """The installed package that a thread runs; empty if it runs none."""
    package = ""
    while frame is not None:
        if any(part in frame.f_code.co_filename for part in _INSTALLED):
            package = str(frame.f_globals.get("__name__")).partition(".")[0]
        frame = frame.f_back
    return package


def _called(within: list[FrameType]) -> str:
    """The library that the outermost of these frames belongs to; empty if it computes with torch, as networks do."""
    if within and (code := within[-1].f_code).co_filename.endswith(_LOGS[0]) and code.co_name in _LOGS[1]:
        return LOGGING
    names = [str(frame.f_globals.get("__name__")) for frame in within]
    if beside := next((one for one in _BESIDE if any(name.startswith(one) for name in names)), ""):
        return beside
    network = any(frame.f_code.co_filename.endswith(_MODULE_CALL) for frame in within)
    if not within or network or not _TORCHS.isdisjoint(within[-1].f_globals):
        return ""
    package = names[-1].partition(".")[0]
    return "" if package in _TORCHS or within[-1].f_code.co_filename.startswith("<string>") else package


def _recomputes(frame: FrameType | None) -> bool:
    while frame is not None and not frame.f_code.co_filename.endswith(_CHECKPOINT):
        frame = frame.f_back
    return frame is not None


def _function(frame: FrameType) -> str:
    """The function's name; of a comprehension that of the function around it."""
    around, inner, _ = frame.f_code.co_qualname.partition(".<locals>.<")
    return around.rpartition(".")[2] if inner else frame.f_code.co_name
