"""A page in a real browser, without a network."""

import html
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from strobe.app.native.system import browser

CHROMIUM = browser()
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"]
FLAGS += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
FLAGS += ["--allow-file-access-from-files", "--virtual-time-budget=5000"]
DARK = "--blink-settings=preferredColorScheme=0"
MEASURE = """<iframe id="page" src="{page}" style="width:{width}px;height:2000px;border:0"></iframe>
<pre id="said"></pre><script>page.onload = function () {{
  var view = page.contentWindow, inside = page.contentDocument, wide = inside.documentElement.clientWidth;
  if ({printed}) [...inside.styleSheets].forEach(function (sheet) {{ [...sheet.cssRules].forEach(function (rule) {{
    if (rule.media) rule.media.mediaText = /print/.test(rule.media.mediaText) ? "all" : "not all"; }}); }});
  said.textContent = JSON.stringify({{
    scroll: inside.documentElement.scrollWidth, wide: wide, errors: view.alerted || 0,
    buttons: [...inside.querySelectorAll(".command button")].filter(function (one) {{ return one.hidden; }}).length,
    text: inside.body.innerText,
    cut: [...inside.querySelectorAll("body *")].filter(function (one) {{
      var style = view.getComputedStyle(one), scrolls = /auto|scroll/;
      return one.scrollWidth > one.clientWidth + 1 && scrolls.test(style.overflowX)
        || one.scrollHeight > one.clientHeight + 1 && scrolls.test(style.overflowY); }}).length,
    requests: view.performance.getEntriesByType("resource").length,
    small: [...inside.querySelectorAll("body *")].filter(function (one) {{
      return one.textContent.trim() && parseFloat(view.getComputedStyle(one).fontSize) < 12; }}).length
  }});
}}</script>"""


def chromium(folder: Path, *arguments: str) -> str:
    assert CHROMIUM is not None
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={folder / 'profile'}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


def measured(page: Path, width: int, *, printed: bool = False) -> dict[str, Any]:
    """What the browser finds of a page that is shown, or printed, in so many pixels."""
    outer = page.with_name("outer.html")
    outer.write_text(MEASURE.format(width=width, page=page.name, printed=str(printed).lower()))
    dom = chromium(page.parent, "--dump-dom", outer.as_uri())
    found = re.search(r'<pre id="said">(.+?)</pre>', dom)
    assert found
    seen: dict[str, Any] = json.loads(html.unescape(found[1]))
    return seen


def brightness(page: Path, *more: str) -> np.ndarray[Any, Any]:
    """A picture of the page, 1,200 pixels wide: grey values."""
    picture = page.with_suffix(".png")
    chromium(page.parent, *more, "--window-size=1200,2600", f"--screenshot={picture}", page.as_uri())
    return np.asarray(Image.open(picture).convert("L"))
