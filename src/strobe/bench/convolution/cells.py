"""What the cells of ``suite=convolution`` do, in their own processes."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import numpy as np

from strobe.bench.convolution.borders import Array
from strobe.bench.convolution.direct import time_parts
from strobe.bench.convolution.event_profile import EventProfile, price_of_a_call, profile_events
from strobe.bench.convolution.implementations import IMPLEMENTATIONS
from strobe.bench.convolution.sampling_profile import SamplingProfile, profile_samples, timed
from strobe.bench.convolution.saved import own_of_parts, save_profile
from strobe.bench.convolution.study import (
    CALLS,
    EVENTS,
    EVENTS_OF_PYTHON,
    IM2COL,
    PLAIN,
    REFERENCE,
    SAMPLES,
    SEEN,
    TIMER,
    TO_CALLEE,
    TO_CALLER,
)
from strobe.bench.convolution.timer_profile import profile_by_timer
from strobe.bench.harness.declare import Done, Trial, Work
from strobe.errors import DataError

WITHIN = 1e-4  # of the largest value, between an implementation's result and SciPy's: float32 sums in other orders
Profile = EventProfile | SamplingProfile

_PROFILERS: Mapping[str, Callable[[Callable[[], object]], Profile]] = {
    EVENTS_OF_PYTHON: partial(profile_events, builtins=False),
    EVENTS: profile_events,
    SAMPLES: profile_samples,
    TIMER: profile_by_timer,
}


def grey_image(photo: str | None, side: int) -> Array:
    """A photo's middle in grey, or noise: (side, side) float32 from 0 to 1.

    Raises:
        DataError: The photo cannot be read.
    """
    if photo is None:
        return np.random.default_rng(0).random((side, side), dtype=np.float32)
    from PIL import Image, ImageOps

    try:
        with Image.open(photo) as found:
            fitted = ImageOps.fit(found.convert("L"), (side, side))
    except OSError as error:
        raise DataError(f"{photo} cannot be read as a photo ({error}); remove it, or leave data.root out") from error
    return np.asarray(fitted, dtype=np.float32) / 255


def kernel_of(side: int) -> Array:
    """(side, side) float32, which is not the same when it is turned, with a sum of 1."""
    found = np.random.default_rng(1).random((side, side), dtype=np.float32)
    whole: Array = found / found.sum()
    return whole


def check_result(name: str, found: Array, image: Array, kernel: Array) -> None:
    """Refuse to measure what is wrong.

    Raises:
        DataError: The result of an implementation is not SciPy's.
    """
    expected = IMPLEMENTATIONS[REFERENCE](image, kernel)
    same = (found.shape, found.dtype) == (expected.shape, expected.dtype)
    if not same or not np.allclose(found, expected, rtol=0, atol=WITHIN * float(np.abs(expected).max())):
        raise DataError(
            f"{name} gives another result than {REFERENCE} for an image of {image.shape}, so it is not measured; "
            "run tests/bench/test_convolution.py to see where they differ"
        )


@contextmanager
def convolve(visit: Trial, *, name: str, side: int, kernel: int) -> Iterator[Work]:
    """One convolution, whose result was checked before."""
    implementation = IMPLEMENTATIONS[name]
    image, weights = grey_image(visit.input.facts.get("photo"), side), kernel_of(kernel)
    check_result(name, implementation(image, weights), image, weights)

    def repeat() -> int:
        implementation(image, weights)
        return 1

    yield Work(repeat, warm_up=lambda: None)  # it has run once


@contextmanager
def profile(visit: Trial, *, profiler: str, repetitions: int) -> Iterator[Work]:
    """So many convolutions by im2col of the source document's image, under a profiler or alone.

    Figures are own seconds of the parts: under a profiler what it says; alone what they take when timed one by one. The
    latest profile is left in the cell's folder.
    """
    image = np.arange(49, dtype=np.float32).reshape(7, 7)
    weights = np.ones((3, 3), np.float32) / np.float32(9)
    implementation = IMPLEMENTATIONS[IM2COL]
    found: list[Profile] = []

    def work() -> None:
        for _ in range(repetitions):
            implementation(image, weights)

    def alone() -> Done:
        return Done(repetitions, timed(work), time_parts(image, weights, repetitions))

    def looked_at() -> Done:
        seen = _PROFILERS[profiler](work)
        found[:] = [seen]
        return Done(repetitions, seen.seconds, {**own_of_parts(seen.roots), **_counts(seen), **prices})

    prices = _prices() if profiler == EVENTS else {}
    yield Work(alone if profiler == PLAIN else looked_at, warm_up=work)
    for seen in found:
        save_profile(visit.folder, seen)


def _counts(seen: Profile) -> dict[str, float]:
    return {CALLS: seen.calls} if isinstance(seen, EventProfile) else {SEEN: seen.samples}


def _prices() -> dict[str, float]:
    price = price_of_a_call()
    return {TO_CALLEE: price.callee, TO_CALLER: price.caller}
