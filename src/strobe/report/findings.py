"""What to change: each finding with its evidence, its advice, what it is predicted to bring, and its command."""

from typing import Any

from strobe.diagnose import rank
from strobe.present.charts.svg import anchor_at, dot, label, line, rect, svg, whisker
from strobe.present.format import TIMES, interval, times
from strobe.present.parts import Card, Cards, Paragraph, Section
from strobe.records.run import Record, as_number

MOST = 20
_ROW = 30  # pixels
_EDGE = 0.02  # share of the drawing left free at either end


def findings(record: Record) -> Section:
    """The section; it says so where the record holds none."""
    found = [entry for entry in record.items("findings") if isinstance(entry, dict)]
    if not found:
        failed = record.text("status") == "failed"
        empty = Paragraph("This record holds no findings.", "empty")
        return Section("findings", "What to change", "", [] if failed else [empty])
    ends = [value for entry in found for value in _speedup(entry) if value is not None]
    scale = (min([1.0, *ends]), max([1.0, *ends]))
    cards = [_card(record, entry, number, scale) for number, entry in enumerate(found[:MOST], 1)]
    about = "Ranked by what each is predicted to bring; the bar is the speed-up of the whole run with its interval."
    return Section("findings", "What to change", about, [Cards(cards)])


def _speedup(entry: dict[str, Any]) -> tuple[float | None, float | None, float | None]:
    """Median, low and high, where they are known and make sense."""
    given = entry.get("predicted_speedup")
    if not isinstance(given, dict):
        return None, None, None
    median, low, high = (as_number(given.get(key)) for key in ("median", "low", "high"))
    return (median, low, high) if median is not None and median > 0 else (None, None, None)


def _card(record: Record, entry: dict[str, Any], number: int, scale: tuple[float, float]) -> Card:
    cause = str(entry.get("cause") or "")
    fine, named = cause == "nothing", cause.replace("_", " ")
    title = str(entry.get("title") or named or "A finding without a name")
    texts = [Paragraph(str(entry[key]), key) for key in ("evidence", "advice") if entry.get(key)]
    given = entry.get("overrides")
    command = rank.command(record, [str(part) for part in given]) if isinstance(given, list) and given else ""
    median, low, high = _speedup(entry)
    if median is None or fine:
        return Card("✓" if fine else f"{number}", title, named, texts, fine, command=command)
    spread = interval(low, high, times) or "no interval"
    start, width = scale[0], (scale[1] - scale[0]) or 1.0

    def x(value: float) -> float:
        return _EDGE + (1 - 2 * _EDGE) * (value - start) / width

    base, one, gain = _ROW / 2, x(1), x(median)
    drawn = [line(one, 2, one, _ROW - 2, "one"), rect(min(one, gain), base - 5, abs(gain - one), 10, "fill gain")]
    if low is not None and high is not None:
        drawn += whisker(x(low), x(high), base)
    drawn += [dot(gain, base, 3.6, "dot gain"), label(one, _ROW + 11, f"1{TIMES}, as now", "axis", anchor_at(one))]
    picture = svg(_ROW + 14, f"predicted speed-up {times(median)}, {spread}", drawn)
    return Card(f"{number}", title, named, texts, False, times(median), f"predicted, {spread}", picture, command)
