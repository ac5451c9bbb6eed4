"""What to change: each finding with its evidence, its advice, what it is predicted to bring, and its command."""

from typing import Any

from strobe.diagnose import rank
from strobe.records.run import Record, as_number
from strobe.report.html.drawing import anchor_at, dot, label, line, rect, svg, whisker
from strobe.report.html.pieces import command, section
from strobe.report.html.text import TIMES, esc, times

ROW = 30  # pixels
MOST = 20
_EDGE = 0.02  # share of the drawing left free at either end


def findings(record: Record) -> str:
    """The section; it says so where the record holds none."""
    found = [entry for entry in record.items("findings") if isinstance(entry, dict)]
    if not found:
        if record.text("status") == "failed":
            return ""
        body = '<p class="empty">This record holds no findings.</p>'
        return section("findings", "What to change", "", body)
    ends = [value for entry in found for value in _speedup(entry) if value is not None]
    scale = (min([1.0, *ends]), max([1.0, *ends]))
    cards = [_card(record, entry, number, scale) for number, entry in enumerate(found[:MOST], 1)]
    note = "Ranked by what each is predicted to bring; the bar is the speed-up of the whole run with its interval."
    return section("findings", "What to change", note, f'<ol class="findings">{"".join(cards)}</ol>')


def _speedup(entry: dict[str, Any]) -> tuple[float | None, float | None, float | None]:
    """Median, low and high, where they are known and make sense."""
    given = entry.get("predicted_speedup")
    if not isinstance(given, dict):
        return None, None, None
    median, low, high = (as_number(given.get(key)) for key in ("median", "low", "high"))
    if median is None or median <= 0:
        return None, None, None
    return median, low, high


def _card(record: Record, entry: dict[str, Any], number: int, scale: tuple[float, float]) -> str:
    cause = str(entry.get("cause") or "")
    fine = cause == "nothing"
    title = entry.get("title") or cause.replace("_", " ") or "A finding without a name"
    text = "".join(f'<p class="{key}">{esc(entry[key], 4000)}</p>' for key in ("evidence", "advice") if entry.get(key))
    overrides = [str(part) for part in given] if isinstance(given := entry.get("overrides"), list) else []
    badge = "✓" if fine else f"{number}"
    return (
        f'<li class="{"fine" if fine else ""}"><div class="rank">{badge}</div><div>'
        f'<h3>{esc(title)} <small class="cause">{esc(cause.replace("_", " "))}</small></h3>{text}'
        f"{_prediction(entry, scale, fine)}{command(rank.command(record, overrides)) if overrides else ''}</div></li>"
    )


def _prediction(entry: dict[str, Any], scale: tuple[float, float], fine: bool) -> str:
    median, low, high = _speedup(entry)
    if median is None or fine:
        return ""
    spread = f"{times(low)} to {times(high)}" if low is not None and high is not None else "no interval"
    start, width = scale[0], (scale[1] - scale[0]) or 1.0

    def x(value: float) -> float:
        return _EDGE + (1 - 2 * _EDGE) * (value - start) / width

    base, parts = ROW / 2, [line(x(1), 2, x(1), ROW - 2, "one")]
    parts.append(rect(min(x(1), x(median)), base - 5, abs(x(median) - x(1)), 10, "fill gain"))
    if low is not None and high is not None:
        parts += whisker(x(low), x(high), base)
    parts += [
        dot(x(median), base, 3.6, "dot gain"),
        label(x(1), ROW + 11, f"1{TIMES}, as now", "axis", anchor_at(x(1))),
    ]
    return (
        f'<div class="prediction"><p><b>{times(median)}</b><small>predicted, {spread}</small></p>'
        f"{svg(ROW + 14, f'predicted speed-up {times(median)}, {spread}', parts)}</div>"
    )
