"""What to change: a run's findings, each with its evidence, remedies and prediction."""

from collections.abc import Mapping
from typing import Any

from strobe.diagnose.promise import bound, gain
from strobe.present.charts.scale import Scale
from strobe.present.charts.svg import anchor_at, dot, label, line, rect, svg, whisker
from strobe.present.format import TIMES, interval, percent, times
from strobe.present.parts import Cards, Paragraph, Section
from strobe.records.run import Record
from strobe.report.wording import command_of, entries, estimate_of, fine, remedies

MOST = 20  # findings
_ROW = 30  # pixels
_EDGE = 0.02  # share of the drawing left free at either end


def findings(record: Record) -> Section:
    """The section; empty where the record holds none."""
    known = entries(record, "findings")
    ends = [value for entry in known for value in estimate_of(entry, "predicted_speedup") if value is not None]
    scale = Scale(min([1.0, *ends]), max([1.0, *ends]))
    cards = [_card(record, entry, number, scale) for number, entry in enumerate(known[:MOST], 1)]
    about = "The largest avoidable cost first." if len(cards) > 1 else ""
    if any(card.get("drawing") for card in cards):
        level = next((level for entry in known if (level := entry.number("predicted_speedup", "level"))), None)
        about += " A bar is the predicted speed-up of the whole run with "
        about += f"its {percent(level)} interval." if level else "an interval that is not calibrated."
    return Section("findings", "What to change", about, [Cards(cards)] if cards else [])


def _card(record: Record, entry: Record, number: int, scale: Scale) -> Mapping[str, Any]:
    cause = entry.text("cause") or ""
    nothing, named = cause == "nothing", cause.replace("_", " ")
    good = nothing and fine(record)
    median, low, high = estimate_of(entry, "predicted_speedup")
    most = bound(entry.summary)
    texts = [(entry.text("evidence"), "evidence"), (most and f"{most}.", "evidence"), (entry.text("advice"), "advice")]
    texts += [(text, "advice") for text in remedies(entry.summary)]
    card = {
        "rank": "✓" if good else "-" if nothing else f"{number}",
        "title": entry.text("title") or named or "A finding without a name",
        "cause": "" if nothing else named,
        # Of nothing to fix the headline tells the evidence.
        "texts": [Paragraph(text, css) for text, css in texts[nothing:] if text],
        "fine": "fine" * good,
        "command": command_of(record, entry.summary),
        "gain": "",
    }
    promised = "" if nothing else gain(entry.summary)
    if median is None or not promised:
        return card
    spread = interval(low, high, times) or "no interval"

    def x(value: float) -> float:
        return _EDGE + (1 - 2 * _EDGE) * scale.place(value)

    base, one, end = _ROW / 2, x(1), x(median)
    drawn = [line(one, 2, one, _ROW - 2, "one"), rect(min(one, end), base - 5, abs(end - one), 10, "fill gain")]
    if low is not None and high is not None:
        drawn += whisker(x(low), x(high), base)
    drawn += [dot(end, base, 3.6, "dot gain"), label(one, _ROW + 11, f"1{TIMES}, as now", "axis", anchor_at(one))]
    drawing = svg(_ROW + 14, f"predicted speed-up {times(median)}, {spread}", drawn)
    return card | {"gain": times(median), "hint": f"predicted, {spread}", "drawing": drawing}
