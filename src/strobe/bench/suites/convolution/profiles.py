"""Four ways to see where work spends its time: cProfile with and without functions in C, pyinstrument, and a timer.

cProfile (https://docs.python.org/3/library/profile.html) times every call. Counts are exact, but each call pays, and
most of the price is charged to its caller: cProfile reads the clock last when a call begins and first when it ends.

Pyinstrument (https://pyinstrument.readthedocs.io/en/latest/how-it-works.html) notes the stack every so often. The
interpreter asks it at every call and return, in C too, whether it is time: that slows short calls just as much.

The timer is a signal, which no call pays for. It waits until a function begins, a loop turns or a call of C ends, so a
function that does none of these is seen at its caller's next turn, and the time of functions in C is their callers'.
"""

import cProfile
import json
import re
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from types import CodeType, FrameType
from typing import Any

from strobe.present.format import duration, percent

INTERVAL = 0.001  # seconds between two samples
FILE, PAGE = "profile.json", "flame.html"
Stack = tuple[str, ...]  # who called whom, the outermost first, each as ``module.py:line(function)`` or ``<in C>``
Work = Callable[[], object]
_LEAST = 1e-6  # share of the whole below which a call keeps the time of what it calls
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_IN_C = re.compile(r"^<(built-in method |built-in |method )?")
_NAME = re.compile(r"(?P<file>.*):(?P<line>\d+)\((?P<function>.*)\)")
_FONTS = re.compile(r"https://fonts\.googleapis\.com/[^\"']*")


@dataclass(frozen=True)
class Row:
    """A function, from all places where it is called."""

    name: str
    calls: int
    own: float  # seconds without what it calls
    cumulative: float  # seconds with it; of a function that calls itself those of the outermost calls


@dataclass(frozen=True)
class Profile:
    """What a profiler saw of some work."""

    seconds: float  # that the work took meanwhile
    own: Mapping[Stack, float]  # seconds that the last of a stack took itself
    calls: Mapping[Stack, float] = field(default_factory=dict)  # of the last of a stack; empty where none are counted
    rows: tuple[Row, ...] = ()  # of cProfile, by own time, the longest first
    samples: int | None = None  # of the others

    def with_callees(self) -> dict[Stack, float]:
        """Seconds of each call together with what it calls; callers stand before what they call, the longest first."""
        found: dict[Stack, float] = {}
        for stack, seconds in self.own.items():
            for part in _prefixes(stack):
                found[part] = found.get(part, 0.0) + seconds
        return dict(sorted(found.items(), key=lambda item: [(-found[part], part) for part in _prefixes(item[0])]))


def _prefixes(stack: Stack) -> list[Stack]:
    return [stack[:depth] for depth in range(1, len(stack) + 1)]


@dataclass
class _Timed:
    """What cProfile knows of a function, or of its calls by one caller."""

    calls: int = 0
    own: float = 0.0
    seconds: float = 0.0
    callees: dict[str, "_Timed"] = field(default_factory=dict)

    def add(self, entry: Any) -> None:
        self.calls += entry.callcount
        self.own += entry.inlinetime
        self.seconds += entry.totaltime


