"""A profile by samples: who is on the stack is noted every so often, with pyinstrument.

https://pyinstrument.readthedocs.io/en/latest/how-it-works.html. Nothing is counted. A call shorter than the interval is
seen by chance only, but all of a kind together by as many samples as they take time. Pyinstrument is not without a cost
for each call: the interpreter asks it at every call and return, in C too, whether the interval is over. Where calls are
short that slows the work as much as cProfile does, and the shares are those of the slowed work.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from strobe.bench.convolution.call_tree import Call, Roots, check_alone, function_name, merged

if TYPE_CHECKING:
    from pyinstrument.frame import Frame

INTERVAL = 0.001


@dataclass(frozen=True)
class SamplingProfile:
    """What samples of the stack tell of some work."""

    roots: Roots
    samples: int
    seconds: float  # that the work took meanwhile


def profile_samples(work: Callable[[], object], *, interval: float = INTERVAL) -> SamplingProfile:
    """Run the work once under pyinstrument.

    Args:
        work: Runs in this thread; what it does in others is not seen.
        interval: Seconds between two samples, at least.

    Raises:
        RuntimeError: Another profiler is active.
    """
    from pyinstrument import Profiler

    check_alone()
    profiler = Profiler(interval=interval, async_mode="disabled")
    profiler.start()
    try:
        seconds = timed(work)
    finally:
        session = profiler.stop()
    root = session.root_frame(trim_stem=False)
    return SamplingProfile(_below(root) if root else (), session.sample_count, seconds)


def timed(work: Callable[[], object]) -> float:
    """Seconds that the work takes; the place on the stack below which all is the work's."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _below(frame: "Frame") -> Roots:
    """What ``timed`` calls: what lies above it on the stack is not the work's."""
    waiting = [frame]
    while waiting:
        found = waiting.pop()
        if found.function == timed.__name__ and found.file_path == __file__:
            return _children(found)
        waiting += reversed(found.children)
    return ()


def _children(frame: "Frame") -> Roots:
    return merged(_call(child) for child in frame.children if not child.is_synthetic)


def _call(frame: "Frame") -> Call:
    if frame.file_path is None or frame.file_path.startswith("<"):
        name = f"<{(frame.file_path or 'other').strip('<>')} {frame.function}>"
    else:
        name = function_name(frame.file_path, frame.line_no or 0, frame.function)
    children = _children(frame)
    return Call(name, frame.time, max(0.0, frame.time - sum(child.seconds for child in children)), None, children)
