"""A profile by samples that no call pays for: the system's timer interrupts the program, which notes its stack.

Pyinstrument and cProfile are both asked by the interpreter at each call, and slow down whoever calls often; this one is
called by a signal, as often as the interval says, whatever the work does. The interpreter lets a signal wait until a
function begins, a loop turns or a call of C ends: a function that does none of these is seen at its caller's next turn,
and the time of functions in C is their callers'.
"""

import signal
import time
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from strobe.bench.convolution.call_tree import Call, Roots, function_name, merged
from strobe.bench.convolution.sampling_profile import INTERVAL, SamplingProfile, timed

_Sample = tuple[list[CodeType], float]  # the work's part of the stack, innermost first, and seconds since the last


def profile_by_timer(work: Callable[[], object], *, interval: float = INTERVAL) -> SamplingProfile:
    """Run the work once while a timer interrupts it.

    Args:
        work: Runs in this thread, the main one; what it does in others is not seen. It must not use ``SIGALRM``.
        interval: Seconds between two samples; while one call of C runs there are none, and the next stands for all.

    Raises:
        RuntimeError: This is not the main thread, or the process's timer is in use.
    """
    if signal.getitimer(signal.ITIMER_REAL)[0]:
        raise RuntimeError("The timer of this process is in use, which a profile needs; end what has set it first")
    samples: list[_Sample] = []
    last = time.perf_counter()
    running = True

    def note(_: int, frame: FrameType | None) -> None:
        nonlocal last
        now = time.perf_counter()
        samples.append((_stack(frame), now - last))
        last = now
        if running:  # only now, lest the next signal interrupts this one
            signal.setitimer(signal.ITIMER_REAL, interval)

    try:
        before: Any = signal.signal(signal.SIGALRM, note)
    except ValueError as error:
        raise RuntimeError("Only the main thread can be profiled by a timer; call it there") from error
    signal.setitimer(signal.ITIMER_REAL, interval)
    try:
        seconds = timed(work)
    finally:
        running = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL if before is None else before)
    inside = [sample for sample in samples if sample[0]]
    return SamplingProfile(merged(_call(*sample) for sample in inside), len(inside), seconds)


def _stack(frame: FrameType | None) -> list[CodeType]:
    """What lies below ``timed``; nothing of a sample outside it."""
    found: list[CodeType] = []
    while frame is not None and frame.f_code is not timed.__code__:
        found.append(frame.f_code)
        frame = frame.f_back
    return found if frame is not None else []


def _call(stack: list[CodeType], seconds: float) -> Call:
    """One sample as a tree: a call of a call."""
    inner: Roots = ()
    for code in stack:
        name = function_name(code.co_filename, code.co_firstlineno, code.co_name)
        inner = (Call(name, seconds, 0.0 if inner else seconds, None, inner),)
    return inner[0]
