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
import marshal
import re
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path, PurePath
from types import CodeType, FrameType

from strobe.bench.suites.convolution.suite import MADE, PARTS, RECEIVED

INTERVAL = 0.001  # seconds between two samples
FILE, PAGE, STATISTICS = "profile.json", "flame.html", "profile.pstats"
Stack = list[str]  # who called whom, the outermost first, each as pyinstrument has it: function, file, line
Work = Callable[[], object]
_LEAST = 0.005  # share of the whole from which on a call is in the tree
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
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
    own: dict[str, float]  # of each function of Python, with that of functions in C that it calls
    rows: list[Row] = field(default_factory=list)  # of cProfile, by own time, the longest first
    received: dict[str, float] = field(default_factory=dict)  # calls of the same functions, and of theirs in C
    made: dict[str, float] = field(default_factory=dict)  # calls by them
    samples: int | None = None  # of the others
    tree: str = ""  # of calls, as pyinstrument writes it
    files: dict[str, bytes] = field(default_factory=dict)  # for other programs: statistics for pstats, a flame graph

    def of_parts(self) -> dict[str, float]:
        """Own seconds of each of ``PARTS`` and, if they were counted, the calls that it received and made."""
        seconds = dict.fromkeys(PARTS, 0.0)
        for values, what in ((self.own, ""), (self.received, RECEIVED), (self.made, MADE)):
            for name, value in values.items():
                function = name.rpartition("(")[2].rstrip(")")
                key = what + (function if function in PARTS else PARTS[-1])
                seconds[key] = seconds.get(key, 0.0) + value
        return seconds


def profile_events(work: Work, *, builtins: bool = True) -> Profile:
    """Run the work once under cProfile; without ``builtins`` the time of functions in C is their callers'."""
    profiler = cProfile.Profile(builtins=builtins)
    start = time.perf_counter()
    profiler.runcall(work)
    seconds = time.perf_counter() - start
    rows = dict[str, Row]()
    own, received, made = (defaultdict[str, float](float) for _ in range(3))
    for entry in profiler.getstats():  # of functions of one short name pstats would keep one and lose the others' time
        if "_lsprof.Profiler" in (name := _code_name(entry.code)):
            continue
        old = rows.get(name, Row(name, 0, 0.0, 0.0))
        calls, took = old.calls + entry.callcount, old.own + entry.inlinetime
        rows[name] = Row(name, calls, took, old.cumulative + entry.totaltime)
        if isinstance(entry.code, CodeType):
            own[name] += entry.inlinetime
            received[name] += entry.callcount
        for called in entry.calls or ():
            if "_lsprof.Profiler" not in _code_name(called.code):
                made[name] += called.callcount
                if isinstance(called.code, str):
                    own[name] += called.inlinetime
                    received[name] += called.callcount
    ordered = sorted(rows.values(), key=lambda row: (-row.own, row.name))
    profiler.create_stats()
    files = {STATISTICS: marshal.dumps(profiler.stats)}
    return Profile(seconds, dict(own), ordered, dict(received), dict(made), files=files)


def price_of_a_call(calls: int = 200_000) -> tuple[float, float]:
    """Seconds that cProfile adds to a call here and now: those charged to the called, and those to its caller.

    Measured on a loop of empty calls: what the empty function is charged with, and what the loop's own time grew by.
    """
    plain = timed(lambda: _call_nothing(calls))
    own = profile_events(lambda: _call_nothing(calls), builtins=False).own
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


def profile_samples(work: Work, *, title: str = "Work", interval: float = INTERVAL) -> Profile:
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
        below = places[here + 1 :]
        clock = below and below[0][0] == time.perf_counter.__name__  # which ``timed`` calls itself
        samples.append(([] if clock else [_place(*place) for place in below], spent))
    return _sampled(samples, seconds, title)


def profile_by_timer(work: Work, *, title: str = "Work", interval: float = INTERVAL) -> Profile:
    """Run the work once, in the main thread, while a timer interrupts it each ``interval`` seconds by ``SIGALRM``."""
    samples: list[tuple[Stack, float]] = []
    last = time.perf_counter()
    running = True

    def note(_: int, frame: FrameType | None) -> None:
        nonlocal last
        now, stack = time.perf_counter(), Stack()
        while frame is not None and frame.f_code is not timed.__code__:
            code = frame.f_code
            stack.append(_place(code.co_name, code.co_filename, f"{code.co_firstlineno}"))
            frame = frame.f_back
        samples.append((stack[::-1] if frame is not None else [], now - last))
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
    return _sampled(samples, seconds, title)


def _sampled(samples: Iterable[tuple[Stack, float]], seconds: float, title: str) -> Profile:
    """What samples tell, as pyinstrument writes and draws it; its page needs no network."""
    from pyinstrument.renderers import ConsoleRenderer, HTMLRenderer
    from pyinstrument.session import Session

    inside = sorted((stack, spent) for stack, spent in samples if stack)  # so that alike ones are one box
    own = defaultdict[str, float](float)
    for stack, spent in inside:
        places = [place.split("\x00") for place in reversed(stack)]
        function, file, line = next((place for place in places if place[1][0] != "<"), places[-1])
        own[f"{file}:{line}({function})"] += spent
    whole = sum(own.values())
    session = Session(inside, time.time(), whole, INTERVAL, INTERVAL, len(inside), [""], title, whole, [], [])
    if not inside:
        return Profile(seconds, {}, samples=0, tree="nothing was seen")
    page = _FONTS.sub("data:text/css,", HTMLRenderer().render(session))
    page = page.replace('viewMode:"call-stack"', 'viewMode:"timeline"')  # which is the flame graph, so it comes first
    tree = ConsoleRenderer(time="percent_of_total", processor_options={"filter_threshold": _LEAST}).render(session)
    outline, files = tree.partition(f"{title}\n")[2].strip(), {PAGE: page.encode()}
    return Profile(seconds, dict(own), samples=len(inside), tree=outline, files=files)


def _code_name(code: CodeType | str) -> str:
    """A short name, without folders. Of a function in Python its code is given, of one in C its name."""
    if isinstance(code, str):
        return _ADDRESS.sub("", code)
    return f"{PurePath(code.co_filename).name}:{code.co_firstlineno}({code.co_name})"


def _place(function: str, file: str = "<other>", line: str = "0") -> str:
    """A place on a stack as pyinstrument has it, but without folders."""
    return f"{function}\x00{file if file.startswith('<') else PurePath(file).name}\x00{line}"


def save_profile(folder: Path, profile: Profile) -> None:
    """Write its files into a folder, and all else into ``profile.json``."""
    for name, content in profile.files.items():
        (folder / name).write_bytes(content)
    (folder / FILE).write_text(json.dumps(asdict(replace(profile, files={}))), encoding="utf-8")


def load_profile(folder: Path) -> Profile | None:
    """What ``save_profile`` wrote there; None where there is nothing, or nothing legible."""
    try:
        record = json.loads((folder / FILE).read_text(encoding="utf-8"))
        return Profile(**record | {"rows": [Row(**row) for row in record["rows"]]})
    except (OSError, ValueError, KeyError, TypeError):
        return None
