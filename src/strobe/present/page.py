"""Pages: templates, what may be shown in them, and writing them."""

import base64
import hashlib
import os
import re
import sys
import webbrowser
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from strobe.callbacks.figures import PHASE_COLOURS
from strobe.present.format import cut
from strobe.present.parts import Page
from strobe.records.files import whole

TEMPLATES = Path(__file__).with_name("templates")
# Of TensorBoard, wherever it is recommended.
OFFLINE = "Its profiler tab's Overview needs the internet: offline it shows an endless spinner. All else works offline."
_SCRIPTS = {  # of the parts that have such an attribute
    "zoom": ("vendor/uplot.js", "zoom.js"),
    "search": ("table.js",),
    "flame": ("flame.js",),
}
LONGEST = 400  # characters of a text that is not told to be longer: names of C++ kernels have thousands
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_UNIT = re.compile(r"(?<=\d) (?=(?:[µm]?s|min|h|[kMGT]?B)\b)")  # a number stays with its unit


def shown(value: object, longest: int = LONGEST) -> Markup:
    """A text for HTML and its attributes: escaped, without what XML cannot hold, and cut if it is too long."""
    return value if isinstance(value, Markup) else _shown(str(value), longest)


def exact(value: object, longest: int = 20_000) -> Markup:
    """The same for what is copied or followed: no space of it becomes another one."""
    return value if isinstance(value, Markup) else escape(cut(_NOT_XML.sub("\ufffd", str(value)), longest))


@lru_cache(maxsize=4096)
def _shown(text: str, longest: int) -> Markup:
    return exact(_UNIT.sub("\u00a0", text), longest)


@cache
def asset(name: str) -> Markup:
    """A style sheet or a script of the pages."""
    return Markup((TEMPLATES / name).read_text(encoding="utf-8"))


@cache
def colours() -> Markup:
    """The style sheet of colours; phases have those of TensorBoard's pictures."""
    phases = " ".join(f"--{name}: {colour};" for name, colour in PHASE_COLOURS.items())
    return Markup(f":root {{ {phases} }}\n") + asset("colours.css")


def render(page: Page) -> str:
    """A self-contained page; every text is escaped."""
    parts = list(_all(part for section in page.sections for part in section.parts))
    names = ["copy.js"]
    for wanted, scripts in _SCRIPTS.items():
        names += scripts if any(getattr(part, wanted, None) for part in parts) else ()
    code = [asset(name) for name in names]
    what = " · ".join(str(part) for part in page.what if part)
    template = _environment().get_template("page.html")
    return template.render(page=page, what=what, names=names, scripts=code, policy=_policy(code))


def write_whole(path: Path, text: str) -> Path:
    """Write a text to a file, whole or not at all, and return its path."""
    with whole(path) as partial:
        partial.write_text(text, encoding="utf-8", errors="replace")
    return path


def open_browser(url: str, *, wanted: bool) -> None:
    """Open a browser if there is a terminal and a display."""
    display = sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if wanted and display and sys.stdout.isatty():
        webbrowser.open(url)


def _all(parts: Iterable[Any]) -> Iterator[Any]:
    """Parts, and those in blocks."""
    for part in parts:
        yield part
        yield from _all(getattr(part, "parts", ()))


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"upto": shown, "exact": exact, "kind": lambda part: type(part).__name__.lower()}
    environment.globals |= {"asset": asset, "colours": colours}
    return environment


def _policy(scripts: Sequence[str]) -> str:
    """Nothing may be fetched, and only the page's own scripts run, so names from a record can do no harm."""
    digests = [base64.b64encode(hashlib.sha256(code.encode()).digest()).decode() for code in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests) or "'none'"
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src {allowed}; base-uri 'none'"