def profile_events(work: Work, *, builtins: bool = True) -> Profile:
    """Run the work once under cProfile.

    cProfile knows who called whom, but not by which way. A function that is called from several places is shared out
    among them in proportion to their time. A function that calls itself is one place in the tree. Without ``builtins``
    the time of functions in C is their callers'.
    """
    profiler = cProfile.Profile(builtins=builtins)
    start = time.perf_counter()
    profiler.runcall(work)
    seconds = time.perf_counter() - start
    functions: dict[str, _Timed] = {}
    for entry in profiler.getstats():  # of functions of one short name pstats would keep one and lose the others' time
        if "_lsprof.Profiler" not in (name := _code_name(entry.code)):
            caller = functions.setdefault(name, _Timed())
            caller.add(entry)
            for called in entry.calls or ():
                if "_lsprof.Profiler" not in (callee := _code_name(called.code)):
                    caller.callees.setdefault(callee, _Timed()).add(called)
    own: dict[Stack, float] = {}
    calls: dict[Stack, float] = {}
    called_by = {callee for name, timed in functions.items() for callee in timed.callees if callee != name}
    entries = {name: timed for name, timed in functions.items() if name not in called_by}
    least = _LEAST * sum(timed.seconds for timed in entries.values())

    def visit(stack: Stack, count: float, whole: float) -> None:
        function = functions[stack[-1]]
        callees = {name: edge for name, edge in function.callees.items() if name not in stack}
        below = sum(edge.seconds for edge in callees.values())
        share = whole / function.seconds if function.seconds else 0.0
        inside = whole - share * function.own if below > 0 and whole > least else 0.0
        own[stack], calls[stack] = max(0.0, whole - inside), count
        for name, edge in callees.items() if inside > 0 else ():
            visit((*stack, name), edge.calls * inside / below, edge.seconds * inside / below)

    for name, timed in entries.items():
        visit((name,), timed.calls - timed.callees.get(name, _Timed()).calls, timed.seconds)
    rows = (Row(name, timed.calls, timed.own, timed.seconds) for name, timed in functions.items())
    return Profile(seconds, own, calls, tuple(sorted(rows, key=lambda row: (-row.own, row.name))))


def price_of_a_call(calls: int = 200_000) -> tuple[float, float]:
    """Seconds that cProfile adds to a call here and now: those charged to the called, and those to its caller.

    Measured on a loop of empty calls: what the empty function is charged with, and what the loop's own time grew by.
    """
    plain = timed(lambda: _call_nothing(calls))
    own = {row.name: row.own for row in profile_events(lambda: _call_nothing(calls), builtins=False).rows}
    called, caller = (own[_code_name(function.__code__)] for function in (_nothing, _call_nothing))
    return called / calls, max(0.0, caller - plain) / calls


def _nothing() -> None:
    pass


def _call_nothing(calls: int) -> None:
    for _ in range(calls):
        _nothing()


