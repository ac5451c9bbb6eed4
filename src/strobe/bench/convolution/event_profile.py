"""A profile by events: every call and every return is timed, with cProfile.

https://docs.python.org/3/library/profile.html. Counts are exact. Each call pays for being timed, and most of that is
charged to its caller: cProfile reads the clock last when a call begins and first when it ends.
"""

import cProfile
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType

from strobe.bench.convolution.call_tree import Roots, check_alone, function_name
from strobe.bench.convolution.event_tree import Edge, Function, call_tree

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


@dataclass(frozen=True)
class Row:
    """A function, from all places where it is called."""

    name: str
    calls: int  # of it
    own: float  # seconds without what it calls
    cumulative: float  # seconds with it; of a function that calls itself those of the outermost calls


@dataclass(frozen=True)
class EventProfile:
    """What cProfile saw of some work."""

    rows: tuple[Row, ...]  # by own time, the longest first
    roots: Roots
    seconds: float  # that the work took meanwhile

    @property
    def calls(self) -> int:
        """How many were timed."""
        return sum(row.calls for row in self.rows)


@dataclass(frozen=True)
class Price:
    """What cProfile adds to one call of a Python function, in seconds."""

    callee: float  # charged to the function that is called
    caller: float  # charged to the one that calls it

    @property
    def callee_share(self) -> float:
        """How much of it the function that is called bears."""
        return self.callee / (self.callee + self.caller)


def profile_events(work: Callable[[], object], *, builtins: bool = True) -> EventProfile:
    """Run the work once under cProfile.

    Args:
        work: Runs in this thread; what it does in others is not seen.
        builtins: Whether functions in C are timed too; if not, their time is their callers', which pay for the
            interpreter's asking all the same.

    Raises:
        RuntimeError: Another profiler is active.
    """
    check_alone()
    profiler = cProfile.Profile(builtins=builtins)
    start = time.perf_counter()
    profiler.runcall(work)
    seconds = time.perf_counter() - start
    functions = _functions(profiler)
    rows = [Row(name, function.calls, function.own, function.seconds) for name, function in functions.items()]
    rows.sort(key=lambda row: (-row.own, row.name))
    return EventProfile(tuple(rows), call_tree(functions), seconds)


def price_of_a_call(calls: int = 200_000) -> Price:
    """What being timed costs a call here and now, and who bears it: a loop of empty calls, without and with cProfile.

    What is charged to the caller is what its own time grew by; all that the empty function is charged with counts as
    added, for it does nothing.
    """
    start = time.perf_counter()
    _call_nothing(calls)
    plain = time.perf_counter() - start
    own = {row.name: row.own for row in profile_events(lambda: _call_nothing(calls), builtins=False).rows}
    called, caller = (
        next(seconds for name, seconds in own.items() if name.endswith(f"({function.__name__})"))
        for function in (_nothing, _call_nothing)
    )
    return Price(called / calls, max(0.0, caller - plain) / calls)


def _nothing() -> None:
    pass


def _call_nothing(calls: int) -> None:
    for _ in range(calls):
        _nothing()


def _functions(profiler: cProfile.Profile) -> dict[str, Function]:
    """By short name; functions of one short name, such as two lambdas in a line, are one.

    Of such, pstats would keep one and lose the others' time.
    """
    found: dict[str, Function] = {}
    for entry in profiler.getstats():
        name = _name(entry.code)
        function = found.setdefault(name, Function())
        function.calls += entry.callcount
        function.own += entry.inlinetime
        function.seconds += entry.totaltime
        for called in entry.calls or ():
            edge = found.setdefault(_name(called.code), Function()).callers.setdefault(name, Edge())
            edge.add(called.callcount, called.inlinetime, called.totaltime)
    return {name: function for name, function in found.items() if "_lsprof.Profiler" not in name}


def _name(code: CodeType | str) -> str:
    """Of a function in Python its code is given, of one in C its name."""
    if isinstance(code, str):
        return _ADDRESS.sub("", code)
    return function_name(code.co_filename, code.co_firstlineno, code.co_name)
