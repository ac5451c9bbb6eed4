"""``comparison.html`` in a real browser: nothing is asked for, nothing overflows, the colours follow."""

from pathlib import Path

import pytest

from strobe.compare.page import write_comparison
from support.browser import CHROMIUM, DARK, brightness, measured
from support.comparisons import comparison, hostile

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")]


@pytest.mark.parametrize("width", [390, 800, 1280])
@pytest.mark.parametrize("count", [2, 24, 200])
def test_it_fits_any_width(tmp_path: Path, count: int, width: int) -> None:
    record = hostile(count) if count == 24 else comparison(count)
    seen = measured(write_comparison(tmp_path, record), width)
    assert seen["wide"] == width
    assert seen["scroll"] <= width
    assert seen["requests"] == 0
    assert seen["buttons"] == 0  # the page's own script ran, so all of them are shown
    assert seen["small"] == 0


def test_light_and_dark_follow_the_reader(tmp_path: Path) -> None:
    page = write_comparison(tmp_path, comparison(24))
    light, dark = brightness(page), brightness(page, DARK)
    assert light[5, 5] > 245
    assert dark[5, 5] < 40
    assert min(light.std(), dark.std()) > 15  # and something is drawn on it
