"""The ceilings: how fast each side could go without the other, and where the run came to between them."""

from strobe.present.charts.rows import Rate, rates
from strobe.present.format import duration, figure, interval, percent, size, times
from strobe.present.parts import Paragraph, Part, Section, Table, Text, named, note
from strobe.records.run import Record, as_number
from strobe.report.wording import ceiling_rates

_ABOVE = 1.05  # of the lowest ceiling; what a measurement may be off
_FARTHEST = 3.0  # times the measured rate; a ceiling beyond is drawn as one that goes on
_NAMES = {
    "loader": ("Loader alone", "the same loader, nobody trains"),
    "model": ("Model alone", "one cached batch, replayed"),
    "transfer": ("Transfer alone", "one batch to the device"),
    "joint": ("Both on these cores", "loader and model together"),
}


def ceilings(record: Record) -> Section:
    """The section: a row for each rate on one scale; without ceilings, why there are none."""
    found = _rates(record)
    limits = [one for one in found if one.css != "measured"]
    why = record.text("ceilings", "reason")
    if not limits:
        reason = why or "They were not measured in this run; ceilings=true measures them."
        return Section("ceilings", "Ceilings", "", [Paragraph(reason, "empty")] if found or why else [])
    measured = next((one.value for one in found if one.css == "measured"), None)
    near = [one.value for one in found if not measured or one.value <= _FARTHEST * measured]
    about = "Images/s with one side of training taken away; whiskers are 95% intervals."
    if took := record.number("ceilings", "seconds"):
        about += f" Measuring took {duration(took)} after training."
    parts = [rates(found, 1.12 * max(near), measured), *_words(record, limits, measured), *_alternatives(record)]
    return Section("ceilings", "Ceilings", about, parts)


def lowest(record: Record) -> str:
    """The lowest ceiling in words; empty where none was measured."""
    limits = ceiling_rates(record)
    least = min(limits, key=lambda name: limits[name], default=None)
    return "" if least is None else f"{figure(limits[least])} images/s: {_NAMES[least][0].lower()}"


def _rates(record: Record) -> list[Rate]:
    found = []
    for key, value in ceiling_rates(record).items():
        found.append(Rate(*_NAMES[key], key, value, *_pair(record.mapping("ceilings", "intervals").get(key))))
    median, low, high = (record.number("images_per_second", end) for end in ("median", "low", "high"))
    if median is not None and median > 0:
        found.append(Rate("This run", "as it trained", "measured", median, low, high))
    return found


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
    for entry in record.items("ceilings", "alternatives"):
        value = as_number(entry.get("rate")) if isinstance(entry, dict) else None
        if value is None:
            continue
        given, side = entry.get("overrides"), str(entry.get("side") or "")
        words = " ".join(str(part) for part in given) if isinstance(given, list) else ""
        spread, base = interval(*_pair(entry.get("interval"))), record.number("ceilings", side)
        name = named(words, "code", f"{side} alone")
        rows.append((name, Text(figure(value), small=[spread]), times(value / base) if base else ""))
    return [Table(("Also measured", "#Images/s", "#Against this run's"), rows)] if rows else []
