"""What the cells of ``suite=convolution`` do, in their own processes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np

from strobe.bench.harness.declare import Done, Trial, Work
from strobe.bench.suites.convolution import implementations as ways
from strobe.bench.suites.convolution import profiles, suite
from strobe.bench.suites.convolution.implementations import IMPLEMENTATIONS, Array, Implementation
from strobe.errors import DataError

WITHIN = 1e-4  # of the largest value, between an implementation's result and SciPy's: float32 sums in other orders


def grey_image(photo: str | None, side: int) -> Array:
    """A photo's middle in grey, or noise: (side, side) float32 from 0 to 1; a DataError where it cannot be read."""
    if photo is None:
        return np.random.default_rng(0).random((side, side), dtype=np.float32)
    from PIL import Image, ImageOps

    try:
        with Image.open(photo) as image:
            fitted = ImageOps.fit(image.convert("L"), (side, side))
    except OSError as error:
        raise DataError(f"{photo} cannot be read as a photo ({error}); remove it, or leave data.root out") from error
    return np.asarray(fitted, dtype=np.float32) / 255


@contextmanager
def convolve(trial: Trial, *, name: str, side: int, kernel: int) -> Iterator[Work]:
    """One convolution, whose result is checked before it is measured; a DataError where it is not SciPy's."""
    implementation = IMPLEMENTATIONS[name]
    image = grey_image(trial.input.facts.get("photo"), side)
    weights = np.random.default_rng(1).random((kernel, kernel), dtype=np.float32)  # not the same when it is turned
    weights /= weights.sum()
    result, expected = implementation(image, weights), IMPLEMENTATIONS[suite.REFERENCE](image, weights)
    same = (result.shape, result.dtype) == (expected.shape, expected.dtype)
    if not same or not np.allclose(result, expected, rtol=0, atol=WITHIN * float(np.abs(expected).max())):
        raise DataError(
            f"{name} gives another result than {suite.REFERENCE} for an image of {image.shape}, so it is not measured; "
            "run the tests of the implementations (tests/bench/test_convolution.py) to see where they differ"
        )

    def repeat() -> int:
        implementation(image, weights)
        return 1

    yield Work(repeat, warm_up=lambda: None)  # it has run once


@contextmanager
def profile(trial: Trial, *, profiler: str, repetitions: int) -> Iterator[Work]:
    """So many convolutions by im2col of the source document's image, under a profiler or alone.

    Figures are own seconds of the parts: under a profiler what it says; alone what they take when timed one by one. The
    latest profile is left in the cell's folder.
    """
    image = np.arange(49, dtype=np.float32).reshape(7, 7)
    weights = np.ones((3, 3), np.float32) / np.float32(9)
    work = partial(_repeat, IMPLEMENTATIONS[suite.IM2COL], image, weights, repetitions)
    title = f"{repetitions} convolutions by im2col, seen by {profiler}"
    looks: dict[str, Callable[[Callable[[], object]], profiles.Profile]] = {
        suite.EVENTS_OF_PYTHON: partial(profiles.profile_events, builtins=False),
        suite.EVENTS: profiles.profile_events,
        suite.SAMPLES: partial(profiles.profile_samples, title=title),
        suite.TIMER: partial(profiles.profile_by_timer, title=title),
    }
    latest: list[profiles.Profile] = []
    prices = (
        dict(zip((suite.TO_CALLEE, suite.TO_CALLER), profiles.price_of_a_call(), strict=True))
        if profiler == suite.EVENTS
        else {}
    )

    def repeat() -> Done:
        if profiler == suite.PLAIN:
            return Done(repetitions, profiles.timed(work), time_parts(image, weights, repetitions))
        latest[:] = [seen := looks[profiler](work)]
        count = (
            {suite.CALLS: sum(row.calls for row in seen.rows)} if seen.samples is None else {suite.SEEN: seen.samples}
        )
        return Done(repetitions, seen.seconds, {**seen.of_parts(), **count, **prices})

    yield Work(repeat, warm_up=work)
    for seen in latest:
        profiles.save_profile(trial.folder, seen)


def time_parts(image: Array, kernel: Array, repetitions: int) -> dict[str, float]:
    """Own seconds of each of ``PARTS`` in so many convolutions by im2col when nobody looks.

    The calls of ``_get_indices`` are made again with the same arguments and nothing else, less what the loop around
    them takes; so are the rest, with windows that are there already. What is left of the whole is ``im2col_naive``.
    """
    ready = ways.padded(image, kernel.shape)
    shape, windows = ways.valid_shape(ready, kernel.shape), ways.im2col_naive(ready, kernel.shape)
    rest = Implementation(lambda _, kernel: ways.product(windows, kernel))
    places = windows.size // kernel.size

    def calls(find: Callable[[int, tuple[int, ...]], object] | None) -> None:
        """Those for all windows; without ``find`` the loop around them."""
        for number in range(repetitions * places):
            place = number % places
            for element in range(kernel.size):
                if find:
                    find(place, shape)
                    find(element, kernel.shape)

    whole = profiles.timed(partial(_repeat, IMPLEMENTATIONS[suite.IM2COL], image, kernel, repetitions))
    indices = profiles.timed(partial(calls, ways._get_indices)) - profiles.timed(partial(calls, None))
    others = profiles.timed(partial(_repeat, rest, image, kernel, repetitions))
    return dict(zip(suite.PARTS, (max(0.0, whole - indices - others), max(0.0, indices), others), strict=True))


def _repeat(implementation: Implementation, image: Array, kernel: Array, repetitions: int) -> None:
    for _ in range(repetitions):
        implementation(image, kernel)
