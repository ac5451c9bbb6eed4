"""``report.html`` in a real browser, without a network: nothing is asked for, nothing overflows, the colours follow."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from pages import FILES, HOSTILE, SLOWEST, complete, steps
from PIL import Image

from strobe.diagnose.record import Record
from strobe.report.html import render

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"]
FLAGS += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
FLAGS += ["--allow-file-access-from-files", "--virtual-time-budget=5000"]
DARK = "--blink-settings=preferredColorScheme=0"
MEASURE = """<iframe id="page" src="report.html" style="width:{width}px;height:2000px;border:0"></iframe>
<pre id="said"></pre><script>page.onload = function () {{
  var view = page.contentWindow, inside = page.contentDocument, wide = inside.documentElement.clientWidth;
  said.textContent = JSON.stringify({{
    scroll: inside.documentElement.scrollWidth, wide: wide, errors: view.alerted || 0,
    buttons: [...inside.querySelectorAll(".command button")].filter(function (one) {{ return one.hidden; }}).length,
    requests: view.performance.getEntriesByType("resource").length,
    small: [...inside.querySelectorAll("body *")].filter(function (one) {{
      return one.textContent.trim() && parseFloat(view.getComputedStyle(one).fontSize) < 12; }}).length
  }});
}}</script>"""

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


def chromium(folder: Path, *arguments: str) -> str:
    assert CHROMIUM is not None
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={folder / 'profile'}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


@pytest.mark.parametrize("width", [360, 800, 1200])
def test_it_fits_any_width(report: Path, width: int) -> None:
    outer = report.with_name("outer.html")
    outer.write_text(MEASURE.format(width=width))
    dom = chromium(report.parent, "--dump-dom", outer.as_uri())
    found = re.search(r'<pre id="said">(.+?)</pre>', dom)
    assert found
    seen = json.loads(found[1])
    assert seen["wide"] == width
    assert seen["scroll"] <= width
    assert seen["requests"] == 0
    assert seen["buttons"] == 0  # the page's own script ran, so all of them are shown
    assert seen["small"] == 0


def test_light_and_dark_follow_the_reader(report: Path) -> None:
    corner = {}
    for scheme, more in {"light": [], "dark": [DARK]}.items():
        picture = report.with_name(f"{scheme}.png")
        chromium(report.parent, *more, "--window-size=1200,2600", f"--screenshot={picture}", report.as_uri())
        pixels = np.asarray(Image.open(picture).convert("L"))
        corner[scheme] = int(pixels[5, 5])
        assert pixels.std() > 15  # and something is drawn on it
    assert corner["light"] > 245
    assert corner["dark"] < 40
