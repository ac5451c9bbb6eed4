"""The ceilings: how fast each side could go without the other, and where the run came to between them."""

from dataclasses import dataclass

from strobe.present.charts.rows import ROW, axis
from strobe.present.charts.scale import Scale
from strobe.present.charts.svg import line, rect, svg, whisker
from strobe.present.format import duration, figure, interval, percent, size, times
from strobe.present.parts import Line, Paragraph, Part, Rows, Section, Table, Text, named, note
from strobe.records.run import Record, as_number
from strobe.report.wording import ceiling_rates, entries, rate_of

_ABOVE = 1.05  # of the lowest ceiling; what a measurement may be off
_FARTHEST = 3.0  # times the measured rate; a ceiling beyond is drawn as one that goes on
_NAMES = {
    "loader": ("Loader alone", "the same loader, nobody trains"),
    "model": ("Model alone", "one cached batch, replayed"),
    "transfer": ("Transfer alone", "one batch to the device"),
    "joint": ("Both on these cores", "loader and model together"),
}


@dataclass(frozen=True)
class Rate:
    """A rate in images/s with its interval; ``css``: measured, or the name of a ceiling."""

    name: str
    hint: str
    css: str
    value: float
    low: float | None
    high: float | None


def ceilings(record: Record) -> Section:
    """The section: a row for each rate on one scale; without ceilings, why there are none."""
    known = record.mapping("ceilings", "intervals")
    limits = [Rate(*_NAMES[key], key, value, *_pair(known.get(key))) for key, value in ceiling_rates(record).items()]
    median, low, high = rate_of(record)
    measured = [Rate("This run", "as it trained", "measured", median, low, high)] if median else []
    why = record.text("ceilings", "reason")
    if not limits:
        reason = why or "They were not measured in this run; ceilings=true measures them."
        return Section("ceilings", "Ceilings", "", [Paragraph(reason, "empty")] if measured or why else [])
    rate = measured[0].value if measured else None
    top = 1.12 * max(one.value for one in [*limits, *measured] if not rate or one.value <= _FARTHEST * rate)
    scale = Scale(0.0, top)
    rows = Rows([_row(one, top, rate) for one in [*limits, *measured]], axis(scale, scale.marks(5)), "images/s")
    about = "Images/s with one side of training taken away; whiskers are 95% intervals."
    if took := record.number("ceilings", "seconds"):
        about += f" Measuring took {duration(took)} after training."
    return Section("ceilings", "Ceilings", about, [rows, *_words(record, limits, rate), *_alternatives(record)])


def _row(one: Rate, top: float, measured: float | None) -> Line:
    """A bar from 0 to ``top`` with its interval; the ``measured`` rate crosses all others as a line."""
    share, middle = one.value / top, ROW / 2 + 1
    parts = [rect(0, 6, min(1.0, share), ROW - 10, f"fill rate-{one.css}")]
    if share > 1:  # it goes on
        parts += [rect(0.965 + 0.012 * number, 0, 0.005, ROW + 2, "gap") for number in (0, 1)]
    elif one.low is not None and one.high is not None:
        low, high = sorted((max(0.0, min(1.0, one.low / top)), max(0.0, min(1.0, one.high / top))))
        parts += whisker(low, high, middle)
    if measured and one.css != "measured":
        parts.append(line(measured / top, 0, measured / top, ROW + 2, "reference"))
    spread, value = interval(one.low, one.high), figure(one.value)
    drawing = svg(ROW + 2, f"{one.name}: {value} images/s" + (f", {spread}" if spread else ""), parts)
    much = Text(value, "b", small=[spread or "no interval"])
    return Line(Text(one.name, "b", small=[one.hint]), drawing, much, one.css)


def lowest(record: Record) -> str:
    """The lowest ceiling in words; empty where none was measured."""
    limits = ceiling_rates(record)
    least = min(limits, key=lambda name: limits[name], default=None)
    return "" if least is None else f"{figure(limits[least])} images/s: {_NAMES[least][0].lower()}"


def _pair(value: object) -> tuple[float | None, float | None]:
    if not (isinstance(value, list | tuple) and len(value) == 2):
        return None, None
    return as_number(value[0]), as_number(value[1])


def _words(record: Record, limits: list[Rate], measured: float | None) -> list[Part]:
    lines: list[str | Text] = []
    least = min(limits, key=lambda one: one.value)
    share = record.number("efficiency")
    if share is None and measured:
        share = measured / least.value
    if share is not None:
        lines += ["This run reaches", Text(percent(share), "b"), f"of the lowest ceiling ({least.name.lower()})."]
        if share > _ABOVE:
            lines.append("More than a ceiling cannot be: the machine was slower while that was measured.")
    if record.flag("ceilings", "shared_cores"):
        words = "Loader and model compete for the same cores, so neither ceiling can be reached while both work"
        joint = record.number("ceilings", "joint")
        lines.append(f"{words}: together they can reach {figure(joint)} images/s." if joint else f"{words}.")
    cost = [
        f"{duration(seconds)} of a core by the {side}"
        for side in ("loader", "model")
        if (seconds := record.number("ceilings", "cpu_seconds", side))
    ]
    if cost:
        lines.append(f"An image costs {' and '.join(cost)}.")
    if weight := record.number("ceilings", "batch_bytes"):
        lines.append(f"A batch is {size(weight)} as the loader gives it.")
    return note(*lines)


def _alternatives(record: Record) -> list[Part]:
    """What else was measured, one side at a time."""
    rows = []
    for entry in entries(record, "ceilings", "alternatives"):
        if (value := entry.number("rate")) is not None:
            side, base = entry.text("side") or "", record.number("ceilings", entry.text("side") or "")
            name = named(" ".join(map(str, entry.items("overrides"))), "code", f"{side} alone")
            spread = interval(*_pair(entry.summary.get("interval")))
            rows.append((name, Text(figure(value), small=[spread]), times(value / base) if base else ""))
    return [Table(("Also measured", "#Images/s", "#Against this run's"), rows)] if rows else []
