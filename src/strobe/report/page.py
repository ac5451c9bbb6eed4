"""``report.html``: one self-contained file about a run, from its records alone. Imports no torch."""

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from strobe.diagnose.rank import gain, is_measured
from strobe.present.charts.scale import Scale
from strobe.present.charts.svg import anchor_at, dot, label, line, rect, svg, whisker
from strobe.present.format import TIMES, counted, cut, duration, figure, interval, percent, times
from strobe.present.page import render as rendered
from strobe.present.page import write_whole
from strobe.present.parts import Cards, Paragraph, Section, Tile
from strobe.records.run import Record, load_record, rate_of
from strobe.records.tables import File, Operators, Rows, files_of, operators_of, steps_of
from strobe.report.evidence import memory, metrics, operators, trace
from strobe.report.footer import environment, listing, traces
from strobe.report.ranks import ranks
from strobe.report.steps import attribution, ceilings, lowest_ceiling, step
from strobe.report.throughput import throughput
from strobe.report.wording import (
    ceiling_rates,
    command_of,
    entries,
    estimate_of,
    fine,
    median_step,
    remedies,
    share_of_ceiling,
    subject,
    trust,
    unit_of,
    verdict,
)

NAME = "report.html"
STATUS = {"completed": "good", "interrupted": "fair", "failed": "bad"}
LONGEST_HEADLINE = 240  # characters; a longer first sentence is set as text
MOST = 20  # findings
_ROW = 30  # pixels
_EDGE = 0.02  # share of the drawing left free at either end


def write_report(run_dir: Path, record: Record | None = None) -> Path:
    """Write ``report.html`` into a run's directory, whole or not at all, and return its path.

    ``record``: what to show instead of the run's own record, such as one with new findings.

    Raises:
        DataError: The directory holds no record, or one that is damaged or of another program or version.
        OSError: The file cannot be written.
    """
    record = record or load_record(run_dir)
    path = run_dir.absolute()
    name = str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)  # as one would type it
    text = render(record, steps_of(run_dir), operators_of(run_dir), name=name, files=files_of(run_dir))
    return write_whole(run_dir / NAME, text)


def render(
    record: Record,
    rows: Rows = (),
    slowest: Operators | None = None,
    *,
    name: str = "",
    files: Sequence[File] = (),
) -> str:
    """The page as HTML; a pure function, which leaves out whatever the record lacks.

    ``name`` is the run's directory, for commands to copy; ``rows`` are its steps.
    """
    sections = [
        findings(record),
        step(record),
        attribution(record),
        ranks(record),
        ceilings(record),
        throughput(record, rows),
        operators(slowest),
        trace(record),
        memory(record),
        metrics(record),
        traces(record, name, files),
        environment(record),
        listing(files),
    ]
    page = head(record)
    title = ": ".join(filter(None, (PurePath(name).name, page["said"])))  # in a row of tabs the run comes first
    return rendered("report.html", {**page, "title": title, "name": name, "sections": sections})


def head(record: Record) -> dict[str, Any]:
    """What ran, how it ended, the verdict, how far to trust it, and the main figures."""
    status, kind = record.text("status") or "unknown", record.text("error", "type") or ""
    message = (record.text("error", "message") or "").strip()
    first, rest = _told(record)
    error = {
        "css": STATUS.get(status, "fair"),
        "title": "What stopped it" if status == "interrupted" else "What went wrong",
        "kind": "" if status == "interrupted" and message else kind,
        "message": message,
    }
    return {
        "said": first,
        "what": " · ".join(subject(record)),
        "badges": [(STATUS.get(status, "fair"), status)],
        "long": len(first) > LONGEST_HEADLINE,
        "rest": rest,
        "trust": trust(record),
        "error": error if (kind or message) and not first.endswith(message or kind) else None,
        "tiles": _tiles(record),
    }


