"""The operators whose time changed most between two traces."""

from strobe.bench.page.page import wide
from strobe.compare.page.cells import Comparison
from strobe.compare.page.words import beside
from strobe.records.run import Record
from strobe.report.html.drawing import rect
from strobe.report.html.pieces import more, named, section, table
from strobe.report.html.text import duration, esc

MOST = 20  # rows
_BAR = 6  # pixels


def operators(compared: Comparison) -> str:
    """The section; empty where no two traces were compared."""
    record = compared.record
    rows = [Record(row) for row in record.items("operators", "rows") if isinstance(row, dict)]
    if not rows:
        return ""
    top = max([row.number(key) or 0.0 for row in rows[:MOST] for key in ("before_us", "after_us")]) or 1.0
    lines = [
        (
            named(row.text("name") or "unnamed", "code"),
            _bars(row, top),
            _time(row, "before_us"),
            _time(row, "after_us"),
            _change(row),
        )
        for row in rows[:MOST]
    ]
    grid = table(("Operator", "", "#Before", "#After", "#Change"), lines, "operators changed")
    before, after = (esc(record.text("operators", key) or "unknown") for key in ("before", "after"))
    keys = (
        f'<ul class="keys"><li><i class="key s8"></i><span>before: {before}</span></li>'
        f'<li><i class="key s1"></i><span>after: {after}</span></li></ul>'
    )
    device = {"gpu": "the GPU", "cuda": "the GPU", "cpu": "the CPU"}.get(
        record.text("operators", "device") or "", "the device"
    )
    note = f"Time of their own on {device} for each image, of one traced run a side; the greatest change first."
    body = keys + grid + more(len(rows) - MOST, "operators")
    return wide(section("operators", "Operators that changed most", note, body))


def _bars(row: Record, top: float) -> str:
    parts = [
        rect(0, number * (_BAR + 1), (row.number(key) or 0.0) / top, _BAR, f"bar {css}")
        for number, (key, css) in enumerate((("before_us", "s8"), ("after_us", "s1")))
    ]
    return beside(2 * _BAR + 1, parts)


def _time(row: Record, key: str) -> str:
    value = row.number(key)
    return '<span class="none">none</span>' if not value else duration(value / 1e6)


def _change(row: Record) -> str:
    value = row.number("change_us")
    if value is None:
        value = (row.number("after_us") or 0.0) - (row.number("before_us") or 0.0)
    sign, css = ("+", "bad") if value > 0 else ("\u2212", "good") if value < 0 else ("", "none")
    return f'<b class="{css}">{sign}{duration(abs(value) / 1e6)}</b>'
