"""What ``suite=convolution`` measures, by name. Imports neither torch nor SciPy before it is asked."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from strobe.bench.harness.declare import Cell, Input, Plan, Request, Section, Suite, Table, Trial, Work
from strobe.bench.inputs import find_photos
from strobe.bench.suites.convolution.study import (
    IM2COL,
    LARGEST,
    LOOKING,
    PLAIN,
    PROFILERS,
    REFERENCE,
    TIME,
    fits,
)
from strobe.errors import ConfigError

SIZES, QUICK_SIZES = (8, 16, 32, 64, 128, 256, 512, 1024), (8, 32, 64)
REPETITIONS, QUICK_REPETITIONS = 100, 20  # of the profiled work


def declare(cfg: DictConfig) -> Suite:
    """Implementations x sizes, and one implementation under each profiler."""
    if cfg.data.form != "photos":
        raise ConfigError(f"suite=convolution takes a photo or noise, and data has {cfg.data.form}; leave data out")
    chosen = cfg.suite
    for key in ("implementations", "sizes"):
        if chosen[key] is not None and not chosen[key]:
            raise ConfigError(f"suite.{key}=[] leaves nothing to measure; name at least one, or leave it out for all")
    names = list(dict.fromkeys(chosen.implementations or LARGEST))
    sizes = list(dict.fromkeys(chosen.sizes or (QUICK_SIZES if cfg.quick else SIZES)))
    check_names(names, sizes, chosen.kernel, asked=chosen.implementations is not None)
    repetitions = QUICK_REPETITIONS if cfg.quick else REPETITIONS
    cells = [
        _timing(name, side, chosen.kernel, names) for side in sizes for name in names if fits(name, side, chosen.kernel)
    ]
    bounded = ", ".join(f"{name} {largest}" for name, largest in LARGEST.items() if largest and name in names)
    kernel = f"{chosen.kernel}x{chosen.kernel}"
    return Suite(
        name="convolution",
        title=f"One convolution, written in {f'{len(names)} ways' if len(names) > 1 else 'one way'}",
        about=f"A repetition convolves one square image, float32, with a kernel of {kernel}, as large as the image "
        "afterwards, on one thread, NumPy's and torch's products of matrices too; padding is within what is timed. "
        f"Each visit first checks that the result is that of {REFERENCE}, and measures nothing if not. Ways that loop "
        "in Python end at the side that takes about a second with a kernel of 3x3"
        f"{f' ({bounded})' if bounded else ''}. Then {repetitions} convolutions by im2col of an image of 7x7 are run "
        "alone and under each profiler; the parts of the work are also timed one by one.",
        cells=[*cells, *profiled_cells(repetitions)],
        tables=[
            Table(TIME, f"One image, kernel {kernel}", "ms", "lines", "side of the image, pixels", logarithmic=True),
            Table(PROFILERS, "The same work under profilers", "ms"),
        ],
        quick=Plan(rounds=2, turn=0.05, budget=28),
        full=Plan(rounds=9, turn=0.15, budget=330),
        find=_find,
        conclude=conclude,
        sections=sections,
        varies={
            "threads": "nothing, for every way is measured on one thread,",
            "data.batch_size": "suite.sizes=[N,...], for each repetition is one image,",
            "loader": "suite.implementations=[NAME,...]",
            "engine": "suite.implementations=[NAME,...]",
        },
        packages=["scipy", "pyinstrument"],
    )


def check_names(names: Sequence[str], sizes: Sequence[int], kernel: int, *, asked: bool) -> None:
    """Raise a ConfigError for an implementation that there is not, or whose time no size allows to measure."""
    for name in names:
        if name not in LARGEST:
            raise ConfigError(f"suite.implementations has {name}, which is none; those are: {', '.join(LARGEST)}")
        if asked and not any(fits(name, side, kernel) for side in sizes):
            raise ConfigError(
                f"suite.sizes={list(sizes)}: each takes {name} many seconds with suite.kernel={kernel}; give a side of "
                f"{3 * (LARGEST[name] or 0) // kernel} or less, or leave it out of suite.implementations"
            )


def _timing(name: str, side: int, kernel: int, names: Sequence[str]) -> Cell:
    held = Cell(TIME, str(side), REFERENCE, partial(convolve, name=REFERENCE, side=side, kernel=kernel)).name
    make = partial(convolve, name=name, side=side, kernel=kernel)
    against = held if name != REFERENCE and REFERENCE in names else None
    return Cell(TIME, str(side), name, make, against=against, at=float(side))


def profiled_cells(repetitions: int) -> list[Cell]:
    """The same work alone and under each profiler."""
    row = f"{IM2COL}, {repetitions} repetitions on 7x7"
    plain = Cell(PROFILERS, row, PLAIN, partial(profile, profiler=PLAIN, repetitions=repetitions))
    others = (
        Cell(PROFILERS, row, name, partial(profile, profiler=name, repetitions=repetitions), against=plain.name)
        for name in LOOKING
    )
    return [plain, *others]


def convolve(visit: Trial, *, name: str, side: int, kernel: int) -> AbstractContextManager[Work]:
    """One image by one implementation."""
    from strobe.bench.suites.convolution import cells

    return cells.convolve(visit, name=name, side=side, kernel=kernel)


def profile(visit: Trial, *, profiler: str, repetitions: int) -> AbstractContextManager[Work]:
    """The same work under one profiler."""
    from strobe.bench.suites.convolution import cells

    return cells.profile(visit, profiler=profiler, repetitions=repetitions)


def _find(asked: Request, scratch: Path) -> Input:
    """Noise, which needs no files, whatever STROBE_DATA holds; below ``data.root``, if it is given, the first photo."""
    if not any(override.lstrip("+").startswith("data.root=") for override in asked.overrides):
        return Input("noise, generated", generated=True)
    from strobe.bench.suites.convolution.cells import grey_image

    path = find_photos(asked, scratch).facts["paths"][0]
    grey_image(path, 8)
    return Input(f"the middle of {Path(path).name}, in grey", facts={"photo": path})


def conclude(record: Mapping[str, Any]) -> list[str]:
    """Which way is fastest, and how far profilers can be believed."""
    from strobe.bench.suites.convolution.reading import conclusions

    return conclusions(record)


def sections(record: Mapping[str, Any], folder: Path) -> list[Section]:
    """The study's questions, growth, and what the profilers saw."""
    from strobe.bench.suites.convolution import page

    return page.sections(record, folder)
