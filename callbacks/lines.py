"""In which lines of the user's own code training is: the training thread's stack, looked at now and then."""

import ast
import gc
import linecache
import math
import operator
import sys
import sysconfig
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from itertools import accumulate, chain, islice, repeat
from pathlib import Path
from threading import Event, Thread, get_ident
from types import CodeType, FrameType
from typing import Any

from .columns import (
    BETWEEN,
    CALLING_BACKWARD,
    COLLATING,
    COLLECTING,
    ENDING_WORKERS,
    LOADING,
    LOGGING,
    OWNED,
    PARAMETRIZING,
    RECOMPUTING,
    SAMPLING,
    SAVING,
    THREAD,
)

EVERY = 0.05  # seconds between two looks, each of which takes some 30 microseconds from the thread that trains
MOST = 2000  # looks: of a long training its first minutes
KEEP = 20  # looks, after which they are kept again
FEWEST = 5  # looks at a line, below which it is not told
OLDEST = 2  # generation of a garbage collection: all objects
HELD = 0.8  # of Python's switch interval: so much too late, the thread waited for Python's lock
AHEAD = 2.0  # switch intervals before a look, from which on the lock is to be had at once
SHORT = 5e-5  # seconds: the switch interval from then on
_WORKER = ("/torch/utils/data/_utils/worker.py", "/torchdata/stateful_dataloader/worker.py")
_OUTSIDE = ("/trainer/trainer.py", "/strobe/probe/loader.py", *_WORKER)  # from here outwards nothing trains or loads
_INSTALLED = ("/site-packages/", "/dist-packages/")
_COMPILED = ("/torch/_inductor/", "/torch/_functorch/_aot_autograd/")
_NOT_OWN = ("<", f"{sysconfig.get_path('stdlib')}/", f"{Path(__file__).absolute().parent.parent}/")  # the last: ours

_TORCHS = {"torch", "Tensor"}  # names that a module has which computes with it
_MODULE_CALL = "/torch/nn/modules/module.py"  # runs a network, or a part of one
_CHECKPOINT = "/torch/utils/checkpoint.py"  # which in a backward pass computes activations again
_AUTOGRAD = "/torch/autograd/__init__.py"  # whose backward pass may begin long before a parameter has a gradient
_DATALOADER = "/torch/utils/data/dataloader.py"
_DRAWS, _ENDS = "_next_index", "_shutdown_workers"  # its functions that draw a batch's indices, and end workers
_COLLATE = "/torch/utils/data/_utils/collate.py"
_QUEUE = "/multiprocessing/queues.py"  # at which a loader worker waits to be asked for a batch
_FETCHING = ("/torch/utils/data/_utils/fetch.py", _OUTSIDE[1])  # which ask a data set for samples
_PASSING = ("/torch/utils/data/", _MODULE_CALL, "/transforms/v2/_container.py", "/transforms/v2/_transform.py")
_PASSES_ON = {"__getitem__", "__getitems__", "__iter__", "__next__", "__call__"}
_BESIDE = (PARAMETRIZING, "torchmetrics", "torch.utils.tensorboard")  # of torch's kind, but no part of a network
_SAVES = ("torch.serialization", *(f"{name}.utilities.cloud_io" for name in ("lightning.fabric", "lightning_fabric")))
_LOGS = ("/pytorch/core/module.py", ("log", "log_dict"))  # a LightningModule's own, whatever they call

LOADS = ("data_wait", LOADING)  # phases

Line = tuple[str, int, str]  # file, number, function
Place = tuple[str, Line | None, str]  # phase, line, library