def timed(work: Work) -> float:
    """Seconds that the work takes; the place on the stack below which all is the work's."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def profile_samples(work: Work, *, interval: float = INTERVAL) -> Profile:
    """Run the work once under pyinstrument, at least ``interval`` seconds between two samples."""
    from pyinstrument import Profiler

    profiler = Profiler(interval=interval, async_mode="disabled")
    profiler.start()
    try:
        seconds = timed(work)
    finally:
        session = profiler.stop()
    samples = []
    for infos, spent in session.frame_records:
        places = [info.partition("\x01")[0].split("\x00") for info in infos]
        here = next((n for n, place in enumerate(places) if place[:2] == [timed.__name__, __file__]), len(places))
        samples.append((tuple(_frame_name(*place) for place in places[here + 1 :]), spent))
    return _sampled(samples, seconds)


def profile_by_timer(work: Work, *, interval: float = INTERVAL) -> Profile:
    """Run the work once, in the main thread, while a timer interrupts it each ``interval`` seconds by ``SIGALRM``."""
    samples: list[tuple[Stack, float]] = []
    last = time.perf_counter()
    running = True

    def note(_: int, frame: FrameType | None) -> None:
        nonlocal last
        now, stack = time.perf_counter(), list[str]()
        while frame is not None and frame.f_code is not timed.__code__:
            stack.append(_code_name(frame.f_code))
            frame = frame.f_back
        samples.append((tuple(reversed(stack)) if frame is not None else (), now - last))
        last = now
        if running:  # only now, lest the next signal interrupts this one
            signal.setitimer(signal.ITIMER_REAL, interval)

    before = signal.signal(signal.SIGALRM, note)
    signal.setitimer(signal.ITIMER_REAL, interval)
    try:
        seconds = timed(work)
    finally:
        running = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return _sampled(samples, seconds)


def _sampled(samples: list[tuple[Stack, float]], seconds: float) -> Profile:
    own: dict[Stack, float] = {}
    inside = [(stack, spent) for stack, spent in samples if stack]
    for stack, spent in inside:
        own[stack] = own.get(stack, 0.0) + spent
    return Profile(seconds, own, samples=len(inside))


def _code_name(code: CodeType | str) -> str:
    """A short name, without folders. Of a function in Python its code is given, of one in C its name."""
    if isinstance(code, str):
        return _ADDRESS.sub("", code)
    return f"{PurePath(code.co_filename).name}:{code.co_firstlineno}({code.co_name})"


def _frame_name(function: str, file: str = "", line: str = "0") -> str:
    """The same of what pyinstrument gives."""
    if not file or file.startswith("<"):
        return f"<{file.strip('<>') or 'other'} {function}>"
    return f"{PurePath(file).name}:{line}({function})"


def tree_text(profile: Profile, least: float = 0.005) -> str:
    """The tree as lines of text, for each call with that share of the whole at least: share, seconds and calls."""
    whole, lines = sum(profile.own.values()), []
    for stack, seconds in profile.with_callees().items():
        if whole > 0 and seconds >= least * whole:
            calls = profile.calls.get(stack)
            counted = "" if calls is None else f", {calls:,.0f} call{'s' * (round(calls) != 1)}"
            spent = f"{duration(seconds)}, own {duration(profile.own.get(stack, 0.0))}{counted}"
            lines.append(f"{percent(seconds / whole):>5} {'  ' * (len(stack) - 1)}{stack[-1]}: {spent}")
    return "\n".join(lines) or "nothing was seen"


def save_profile(folder: Path, profile: Profile, title: str) -> None:
    """Write ``profile.json`` into a folder, and ``flame.html``, where pyinstrument draws the calls with no network."""
    found = {
        "stacks": [(stack, seconds, profile.calls.get(stack)) for stack, seconds in profile.own.items()],
        "seconds": profile.seconds,
        "samples": profile.samples,
        "rows": [vars(row) for row in profile.rows],
    }
    (folder / FILE).write_text(json.dumps(found), encoding="utf-8")
    if any(profile.own.values()):
        (folder / PAGE).write_text(_flame(profile, title), encoding="utf-8")


def load_profile(folder: Path) -> Profile | None:
    """What ``save_profile`` wrote there; None where there is nothing, or nothing legible."""
    try:
        found = json.loads((folder / FILE).read_text(encoding="utf-8"))
        own = {tuple(stack): seconds for stack, seconds, _ in found["stacks"]}
        calls = {tuple(stack): count for stack, _, count in found["stacks"] if count is not None}
        rows = tuple(Row(**row) for row in found["rows"])
        return Profile(found["seconds"], own, calls, rows, found["samples"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _flame(profile: Profile, title: str) -> str:
    from pyinstrument.renderers import HTMLRenderer
    from pyinstrument.session import Session

    def info(name: str) -> str:
        """A name as pyinstrument has it."""
        found = _NAME.fullmatch(name)
        in_c = (_IN_C.sub("", name).rstrip(">"), "<built-in>", "0")
        return "\x00".join(found.group("function", "file", "line") if found else in_c)

    seconds = sum(profile.own.values())
    session = Session(
        frame_records=[
            ([info(name) for name in stack], profile.own[stack])
            for stack in profile.with_callees()
            if stack in profile.own
        ],
        start_time=time.time(),
        duration=seconds,
        min_interval=INTERVAL,
        max_interval=INTERVAL,
        sample_count=profile.samples or len(profile.own),
        start_call_stack=[""],
        target_description=title,
        cpu_time=seconds,
        sys_path=[],
        sys_prefixes=[],
    )
    page = _FONTS.sub("data:text/css,", HTMLRenderer().render(session))
    return page.replace('viewMode:"call-stack"', 'viewMode:"timeline"')  # which is the flame graph, so it comes first
