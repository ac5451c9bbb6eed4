"""Figures and names as a page shows them: escaped, with their units, and never too long."""

import html
import re

NBSP, TIMES = "\u00a0", "\u00d7"
LONGEST = 400  # characters of a name that are shown; C++ kernels have thousands
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def esc(value: object, longest: int = LONGEST) -> str:
    """A text for HTML and its attributes: markup escaped, what XML cannot hold replaced, cut where too long."""
    text = _NOT_XML.sub("\ufffd", str(value))
    return html.escape(text if len(text) <= longest else text[: longest - 1] + "…", quote=True)


def counted(number: int, noun: str) -> str:
    """``1 step``, ``2,000 steps``."""
    return f"{number:,}{NBSP}{noun}{'s' * (number != 1)}"


def rate(value: float) -> str:
    """Images per second with three digits at least: 7.86, 78.6, 1,060."""
    return f"{value:,.{0 if abs(value) >= 99.95 else 1 if abs(value) >= 9.995 else 2}f}"


def milliseconds(seconds: float) -> str:
    """Seconds as milliseconds without the unit: 0.33, 43.7, 1,314."""
    value = seconds * 1e3
    return f"{value:,.{0 if abs(value) >= 999.5 else 1 if abs(value) >= 0.95 else 2}f}"


def duration(seconds: float) -> str:
    """Seconds with the unit that suits: 331 µs, 43.7 ms, 1.86 s, 12.5 min."""
    for limit, scale, unit in ((0.9995e-3, 1e6, "µs"), (0.9995, 1e3, "ms"), (119.5, 1.0, "s"), (7170, 1 / 60, "min")):
        if abs(seconds) < limit:
            return f"{seconds * scale:.3g}{NBSP}{unit}"
    return f"{seconds / 3600:,.3g}{NBSP}h" if seconds < 3.6e6 else f"{seconds / 3600:,.0f}{NBSP}h"


def size(count: float) -> str:
    """Bytes with the decimal unit that suits: 512 B, 1.60 GB."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 999.5:
            return f"{count:.3g}{NBSP}{unit}"
        count /= 1e3
    return f"{count:,.3g}{NBSP}TB" if abs(count) < 999.5 else f"{count:,.0f}{NBSP}TB"


def percent(share: float) -> str:
    """A share in percent; what is more than nothing and would be rounded to it is ``<1%``."""
    return "<1%" if 0 < share < 0.005 else f"{share:,.0%}"


def times(factor: float) -> str:
    """A factor, such as a speed-up: 1.83x with the sign for times."""
    return f"{factor:,.{2 if factor < 100 else 0}f}{TIMES}"