class Looks:
    """How often a thread was seen where, and before how many of these looks it held Python's lock there."""

    def __init__(self) -> None:
        self.seen, self.locked = Counter[Place](), Counter[Place]()

    def add(self, seen: Iterable[tuple[Place, int, int]]) -> None:
        """Add what ``all`` gives of others."""
        for place, count, locked in seen:
            self.seen[place] += count
            self.locked[place] += locked

    def all(self) -> list[tuple[Place, int, int]]:
        """Places, looks at them, and those of them before which the lock was held."""
        return [(place, count, self.locked[place]) for place, count in list(self.seen.items())]

    def found(self) -> list[dict[str, Any]]:
        """``phase``, ``file``, ``line``, ``function``, ``code``, ``library``, ``share``, ``python``; most looks first.

        ``library`` is empty where the line calls none but torch, ``RECOMPUTING`` where a backward pass computes
        activations again, ``CALLING_BACKWARD`` where the line only begins that pass. Where a batch's indices are drawn
        it is ``SAMPLING``, where its samples are put together ``COLLATING``: there the line may be None, as in a
        library's network. ``share`` is of the looks at that phase, and so is ``python``: those before which it held
        Python's lock. The phase of another thread is its name below ``THREAD``, and a library that it runs alone has no
        line. What loads with a library's code alone has the line of its function.
        """
        found, looks = [], Counter[str]()
        for (phase, _, _), count in list(self.seen.items()):
            looks[phase] += count
        for (phase, line, library), count in self.seen.most_common():
            if (line or library) and count >= FEWEST:
                share, python = (n / looks[phase] for n in (count, self.locked[phase, line, library]))
                place = {"phase": phase, **located(line), "library": library}
                found.append({**place, "share": share, "python": python})
        return found


def located(line: Line | None) -> dict[str, Any]:
    """``file``, ``line``, ``function``, and ``code``, the text of a line of the user's own; all None without a line."""
    file, number, function = line or (None, None, None)
    code = linecache.getline(file, number).strip() if file and number and is_own(file) else None
    return {"file": file, "line": number, "function": function, "code": code or None}


class Lines:
    """Looks at the stack of the thread that makes it, from another one, until ``end``.

    And where it is when Python collects garbage as a whole, which ``gc.collect()`` asks for.

    torch's operations release Python's lock; Python code keeps it until another thread has waited for it for
    ``sys.getswitchinterval()``. A thread that wakes later than it asked for, and not because it lacked a core, has
    waited so long: the training thread is in such code. A look at that moment would see what ends the wait, which is
    also whatever releases the lock often; so it is taken at a time set before, when the interval is short. If that time
    has passed meanwhile, the next one is waited for: NumPy and pandas release the lock so often, and so briefly, that a
    thread which wakes may get it no earlier than in one of torch's operations.

    Args:
        phase: what that thread is in now, such as ``forward`` or ``callbacks/<name>``.
        others: the busy ones among the other threads, by their ``ident``: they are looked at, too.
        keep: is given the looks now and then, and once they have ended.
    """

    def __init__(
        self,
        phase: Callable[[], str],
        others: Callable[[], Mapping[int, str]] = dict,
        keep: Callable[[Looks], None] = lambda _: None,
    ) -> None:
        self._phase, self._thread, self._others, self._keep = phase, get_ident(), others, keep
        self.looks = Looks()
        self._over = Event()
        gc.callbacks.append(self._collects)
        self.thread = Thread(target=self._look, name="strobe lines", daemon=True)
        self.thread.start()

    def end(self) -> None:
        """Look no more. A second call does nothing."""
        self._over.set()
        if self._collects in gc.callbacks:
            gc.callbacks.remove(self._collects)

    def _look(self) -> None:
        queued, due = _seconds_without_core(), time.monotonic()  # when the next look is
        for number in range(MOST):
            if number % KEEP == KEEP - 1:
                self._keep(self.looks)
            interval, now = sys.getswitchinterval(), time.monotonic()
            due = max(due, now) + EVERY
            woken = max(now, due - AHEAD * interval)
            if self._over.wait(woken - now):
                break
            late = time.monotonic() - woken
            sys.setswitchinterval(SHORT)
            try:
                if late > HELD * interval:
                    holds = self._place(self._phase(), stacks().get(self._thread))
                    self.looks.locked[holds] += late - (_seconds_without_core() - queued) > HELD * interval
                while (left := due - time.monotonic()) < 0:
                    due += EVERY
                time.sleep(left)
                frames, phase = stacks(), self._phase()
                queued = _seconds_without_core()
            finally:
                sys.setswitchinterval(interval)
            self._note(phase, frames.get(self._thread))
            for thread, name in self._others().items():
                self._note(f"{THREAD}{name}", frames.get(thread))
            frames.clear()  # a frame keeps its function's tensors, also when that has returned
        self._keep(self.looks)

    def _collects(self, when: str, told: dict[str, int]) -> None:
        """As ``gc.callbacks``; a collection within a callback's hook is that callback's."""
        whole = when == "start" and told["generation"] == OLDEST and get_ident() == self._thread
        if whole and not self._phase().startswith(OWNED):
            self._note(COLLECTING, sys._getframe().f_back)  # None where a thread ends

    def _note(self, phase: str, frame: FrameType | None) -> None:
        if phase != LOADING or not _passes(frame, _QUEUE, "get"):
            self.looks.seen[self._place(phase, frame)] += 1

    def _place(self, phase: str, frame: FrameType | None) -> Place:
        line, library = own_line(frame)
        if phase.startswith(THREAD) and line is None:
            library = _runs(frame)
        if phase == "forward" and _passes(frame, _AUTOGRAD, "backward"):
            phase = "backward"
        if phase == "backward" and _passes(frame, _CHECKPOINT):
            library = RECOMPUTING
        elif library == CALLING_BACKWARD and phase != "backward":
            library = ""
        elif phase in ("data_wait", BETWEEN) and _passes(frame, _DATALOADER, _ENDS):  # asked for one batch too many
            phase, library = BETWEEN, ENDING_WORKERS
        elif phase == "data_wait" and _passes(frame, _DATALOADER, _DRAWS):
            library = SAMPLING
        elif phase in LOADS and _passes(frame, _COLLATE):
            library = COLLATING
        elif phase in LOADS and line is None:
            line = _library_line(frame)
        return phase, line, library


