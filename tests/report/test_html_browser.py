"""``report.html`` in a real browser, without a network: nothing is asked for, nothing overflows, the colours follow."""

from pathlib import Path

import pytest

from strobe.records.run import Record
from strobe.report.html import render
from support.browser import CHROMIUM, DARK, brightness, measured
from support.pages import FILES, HOSTILE, SLOWEST, complete, steps

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")]


@pytest.fixture
def report(tmp_path: Path) -> Path:
    """A page with long names and 2,000 steps."""
    summary = complete()
    summary["callbacks"][0]["name"] = summary["overrides"][0] = summary["findings"][0]["title"] = HOSTILE
    path = tmp_path / "report.html"
    text = render(Record(summary), steps(2000, range(50, 60)), SLOWEST, name="n" * 300, files=FILES)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("width", [360, 800, 1200])
def test_it_fits_any_width(report: Path, width: int) -> None:
    seen = measured(report, width)
    assert seen["wide"] == width
    assert seen["scroll"] <= width
    assert seen["requests"] == 0
    assert seen["buttons"] == 0  # the page's own script ran, so all of them are shown
    assert seen["small"] == 0


def test_light_and_dark_follow_the_reader(report: Path) -> None:
    light, dark = brightness(report), brightness(report, DARK)
    assert light[5, 5] > 245
    assert dark[5, 5] < 40
    assert min(light.std(), dark.std()) > 15  # and something is drawn on it
