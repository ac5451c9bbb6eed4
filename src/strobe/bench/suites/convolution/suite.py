"""What ``suite=convolution`` measures, by name, and at which sizes. Imports neither torch nor SciPy."""

from pathlib import Path

from omegaconf import DictConfig

from strobe.bench.harness.declare import Cell, Input, Plan, Request, Suite, Table, deferred, row
from strobe.bench.inputs import find_photos, gives
from strobe.errors import ConfigError

TIME, PROFILERS = "time", "profilers"  # tables

REFERENCE = "scipy convolve2d"
IM2COL, CONV2D, NATIVE = "im2col", "torch conv2d", "native"
_QUICK = ("im2col recursive", "sliding_window_view", REFERENCE, "scipy fftconvolve", CONV2D, "torch unfold", NATIVE)
LARGEST: dict[str, int | None] = {  # side at which each is measured: about a second with a kernel of 3x3; None: any
    **{"four loops": 256, "window sums": 512, IM2COL: 128},
    **dict.fromkeys(_QUICK),
}

PLAIN = "no profiler"
EVENTS, EVENTS_OF_PYTHON = "cProfile", "cProfile, builtins off"
SAMPLES, TIMER = "pyinstrument", "timer"
LOOKING = (EVENTS_OF_PYTHON, EVENTS, SAMPLES, TIMER)

PARTS = ("im2col_naive", "_get_indices", "the rest")  # of the profiled work: its two functions, and all others
CALLS, SEEN = "calls", "samples"  # figures of profilers' cells, besides own seconds of the parts
RECEIVED, MADE = "calls of ", "calls by "  # and a part
TO_CALLEE, TO_CALLER = "price to the called", "price to the caller"

SIZES, QUICK_SIZES = (8, 16, 32, 64, 128, 256, 512, 1024), (8, 32, 64)
REPETITIONS, QUICK_REPETITIONS = 100, 20  # of the profiled work


def declare(cfg: DictConfig) -> Suite:
    """Implementations x sizes, and one implementation under each profiler."""
    chosen = cfg.suite
    if chosen.implementations is not None and not chosen.implementations:
        raise ConfigError("suite.implementations=[] leaves nothing to measure; name at least one, or leave it out")
    names = list(dict.fromkeys(chosen.implementations or LARGEST))
    sizes = list(dict.fromkeys(chosen.sizes or (QUICK_SIZES if cfg.quick else SIZES)))
    kernel = chosen.kernel
    for name in names:
        if name not in LARGEST:
            raise ConfigError(f"{name} in suite.implementations is unknown; choose from {', '.join(LARGEST)}")
        if chosen.implementations is not None and not any(fits(name, side, kernel) for side in sizes):
            raise ConfigError(
                f"suite.sizes={sizes}: each takes {name} many seconds with suite.kernel={kernel}; give a side of "
                f"{3 * (LARGEST[name] or 0) // kernel} or less, or leave it out of suite.implementations"
            )
    repetitions = QUICK_REPETITIONS if cfg.quick else REPETITIONS
    cells: list[Cell] = []
    for side in sizes:
        ways = {
            name: deferred("convolution.cells:convolve", name=name, side=side, kernel=kernel)
            for name in names
            if fits(name, side, kernel)
        }
        cells += row(TIME, str(side), ways, REFERENCE, at=float(side))
    bounded = ", ".join(f"{name} {largest}" for name, largest in LARGEST.items() if largest and name in names)
    shape = f"{kernel}x{kernel}"
    return Suite(
        title=f"One convolution, written in {f'{len(names)} ways' if len(names) > 1 else 'one way'}",
        about=f"A repetition convolves one square image, float32, with a kernel of {shape}, as large as the image "
        "afterwards, on one thread, NumPy's and torch's products of matrices too; padding is within what is timed. "
        f"Each trial first checks that the result is that of {REFERENCE}, and measures nothing if not. Ways that loop "
        "in Python end at the side that takes about a second with a kernel of 3x3"
        f"{f' ({bounded})' if bounded else ''}. Then {repetitions} convolutions by im2col of an image of 7x7 are run "
        "alone and under each profiler; the parts of the work are also timed one by one.",
        cells=[*cells, *profiled_cells(repetitions)],
        tables=[
            Table(TIME, f"One image, kernel {shape}", "ms", "lines", "side of the image, pixels", logarithmic=True),
            Table(PROFILERS, "The same work under profilers", "ms"),
        ],
        quick=Plan(rounds=2, turn=0.05, budget=28),
        full=Plan(rounds=9, turn=0.15, budget=330),
        find=_find,
        form="photos",
        conclude=deferred("convolution.reading:conclusions"),
        sections=deferred("convolution.page:sections"),
        varies={
            "threads": "nothing, for every way is measured on one thread,",
            "data.batch_size": "suite.sizes=[N,...], for each repetition is one image,",
            "loader": "suite.implementations=[NAME,...]",
            "engine": "suite.implementations=[NAME,...]",
        },
        packages=["scipy", "pyinstrument"],
    )


def fits(name: str, side: int, kernel: int) -> bool:
    """Whether an implementation is measured on an image of that side: not where it would take many seconds."""
    return side * kernel <= 3 * (LARGEST[name] or side * kernel)


def profiled_cells(repetitions: int) -> list[Cell]:
    """The same work alone and under each profiler."""
    profiled = {
        name: deferred("convolution.cells:profile", profiler=name, repetitions=repetitions)
        for name in (PLAIN, *LOOKING)
    }
    return row(PROFILERS, f"{IM2COL}, {repetitions} repetitions on 7x7", profiled)


def _find(request: Request, scratch: Path) -> Input:
    """Noise, which needs no files, whatever STROBE_DATA holds; below ``data.root``, if it is given, the first photo."""
    if not gives(request.overrides, "data.root"):
        return Input("noise, generated", generated=True)
    path = find_photos(request, scratch).facts["paths"][0]
    deferred("convolution.cells:grey_image")(path, 8)  # which says so if it is none
    return Input(f"the middle of {Path(path).name}, in grey", facts={"photo": path})