def _seconds_without_core() -> float:
    """For which the calling thread has waited for a core; not a number where the system does not tell."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) * 1e-9
    except (OSError, ValueError, IndexError):
        return math.nan


def stacks() -> dict[int, FrameType]:
    """The frame of each other thread, by its ``ident``; all frames around it are there, too.

    Reading them holds a lock of the interpreter. Before Python 3.12 that may begin a garbage collection, whose
    callbacks let other threads run: a process that one of them forks then, such as a loader worker, waits for that
    lock for ever (python/cpython#106883). And ``f_back`` makes the object of a frame; if the thread leaves that frame
    meanwhile, memory of another one is overwritten. So no collection begins in either.
    """
    found: dict[int, FrameType] = _uncollected(sys._current_frames)
    found.pop(get_ident(), None)  # this frame, which holds what holds it: a cycle with all the others in it
    for frame in found.values():
        back = accumulate(chain((frame,), repeat("f_back")), getattr)  # type: ignore[arg-type]
        _uncollected(partial(deque, iter(back.__next__, None), 0))
    return found


def _uncollected(call: Callable[[], Any]) -> Any:
    """What a function of C returns, while no garbage is collected: no thread runs between the calls of one ``map``."""
    if sys.version_info >= (3, 12) or not gc.isenabled():
        return call()
    _, found, _ = map(operator.call, (gc.disable, call, gc.enable))
    return found


def own_line(frame: FrameType | None) -> tuple[Line | None, str]:
    """The innermost line of the stack that is in no library, and the library that it calls, as ``_called`` tells it.

    None where training or loading is in none.
    """
    within: list[FrameType] = []
    while frame is not None and not frame.f_code.co_filename.endswith(_OUTSIDE):
        file = frame.f_code.co_filename
        if is_own(file):
            return (file, frame.f_lineno, _function(frame)), _called(within) if within else _called_in_c(frame)
        if not file.startswith(_NOT_OWN[-1]):
            within.append(frame)
        frame = frame.f_back
    return None, ""


def own_lines(frame: FrameType | None) -> tuple[Line, ...] | None:
    """All lines of the stack that are in no library, the outermost first; None in what torch.compile has made."""
    found: list[Line] = []
    while frame is not None and not (file := frame.f_code.co_filename).endswith(_OUTSIDE):
        if any(part in file for part in _COMPILED):
            return None
        if is_own(file):
            found.append((file, frame.f_lineno, _function(frame)))
        frame = frame.f_back
    return tuple(reversed(found))


@lru_cache(maxsize=4096)
def is_own(file: str) -> bool:
    """Whether a file is of the user's own code, and of no library."""
    return not file.startswith(_NOT_OWN) and not any(part in file for part in _INSTALLED)


def _library_line(frame: FrameType | None) -> Line | None:
    """The outermost function of a library that loads, such as a transform, where no line is the user's own.

    Its first line stands for all: what the user can change is the call. Functions within others are left out: most are
    what a decorator puts around the one that is meant.
    """
    found = None
    while frame is not None and not (file := frame.f_code.co_filename).endswith(_FETCHING):
        installed = any(part in file for part in _INSTALLED) and not any(part in file for part in _PASSING)
        if installed and frame.f_code.co_name not in _PASSES_ON and ".<locals>." not in frame.f_code.co_qualname:
            found = file, frame.f_code.co_firstlineno, _function(frame)
        frame = frame.f_back
    return found if frame is not None else None


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
    if any(frame.f_code.co_filename.endswith(_AUTOGRAD) and frame.f_code.co_name == "backward" for frame in within):
        return CALLING_BACKWARD
    names = [str(frame.f_globals.get("__name__")) for frame in within]
    if any(name.startswith(_SAVES) for name in names):
        return SAVING
    if beside := next((one for one in _BESIDE if any(name.startswith(one) for name in names)), ""):
        return beside
    network = any(frame.f_code.co_filename.endswith(_MODULE_CALL) for frame in within)
    if not within or network or not _TORCHS.isdisjoint(within[-1].f_globals):
        return ""
    package = names[-1].partition(".")[0]
    return "" if package in _TORCHS or within[-1].f_code.co_filename.startswith("<string>") else package


def _called_in_c(frame: FrameType) -> str:
    """The installed library, beside torch, whose function this frame calls at this moment; it has no frame of its own.

    Only where the call begins with a global name, as in ``np.random.choice(...)``.
    """
    called = frame.f_globals.get(_callee(frame.f_code, frame.f_lasti))
    name = getattr(called, "__name__" if isinstance(called, type(sys)) else "__module__", None)
    package = name.partition(".")[0] if isinstance(name, str) else ""
    file = getattr(sys.modules.get(package), "__file__", None) or ""
    return package if package not in _TORCHS and any(part in file for part in _INSTALLED) else ""


@lru_cache(maxsize=1024)
def _callee(code: CodeType, at: int) -> str:
    """The name with which the call at this instruction begins, if it is a global one; else empty."""
    first, last, begin, end = next(islice(code.co_positions(), max(0, at) // 2, None), (None,) * 4)
    if first is None or last is None or begin is None or end is None:
        return ""
    lines = [linecache.getline(code.co_filename, line).encode() for line in range(first, last + 1)]
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][begin:]
    try:
        found = ast.parse(b"".join(lines), mode="eval").body
    except (SyntaxError, ValueError):  # of a file that has changed since
        return ""
    if not isinstance(found, ast.Call):
        return ""
    called = found.func
    while isinstance(called, ast.Attribute):
        called = called.value
    return called.id if isinstance(called, ast.Name) and called.id not in code.co_varnames else ""


def _passes(frame: FrameType | None, file: str, function: str = "") -> bool:
    """Whether the stack leads through a file, or a function in it."""
    while frame is not None:
        if frame.f_code.co_filename.endswith(file) and function in ("", frame.f_code.co_name):
            return True
        frame = frame.f_back
    return False


def _function(frame: FrameType) -> str:
    """The function's name; of a comprehension that of the function around it; of a ``forward`` with its class."""
    around, inner, _ = frame.f_code.co_qualname.partition(".<locals>.<")
    name = around.rpartition(".")[2] if inner else frame.f_code.co_name
    return ".".join(around.rsplit(".", 2)[-2:]) if name == "forward" else name