def _told(record: Record) -> tuple[str, str]:
    """The headline, and what follows it: of a failed run its error; the longest phase where there is no verdict."""
    first, rest = (text.replace(" -> ", " → ") for text in verdict(record))
    kind = record.text("error", "type")
    if record.text("status") == "failed" and kind:
        said = (record.text("error", "message") or "").strip().split("\n")[0]
        _, _, until = first.partition("; until then: ")
        return cut(
            f"{kind}: {said}" if said else f"The run failed: {kind}", LONGEST_HEADLINE
        ), until and f"Until then: {until} {rest}"
    if first:
        return first, rest
    shares = {name: value for name in record.mapping("step_seconds") if (value := record.number("step_seconds", name))}
    total = shares.pop("total", None)
    if not total or total < 0 or not shares:
        return "No step was measured.", "All steps were warm-up or profiled, or there were none."
    longest = max(shares, key=lambda name: shares[name])
    first = f"The longest phase of a step is {longest.replace('_', ' ')}: {percent(shares[longest] / total)} of it."
    return first, "This record holds no verdict."


def _tiles(record: Record) -> list[Tile]:
    """Images/s, the share of the ceiling, the step, the share of waiting; nothing where no step was measured."""
    tiles = []
    if rate := rate_of(record):
        tiles.append(Tile("Training", figure(rate), unit_of(record), median_step(record)))
        share = share_of_ceiling(record)
        why = lowest_ceiling(record) if share is not None else "not known: see Ceilings"
        if ceiling_rates(record):
            tiles.append(Tile("Of the ceiling", "-" if share is None else percent(share), "", why))
    total = record.number("step_seconds", "total")
    if total is not None and total > 0:
        much, _, unit = duration(total).partition(" ")
        steps = record.count("steps", "measured")
        tiles.append(Tile("Mean step", much, unit, f"of {counted(steps, 'step')}" if steps else ""))
        if (wait := record.number("step_seconds", "data_wait")) is not None:
            tiles.append(Tile("Waiting for data", percent(wait / total), "", f"{duration(wait)} of each step"))
    return tiles


def findings(record: Record) -> Section:
    """The section; empty where the record holds none."""
    found = entries(record, "findings")
    ends = [value for entry in found for value in estimate_of(entry, "predicted_speedup") if value is not None]
    scale = Scale(min([1.0, *ends]), max([1.0, *ends]))
    cards = [_card(record, entry, number, scale) for number, entry in enumerate(found[:MOST], 1)]
    about = "The largest part of training first." if len(cards) > 1 else ""
    if any(card.get("drawing") for card in cards):
        level = next((level for entry in found if (level := entry.number("predicted_speedup", "level"))), None)
        about += " A bar is the predicted speed-up of the whole run with "
        about += f"its {percent(level)} interval." if level else "an interval that is not calibrated."
    return Section("findings", "What to change", about, [Cards(cards)] if cards else [])


def _card(record: Record, entry: Record, number: int, scale: Scale) -> Mapping[str, Any]:
    cause = entry.text("cause") or ""
    nothing, named = cause == "nothing", cause.replace("_", " ")
    good = nothing and fine(record)
    median, low, high = estimate_of(entry, "predicted_speedup")
    card = {
        "rank": "✓" if good else "-" if nothing else f"{number}",
        "title": entry.text("title") or named or "A finding without a name",
        "cause": "" if nothing else named,
        # Of nothing to fix the headline tells the evidence.
        "texts": [Paragraph(text, key) for key in ("evidence", "advice")[nothing:] if (text := entry.text(key))]
        + [Paragraph(text, "advice") for text in remedies(entry.summary)],
        "fine": "fine" * good,
        "command": command_of(record, entry.summary),
    }
    promised = "" if nothing else gain(entry.summary)
    if median is None or not promised or not (entry.items("overrides") or is_measured(entry.summary)):
        return card | {"gain": promised.replace("x", TIMES), "hint": "at most, without it", "drawing": ""}
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
