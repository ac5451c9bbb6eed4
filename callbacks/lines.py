"""In which lines of the user's own code training is: the training thread's stack, looked at now and then."""

import gc
import math
import operator
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate, chain, compress, pairwise, repeat
from pathlib import Path
from threading import Event, RLock, Thread, get_ident
from types import FrameType
from typing import Any

from .columns import BETWEEN, COLLECTING, LOADING, OWNED, THREAD
from .frames import Line, Place, Stack, leads_through, located, outwards, place_of, user_lines

EVERY = 0.05  # seconds between two looks, each of which takes some 30 microseconds from the thread that trains
MOST = 2000  # looks: of a long training its first minutes
KEEP = 20  # looks, after which they are kept again
FEWEST = 5  # looks at a line, below which it is not told
FAR = 3.0  # times as long as usual: such a phase belongs to a long step
OLDEST = 2  # generation of a garbage collection: all objects
HELD = 0.8  # of Python's switch interval: so much too late, the thread waited for Python's lock
SAME = 0.8  # of the time between two looks: a phase that lasted so much longer is the same one
AHEAD = 2.0  # switch intervals before a look, from which on the lock is to be had at once
SHORT = 5e-5  # seconds: the switch interval from then on
_QUEUE = "/multiprocessing/queues.py"  # at which a loader worker waits to be asked for a batch


# Held while the switch interval is short, which another look, or a process that is forked meanwhile, would take for the
# usual one.
_looking = RLock()
os.register_at_fork(before=_looking.acquire, after_in_parent=_looking.release, after_in_child=_looking.release)


