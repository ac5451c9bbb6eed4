"""What ``suite=convolution`` measures, by name, and at which sizes."""

TIME, PROFILERS = "time", "profilers"  # tables

REFERENCE = "scipy convolve2d"
LOOPS, WINDOW_SUMS, IM2COL, RECURSIVE = "four loops", "window sums", "im2col", "im2col recursive"
VIEW, CONV2D, NATIVE = "sliding_window_view", "torch conv2d", "native"
_SLOW = {LOOPS: 256, WINDOW_SUMS: 512, IM2COL: 128}  # side of an image that takes about a second, kernel 3x3
LARGEST: dict[str, int | None] = {  # side at which each is measured; None: any
    **_SLOW,
    **dict.fromkeys((RECURSIVE, VIEW, REFERENCE, "scipy fftconvolve", CONV2D, "torch unfold", NATIVE)),
}

PLAIN = "no profiler"
EVENTS, EVENTS_OF_PYTHON = "cProfile", "cProfile, builtins off"
SAMPLES, TIMER = "pyinstrument", "timer"
LOOKING = (EVENTS_OF_PYTHON, EVENTS, SAMPLES, TIMER)

PARTS = ("im2col_naive", "_get_indices", "the rest")  # of the profiled work: its two functions, and all others
CALLS, SEEN = "calls", "samples"  # figures of profilers' cells, besides own seconds of the parts
TO_CALLEE, TO_CALLER = "price to the called", "price to the caller"


def fits(name: str, side: int, kernel: int) -> bool:
    """Whether an implementation is measured on an image of that side: not where it would take many seconds."""
    largest = LARGEST[name]
    return largest is None or side * kernel <= 3 * largest
