"""Where a step goes: its phases on the host and on the device, callbacks by name; and the ceilings of its rate."""

from collections.abc import Mapping

from strobe.callbacks.columns import PHASES
from strobe.present.charts.rows import ROW, Segment, axis, stacked
from strobe.present.charts.scale import Scale
from strobe.present.charts.svg import line, meter, rect, svg, whisker
from strobe.present.format import duration, figure, interval, percent, size, times
from strobe.present.parts import Line, Paragraph, Part, Rows, Section, Table, Text, facts, more, named, note
from strobe.records.run import Record, as_number
from strobe.report.wording import ceiling_rates, entries, estimate_of

DEVICE = ("transfer", "forward", "backward", "optimizer", "idle")
FEWEST_CALLBACKS, MOST_CALLBACKS = 3, 8
_NOTABLE = 0.001  # share of a step from which on a callback is always listed
_BETWEEN = dict.fromkeys(("between", "other"), "epoch ends and the like")
_SHOWN = 0.005  # share of training from which on a part of it is listed
_ABOVE = 1.05  # of the lowest ceiling; what a measurement may be off
_FARTHEST = 3.0  # times the measured rate; a ceiling beyond is drawn as one that goes on
_NAMES = {
    "loader": ("Loader alone", "the same loader, nobody trains"),
    "model": ("Model alone", "one cached batch, replayed"),
    "transfer": ("Transfer alone", "one batch to the device"),
    "joint": ("Both on these cores", "loader and model together"),
    "measured": ("This run", "as it trained"),
}


def step(record: Record) -> Section:
    """The section; it says so where no step was measured."""
    host = _seconds(record, "step_seconds", PHASES)
    total = record.number("step_seconds", "total") or 0.0
    title = "Where a step goes"
    if not host or total <= 0:
        empty = "No step was measured: all were warm-up or profiled, or there were none."
        return Section("step", title, "", [Paragraph(empty, "empty")])
    device = _seconds(record, "device_seconds", DEVICE)
    device_total = record.number("device_seconds", "total") or sum(device.values())
    widest = max(total, device_total if device else 0.0, sum(host.values()), sum(device.values()))
    parts: list[Part] = [stacked("Host" if device else "", segments(host), total, widest)]
    if device and device_total > 0:
        parts.append(stacked("Device", segments(device), device_total, widest))
    parts += [*_callbacks(record, total), *note(*_between(record, total))]
    steps = record.count("steps", "measured")
    about = (
        f"Mean of {steps:,} measured steps; warm-up and profiled steps are left out." if steps else "Mean of a step."
    )
    if device:
        about += " Host: when work is submitted. Device: when it is done, by CUDA events."
    return Section("step", title, about, parts)


def attribution(record: Record) -> Section:
    """The parts of training, from what a perfect run would not spend to what it would; nothing in older records."""
    parts = [(one, share) for one in entries(record, "attribution") if (share := one.number("share") or 0.0) >= _SHOWN]
    pairs = [
        (
            one.text("name") or "",
            [
                Text(percent(share), small=[f" {duration(one.number('seconds') or 0.0)} a step"]),
                Text(after=meter(share)),
            ],
        )
        for one, share in parts
    ]
    about = "Where training time goes, the largest part first; computing is what a perfect run would do too."
    return Section("attribution", "From this run to a perfect one", about, facts(pairs))


def segments(seconds: Mapping[str, float]) -> list[Segment]:
    """Phases as parts of a bar, each with its colour."""
    return [
        Segment(
            "between steps" if phase == "between" else phase.replace("_", " "),
            phase if phase in PHASES else "idle" if phase in {"idle", "between"} else "other",
            value,
        )
        for phase, value in seconds.items()
    ]


def _seconds(record: Record, key: str, phases: tuple[str, ...]) -> dict[str, float]:
    """The known phases in their order, then others by name; negative and missing ones are left out."""
    found = record.mapping(key)
    names = [*phases, *(name for name in found if name not in phases and name != "total")]
    values = {name: as_number(found.get(name)) for name in names}
    return {name: value for name, value in values.items() if value is not None and value >= 0}


def _callbacks(record: Record, total: float) -> list[Part]:
    means = [(mean, entry) for entry in entries(record, "callbacks") if (mean := entry.number("mean"))]
    if not means:
        return []
    means.sort(key=lambda pair: -pair[0])
    notable = sum(mean >= _NOTABLE * total for mean, _ in means)
    count = min(MOST_CALLBACKS, max(FEWEST_CALLBACKS, notable))
    rows = []
    for mean, entry in means[:count]:
        longest, calls = entry.number("longest"), entry.number("calls")
        name, kind = named(entry.text("name") or "unnamed"), Text((entry.text("kind") or "")[:40], "small")
        told = ("" if longest is None else duration(longest), "" if calls is None else f"{calls:,.0f}")
        rows.append((name, kind, duration(mean), percent(mean / total), *told))
    left = sum(mean for mean, _ in means[count:])
    heads = ("Callbacks, loggers and hooks", "", "#Mean a step", "#Share", "#Longest", "#Steps with it")
    return [Table(heads, rows, "hooks"), *more(len(means) - count, "of them", f", together {duration(left)} a step")]