class Looks:
    """How often a thread was seen where, and before how many of these looks it held Python's lock there."""

    def __init__(self) -> None:
        self.seen, self.locked = Counter[Place](), Counter[Place]()
        self.seconds = 0.0  # for which the thread was there
        # At each look the place, the seconds that the phase had lasted, and the user's own calls that led there.
        self.lasted: list[tuple[Place, float, Sequence[Line]]] = []

    def late(self, usual: Mapping[str, float]) -> "Looks":
        """Those at phases that had lasted far longer already than the ``usual`` seconds of each."""
        looks = Looks()
        looks.seen.update(place for place, lasted, _ in self.lasted if _is_late(place, lasted, usual))
        return looks

    def apart(self, usual: Mapping[str, float]) -> "Looks":
        """The outermost call that mostly such long phases make, or what lies between steps: an evaluation's, say."""
        seen = self.lasted[:]  # more may come meanwhile
        apart = [place[0] == BETWEEN or _is_late(place, lasted, usual) for place, lasted, _ in seen]
        for at, (now, after) in reversed([*enumerate(pairwise(seen))]):
            goes_on = now[0][0] == after[0][0] and after[1] - now[1] > SAME * EVERY
            apart[at] = apart[at] or (goes_on and apart[at + 1])
        looks, phases = Looks(), [place[0] for place, *_ in seen]
        for phase in set(compress(phases, apart)):  # beside steps of this phase, or beside all of them
            among = [phase in (BETWEEN, one) for one in phases]
            of_phase = [late and one == phase for late, one in compress(zip(apart, phases, strict=True), among)]
            calls = own_calls([lines for *_, lines in compress(seen, among)], of_phase)
            looks.seen.update((phase, call, "") for call in calls)
        return looks

    def add(self, counts: Iterable[tuple[Place, int, int]]) -> None:
        """Add the ``counts`` of others."""
        for place, count, locked in counts:
            self.seen[place] += count
            self.locked[place] += locked

    def counts(self) -> list[tuple[Place, int, int]]:
        """Places, looks at them, and those of them before which the lock was held."""
        return [(place, count, self.locked[place]) for place, count in list(self.seen.items())]

    def records(self) -> list[dict[str, Any]]:
        """``phase``, ``file``, ``line``, ``function``, ``code``, ``library``, ``share``, ``python``; most looks first.

        ``library`` is empty where the line calls none but torch, ``RECOMPUTING`` where a backward pass computes
        activations again, ``CALLING_BACKWARD`` where the line only begins that pass. Where a batch's indices are drawn
        it is ``SAMPLING``, where its samples are put together ``COLLATING``: there the line may be None, as in a
        library's network. ``share`` is of the looks at that phase, and so is ``python``: those before which it held
        Python's lock. The phase of another thread is its name below ``THREAD``, and a library that it runs alone has no
        line. What loads with a library's code alone has the line of its function.
        """
        records, looks = [], Counter[str]()
        for (phase, _, _), count in list(self.seen.items()):
            looks[phase] += count
        for (phase, line, library), count in self.seen.most_common():
            if (line or library) and count >= FEWEST:
                share, python = (n / looks[phase] for n in (count, self.locked[phase, line, library]))
                place = {"phase": phase, **located(line), "library": library}
                records.append({**place, "share": share, "python": python})
        return records


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
        lasted: the seconds that it has been in it.
        others: the busy ones among the other threads, by their ``ident``: they are looked at, too.
        keep: is given the looks now and then, and once they have ended.
    """

    def __init__(
        self,
        phase: Callable[[], str],
        lasted: Callable[[], float] = lambda: 0.0,
        others: Callable[[], Mapping[int, str]] = dict,
        keep: Callable[[Looks], None] = lambda _: None,
    ) -> None:
        self._phase, self._lasted, self._others, self._keep = phase, lasted, others, keep
        self._thread = get_ident()
        self.looks, self._collecting = Looks(), time.monotonic()  # when Python began to collect garbage
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
        queued, due = seconds_without_core(), time.monotonic()  # when the next look is
        for number in range(MOST):
            if number % KEEP == KEEP - 1:
                self._keep(self.looks)
            with _looking:
                interval, now = sys.getswitchinterval(), time.monotonic()
            due = max(due, now) + EVERY
            woken = max(now, due - AHEAD * interval)
            if self._over.wait(woken - now):
                break
            late = time.monotonic() - woken
            with _looking:
                sys.setswitchinterval(SHORT)
                try:
                    if late > HELD * interval:
                        holds = place_of(self._phase(), stacks().get(self._thread, []))
                        self.looks.locked[holds] += late - (seconds_without_core() - queued) > HELD * interval
                    while (left := due - time.monotonic()) < 0:
                        due += EVERY
                    time.sleep(left)
                    frames, phase, lasted = stacks(), self._phase(), self._lasted()
                    queued = seconds_without_core()
                finally:
                    sys.setswitchinterval(interval)
            if place := self._note(phase, frames.get(self._thread, [])):
                calls = user_lines(frames.get(self._thread, []))
                self.looks.lasted.append((place, lasted, calls or ()))
                self.looks.seconds += EVERY
            for thread, name in self._others().items():
                self._note(f"{THREAD}{name}", frames.get(thread, []))
            frames.clear()  # a frame keeps its function's tensors, also when that has returned
        self._keep(self.looks)

    def _collects(self, when: str, info: dict[str, int]) -> None:
        """As ``gc.callbacks``; a collection within a callback's hook is that callback's.

        Between epochs it is part of what happens there, for as long as it lasts: it holds Python's lock, so no look
        sees it.
        """
        if info["generation"] != OLDEST or get_ident() != self._thread:
            return
        phase, stack, now = self._phase(), [*outwards(sys._getframe().f_back)], time.monotonic()
        if when == "stop" and phase == BETWEEN:
            self.looks.seen[place_of(phase, stack)] += int((now - self._collecting) / EVERY)
        elif when == "start" and phase != BETWEEN and not phase.startswith(OWNED):
            self._note(COLLECTING, stack)
        self._collecting = now

    def _note(self, phase: str, stack: Stack) -> Place | None:
        if phase == LOADING and leads_through(stack, _QUEUE, "get"):
            return None
        place = place_of(phase, stack)
        self.looks.seen[place] += 1
        return place


def own_calls(paths: Sequence[Sequence[Line]], apart: Sequence[bool]) -> list[Line | None]:
    """Of each path that is ``apart`` the outermost call that hardly any other makes; None if all others make all."""
    calls = [set(path) for path in paths]
    seen, seen_apart = Counter(chain(*calls)), Counter(chain(*compress(calls, apart)))
    mainly = (1 + sum(apart) / max(1, len(apart))) / 2  # more than of a call that all make
    own = {call for call in seen if seen_apart[call] > mainly * seen[call]}
    return [next((call for call in path if call in own), None) for path in compress(paths, apart)]


def _is_late(place: Place, lasted: float, usual: Mapping[str, float]) -> bool:
    return lasted > FAR * usual.get(place[0], math.inf)


def seconds_without_core(thread: str = "thread-self") -> float:
    """For which a thread, the calling one or ``self/task/NUMBER``, waited for a core; nan where Linux does not tell."""
    try:
        return int(Path("/proc", thread, "schedstat").read_text().split()[1]) * 1e-9
    except (OSError, ValueError, IndexError):
        return math.nan


def stacks() -> dict[int, Stack]:
    """The frames of each other thread, by its ``ident``.

    All are read within one call of C, in which no other thread runs: a generator that yields meanwhile no longer knows
    what called it.

    Reading them holds a lock of the interpreter. Before Python 3.12 that may begin a garbage collection, whose
    callbacks let other threads run: a process that one of them forks then, such as a loader worker, waits for that
    lock for ever (python/cpython#106883). And ``f_back`` makes the object of a frame; if the thread leaves that frame
    meanwhile, memory of another one is overwritten. So no collection begins in either.
    """
    read = dict[str, dict[int, FrameType]]()
    found: list[Stack] = _uncollected(partial(list, _reading(read)))
    innermost = read.pop("frames")
    stacks = dict(zip(innermost, found, strict=True))
    stacks.pop(get_ident(), None)
    innermost.clear()  # these hold this call's own frame, which holds them: a cycle with all the others in it
    found.clear()
    return stacks


def _reading(read: dict[str, dict[int, FrameType]]) -> Iterator[Stack]:
    """An iterator made of C functions alone: it puts each thread's frame into ``read``, and gives its stack."""
    threads = map(read.setdefault, repeat("frames"), map(operator.call, (sys._current_frames,)))
    innermost = chain.from_iterable(map(dict.values, threads))
    backs = map(accumulate, map(chain, zip(innermost, strict=False), repeat(repeat("f_back"))), repeat(getattr))
    return map(list, map(iter, map(operator.attrgetter("__next__"), backs), repeat(None)))  # until none is around


def _uncollected(call: Callable[[], Any]) -> Any:
    """What a function of C returns, while no garbage is collected: no thread runs between the calls of one ``map``."""
    if sys.version_info >= (3, 12) or not gc.isenabled():
        return call()
    _, result, _ = map(operator.call, (gc.disable, call, gc.enable))
    return result


def core_seconds(number: int) -> float | None:
    """Core-seconds of a thread, by its number in Linux; None if it has ended. The clock is ``pthread_getcpuclockid``'s.

    By ``include/linux/posix-timers_types.h``: the number's bits inverted, 4 for a thread, 2 for the scheduler's time.
    """
    try:
        return time.clock_gettime((~number << 3) | 6)
    except OSError:
        return None
