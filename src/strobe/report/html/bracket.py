"""The ceilings: how fast each side could go without the other, and where the run came to between them."""

from dataclasses import dataclass

from strobe.records.run import Record, as_number
from strobe.report.html.drawing import anchor_at, label, line, rect, svg, ticks, whisker
from strobe.report.html.pieces import interval, named, section, table
from strobe.report.html.text import duration, esc, percent, rate, size, times

ROW = 26  # pixels
_ABOVE = 1.05  # of the lowest ceiling; what a measurement may be off
_FARTHEST = 3.0  # times the measured rate; a ceiling beyond is drawn as one that goes on
_NAMES = {
    "loader": ("Loader alone", "the same loader, nobody trains"),
    "model": ("Model alone", "one cached batch, replayed"),
    "transfer": ("Transfer alone", "one batch to the device"),
    "joint": ("Both on these cores", "loader and model together"),
}


@dataclass(frozen=True)
class _Rate:
    name: str
    hint: str
    css: str
    value: float
    low: float | None
    high: float | None


def bracket(record: Record) -> str:
    """The section: a row for each rate on one scale; without ceilings, why there are none."""
    found = _rates(record)
    ceilings = [one for one in found if one.css != "measured"]
    why = record.text("ceilings", "reason")
    if not ceilings:
        if not found and not why:
            return ""
        reason = esc(why) if why else "They were not measured in this run; ceilings=true measures them."
        return section("ceilings", "Ceilings", "", f'<p class="empty">{reason}</p>')
    measured = next((one.value for one in found if one.css == "measured"), None)
    near = [one.value for one in found if not measured or one.value <= _FARTHEST * measured]
    top = 1.12 * max(near)
    rows = "".join(_row(one, top, measured) for one in found)
    body = f'<div class="bracket">{rows}{_axis(top)}</div>' + _words(record, ceilings, measured) + _alternatives(record)
    took = record.number("ceilings", "seconds")
    note = "Images/s with one side of training taken away; whiskers are 95% intervals."
    if took:
        note += f" Measuring took {duration(took)} after training."
    return section("ceilings", "Ceilings", note, body)


def lowest(record: Record) -> str:
    """The lowest ceiling in words; empty where none was measured."""
    ceilings = [one for one in _rates(record) if one.css != "measured"]
    least = min(ceilings, key=lambda one: one.value, default=None)
    return "" if least is None else f"{rate(least.value)} images/s: {least.name.lower()}"


def _rates(record: Record) -> list[_Rate]:
    found = []
    for key, (name, hint) in _NAMES.items():
        value = record.number("ceilings", key)
        if value is not None and value > 0:
            found.append(_Rate(name, hint, key, value, *_pair(record.mapping("ceilings", "intervals").get(key))))
    median = record.number("images_per_second", "median")
    if median is not None and median > 0:
        low, high = record.number("images_per_second", "low"), record.number("images_per_second", "high")
        found.append(_Rate("This run", "as it trained", "measured", median, low, high))
    return found


def _pair(value: object) -> tuple[float | None, float | None]:
    if not (isinstance(value, (list, tuple)) and len(value) == 2):
        return None, None
    return as_number(value[0]), as_number(value[1])


def _row(one: _Rate, top: float, measured: float | None) -> str:
    share, middle = one.value / top, ROW / 2
    parts = [rect(0, 6, min(1.0, share), ROW - 12, f"fill rate-{one.css}")]
    if share > 1:
        parts += [rect(0.965 + 0.012 * number, 0, 0.005, ROW, "gap") for number in (0, 1)]
    elif one.low is not None and one.high is not None:
        low, high = sorted((max(0.0, min(1.0, one.low / top)), max(0.0, min(1.0, one.high / top))))
        parts += whisker(low, high, middle)
    if measured and one.css != "measured":
        parts.append(line(measured / top, 0, measured / top, ROW, "reference"))
    spread = interval(one.low, one.high, rate)
    said = f"{one.name}: {rate(one.value)} images/s" + (f", {spread}" if spread else "")
    return (
        f'<div class="rate {one.css}"><p class="who"><b>{one.name}</b><small>{one.hint}</small></p>'
        f"{svg(ROW, said, parts)}"
        f'<p class="much"><b>{rate(one.value)}</b><small>{spread or "no interval"}</small></p></div>'
    )


def _axis(top: float) -> str:
    parts = []
    for share, value in ((value / top, value) for value in ticks(top, 4)):
        parts += [line(share, 0, share, 5, "tick"), label(share, 19, f"{value:,.10g}", "axis", anchor_at(share))]
    scale = svg(24, "images per second", parts)
    return f'<div class="rate axis"><p class="who"></p>{scale}<p class="much"><small>images/s</small></p></div>'


def _words(record: Record, ceilings: list[_Rate], measured: float | None) -> str:
    lines = []
    least = min(ceilings, key=lambda one: one.value)
    share = record.number("efficiency")
    if share is None and measured:
        share = measured / least.value
    if share is not None:
        lines.append(f"This run reaches <b>{percent(share)}</b> of the lowest ceiling ({least.name.lower()}).")
    if share is not None and share > _ABOVE:
        lines.append("More than a ceiling cannot be: the machine was slower while that was measured.")
    if record.flag("ceilings", "shared_cores"):
        words = "Loader and model compete for the same cores, so neither ceiling can be reached while both work"
        joint = record.number("ceilings", "joint")
        lines.append(f"{words}: together they can reach {rate(joint)} images/s." if joint else f"{words}.")
    cost = [
        f"{duration(seconds)} of a core by the {side}"
        for side in ("loader", "model")
        if (seconds := record.number("ceilings", "cpu_seconds", side))
    ]
    if cost:
        lines.append(f"An image costs {' and '.join(cost)}.")
    if weight := record.number("ceilings", "batch_bytes"):
        lines.append(f"A batch is {size(weight)} as the loader gives it.")
    return f'<p class="note">{" ".join(lines)}</p>' if lines else ""


def _alternatives(record: Record) -> str:
    """What else was measured, one side at a time."""
    rows = []
    for entry in record.items("ceilings", "alternatives"):
        value = as_number(entry.get("rate")) if isinstance(entry, dict) else None
        if value is None:
            continue
        given = entry.get("overrides")
        words = " ".join(str(part) for part in given) if isinstance(given, list) else ""
        side = str(entry.get("side") or "")
        spread = interval(*_pair(entry.get("interval")), rate)
        base = record.number("ceilings", side)
        against = times(value / base) if base else ""
        name = f"{named(words, 'code')}<small>{esc(side, 40)} alone</small>"
        rows.append((name, f"{rate(value)}<small>{spread}</small>", against))
    heads = ("Also measured", "#Images/s", "#Against this run's")
    return table(heads, rows) if rows else ""