def _between(record: Record, total: float) -> list[str]:
    """What comes on top of the steps, and what only some of them pay."""
    parts = []
    for name in record.mapping("between_seconds"):
        if value := record.number("between_seconds", name):
            share = f"{'+' * (value / total >= 0.005)}{percent(value / total)}"
            parts.append(f"{duration(value)} of {_BETWEEN.get(name, name)} ({share})")
    lines = [f"Between steps, spread over all: {' and '.join(parts)}."] if parts else []
    if first := record.number("first_step_seconds"):
        lines.append(f"The run's first step took {duration(first)}, {first / total:,.1f} times a later one.")
    starts, wait = record.count("epoch_starts", "count"), record.number("epoch_starts", "data_wait")
    if starts and wait is not None:
        lines.append(f"The first step of an epoch waits {duration(wait)} for data (mean of {starts:,}).")
    updates = record.number("updates")
    if updates is not None and 0 < updates < 1:
        lines.append(f"The optimizer stepped in {percent(updates)} of the steps; its time is spread over all of them.")
    return lines


def ceilings(record: Record) -> Section:
    """The section: a row for each rate on one scale; without ceilings, why there are none."""
    intervals, why = record.mapping("ceilings", "intervals"), record.text("ceilings", "reason")
    limits = {key: (value, *_pair(intervals.get(key))) for key, value in ceiling_rates(record).items()}
    rate, low, high = estimate_of(record, "images_per_second")
    if not limits:
        reason = why or "They were not measured in this run; ceilings=true measures them."
        return Section("ceilings", "Ceilings", "", [Paragraph(reason, "empty")] if rate or why else [])
    found = limits | ({"measured": (rate, low, high)} if rate else {})
    scale = Scale(0.0, 1.12 * max(value for value, *_ in found.values() if not rate or value <= _FARTHEST * rate))
    rows = Rows([_row(key, *found[key], scale.end, rate) for key in found], axis(scale, scale.marks(5)), "images/s")
    about = "Images/s with one side of training taken away; whiskers are 95% intervals."
    if took := record.number("ceilings", "seconds"):
        about += f" Measuring took {duration(took)} after training."
    return Section("ceilings", "Ceilings", about, [rows, *_words(record, rate), *_alternatives(record)])


def _row(  # noqa: PLR0917
    key: str, rate: float, low: float | None, high: float | None, top: float, measured: float | None
) -> Line:
    """A bar from 0 to ``top`` with its interval; the ``measured`` rate crosses all others as a line."""
    (name, hint), share, middle = _NAMES[key], rate / top, ROW / 2 + 1
    parts = [rect(0, 6, min(1.0, share), ROW - 10, f"fill rate-{key}")]
    if share > 1:  # it goes on
        parts += [rect(0.965 + 0.012 * number, 0, 0.005, ROW + 2, "gap") for number in (0, 1)]
    elif low is not None and high is not None:
        first, last = sorted((max(0.0, min(1.0, low / top)), max(0.0, min(1.0, high / top))))
        parts += whisker(first, last, middle)
    if measured and key != "measured":
        parts.append(line(measured / top, 0, measured / top, ROW + 2, "reference"))
    spread, value = interval(low, high), figure(rate)
    drawing = svg(ROW + 2, f"{name}: {value} images/s" + (f", {spread}" if spread else ""), parts)
    return Line(Text(name, "b", small=[hint]), drawing, Text(value, "b", small=[spread or "no interval"]), key)


def lowest(record: Record) -> str:
    """The lowest ceiling in words; empty where none was measured."""
    rate, name = _lowest(record)
    return f"{figure(rate)} images/s: {name}" if name else ""


def _lowest(record: Record) -> tuple[float, str]:
    found = [(rate, _NAMES[key][0].lower()) for key, rate in ceiling_rates(record).items()]
    return min(found, key=lambda pair: pair[0], default=(0.0, ""))


def _pair(value: object) -> tuple[float | None, float | None]:
    if not (isinstance(value, list | tuple) and len(value) == 2):
        return None, None
    return as_number(value[0]), as_number(value[1])


def _words(record: Record, measured: float | None) -> list[Part]:
    lines: list[str | Text] = []
    least, name = _lowest(record)
    share = record.number("efficiency")
    if share is None and measured:
        share = measured / least
    if share is not None:
        lines += ["This run reaches", Text(percent(share), "b"), f"of the lowest ceiling ({name})."]
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
