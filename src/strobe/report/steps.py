"""Where a step goes: its phases on the host and on the device, callbacks by name; and the ceilings of its rate."""

from collections.abc import Mapping

from strobe.callbacks.columns import PHASES
from strobe.diagnose.candidates import estimate_of_loader, workers_of
from strobe.diagnose.causes import EXPLAINED
from strobe.diagnose.cores import taken
from strobe.diagnose.predict import WORTH, Step, step_of, with_model
from strobe.diagnose.promise import gain
from strobe.diagnose.rank import ceiling_rates
from strobe.diagnose.symptoms import too_low
from strobe.measure import WIDEST
from strobe.overrides import key_of
from strobe.present.charts.rows import ROW, Segment, axis, stacked
from strobe.present.charts.scale import Scale, axis_of_rates
from strobe.present.charts.svg import line, meter, rect, svg, whisker
from strobe.present.format import counted, duration, figure, interval, listed, percent, size, times
from strobe.present.parts import Line, Paragraph, Part, Rows, Section, Table, Text, facts, more, named, note
from strobe.records.run import Alternative, Record, as_number, rate_of
from strobe.report.wording import all_rates, drift, entries, lowest, phase_of, share_of_ceiling, unit_of

DEVICE = ("transfer", "prepare", "forward", "backward", "optimizer", "idle")
FEWEST_CALLBACKS, MOST_CALLBACKS = 3, 8
_NOTABLE = 0.001  # share of a step from which on a callback is always listed
_BETWEEN = dict.fromkeys(("between", "other"), "epoch ends and the like")
_LONGER = 1.5  # times a later step, from which on the first one is named
_SHOWN = 0.005  # share of training from which on a part of it is listed
_NAMES = {
    "storage": ("Storage alone", "the same objects, not decoded"),
    "loader": ("Loader alone", "the same loader, without training"),
    "model": ("Model alone", "one cached batch, replayed"),
    "transfer": ("Transfer alone", "one batch to the device"),
    "joint": ("Both on these cores", "loader and model together"),
    "measured": ("This run", "as it trained"),
}


def step(record: Record) -> Section:
    """The section; empty where no step was measured."""
    host = _seconds(record, "step_seconds", PHASES)
    total = record.number("step_seconds", "total") or 0.0
    title = "Where a step goes"
    if not host or total <= 0:
        return Section("step", title, "", [])
    device = _seconds(record, "device_seconds", DEVICE)
    device_total = record.number("device_seconds", "total") or sum(device.values())
    widest = max(total, device_total if device else 0.0, sum(host.values()), sum(device.values()))
    parts: list[Part] = [stacked("Host" if device else "", segments(host, record), total, widest)]
    if device and device_total > 0:
        parts.append(stacked("Device", segments(device, record), device_total, widest))
    parts += [*_callbacks(record, total), *note(*_between(record, total))]
    steps = record.count("steps", "measured")
    about = (
        f"Mean of {steps:,} measured steps; warm-up and profiled steps are left out." if steps else "Mean of a step."
    )
    if recompiled := record.count("recompiled"):
        about += f" torch.compile compiled anew in {counted(recompiled, 'step')} after the first ones."
    if device:
        about += " Host: when work is submitted. Device: when it is done, by CUDA events."
    return Section("step", title, about, parts)


def attribution(record: Record) -> Section:
    """The parts of training, from what a perfect run would not spend to what it would; empty where unknown."""
    parts = [(one, share) for one in entries(record, "attribution") if (share := one.number("share") or 0.0) >= _SHOWN]
    pairs = []
    for one, share in parts:
        why = _unadvised(record, one.text("cause") or "", share)
        text = Text(percent(share), small=[f" {duration(one.number('seconds') or 0.0)} a step{why}"])
        pairs.append((one.text("name") or "", [text, Text(after=meter(share))]))
    about = "Where training time goes, the largest part first; computing is what a perfect run would do too."
    return Section("attribution", "From this run to a perfect one", about, facts(pairs))


def _unadvised(record: Record, cause: str, share: float) -> str:
    """Why a part that is larger than the first finding's is none itself; empty for any other part."""
    found = {one.text("cause"): one.number("lost") or share for one in entries(record, "findings")}
    if cause in (*found, "computing") or share <= next(iter(found.values()), share):
        return ""
    why = (why for symptom, stronger, why in EXPLAINED if symptom == cause and stronger in found)
    return f"; {next(why, 'no change is sure to avoid it')}"


def segments(seconds: Mapping[str, float], record: Record | None = None) -> list[Segment]:
    """Phases as parts of a bar, each with its colour."""
    return [
        Segment(
            phase_of(record or Record({}), phase),
            phase if phase in PHASES else "idle" if phase in {"idle", "between"} else "other",
            value,
        )
        for phase, value in seconds.items()
    ]


def _seconds(record: Record, key: str, phases: tuple[str, ...]) -> dict[str, float]:
    """The known phases in their order, then others by name; negative and missing ones are left out."""
    seconds = record.mapping(key)
    names = [*phases, *(name for name in seconds if name not in phases and name != "total")]
    values = {name: as_number(seconds.get(name)) for name in names}
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
    lines = [f"Between steps, as a mean for each step: {listed(parts)}."] if parts else []
    if startup := record.number("startup_seconds"):
        what = "the sanity check, starting workers, making the loader's iterator"
        lines.append(f"fit took {duration(startup)} before its first step: {what}.")
    if (first := record.number("first_step_seconds")) and (more := first / total) >= _LONGER:
        lines.append(f"The run's first step took {duration(first)}, {more:,.1f} times a later one.")
    starts, wait = record.count("epoch_starts", "count"), record.number("epoch_starts", "data_wait")
    if starts and wait is not None:
        lines.append(f"The first step of an epoch waits {duration(wait)} for data (mean of {starts:,}).")
    updates = record.number("updates")
    if updates is not None and 0 < updates < 1:
        lines.append(f"The optimizer stepped in {percent(updates)} of the steps; its time is spread over all of them.")
    return lines


def ceilings(record: Record) -> Section:
    """The section: a bar for each rate on one scale; why there are none, where that is known."""
    intervals, why = record.mapping("ceilings", "intervals"), record.text("ceilings", "reason")
    rates = {key: (value, *_pair(intervals.get(key))) for key, value in all_rates(record).items()}
    if not rates:
        reason = why or "They were not measured; ceilings=true measures them after training."
        reason = f"{reason[:1].upper()}{reason[1:].rstrip('.')}."
        told = why or (rate_of(record) and not record.text("script"))
        return Section("ceilings", "Ceilings", "", [Paragraph(reason, "empty")] if told else [])
    if rate := rate_of(record):
        rates["measured"] = (rate, None, None)
    scale = axis_of_rates([value for value, *_ in rates.values()])
    unit = unit_of(record)
    lines = [_row(key, *rates[key], scale, rate, unit) for key in rates]
    about = f"{unit.capitalize()} with one side of training taken away; whiskers are 95% intervals."
    about += " The scale is logarithmic." if scale.logarithmic else ""
    if took := record.number("ceilings", "seconds"):
        about += f" Measuring took {duration(took)} after training."
    rows = Rows(lines, axis(scale, scale.marks(5)), unit)
    return Section("ceilings", "Ceilings", about, [rows, *_words(record), *_alternatives(record)])


def _row(  # noqa: PLR0917
    key: str, rate: float, low: float | None, high: float | None, scale: Scale, measured: float | None, unit: str
) -> Line:
    """A bar from the start of the scale with its interval; the ``measured`` rate crosses all others as a line."""
    name, hint = _NAMES[key]
    parts = [rect(0, 6, scale.place(rate), ROW - 10, f"fill rate-{key}")]
    if low is not None and high is not None and 0 < low <= high <= WIDEST * low:
        parts += whisker(scale.place(low), scale.place(high), ROW / 2 + 1)
    if measured and key != "measured":
        parts.append(line(scale.place(measured), 0, scale.place(measured), ROW + 2, "reference"))
    spread, value = interval(low, high), figure(rate)
    drawing = svg(ROW + 2, f"{name}: {value} {unit}" + (f", {spread}" if spread else ""), parts)
    return Line(Text(name, "b", small=[hint]), drawing, Text(value, "b", small=[spread] if spread else []), key)


def lowest_ceiling(record: Record) -> str:
    """The lowest ceiling in words; empty where none was measured."""
    key = lowest(record)
    return f"{figure(ceiling_rates(record)[key])} {unit_of(record)}: {_NAMES[key][0].lower()}" if key else ""


def _pair(value: object) -> tuple[float | None, float | None]:
    if not (isinstance(value, list | tuple) and len(value) == 2):
        return None, None
    return as_number(value[0]), as_number(value[1])


def _words(record: Record) -> list[Part]:
    lines: list[str | Text] = []
    share, key = share_of_ceiling(record), lowest(record)
    if key and share is not None:
        lines += ["This run reaches", Text(percent(share), "b"), f"of the lowest ceiling ({_NAMES[key][0].lower()})."]
    if wrong := too_low(record):
        lines.append(f"{_NAMES[wrong][0]} was measured too low: the machine was slower then than in training.")
    if changed := drift(record):
        lines.append(f"The machine's speed changes from minute to minute: {changed}.")
    if record.flag("ceilings", "shared_cores"):
        words = "Loader and model share the same cores, so neither reaches its own ceiling while both work"
        if record.count("num_workers") == 0:
            words = "Without workers, loader and model take turns"
        joint = None if too_low(record) else record.number("ceilings", "joint")
        lines.append(f"{words}: together they can reach {figure(joint)} {unit_of(record)}." if joint else f"{words}.")
    cost = [
        f"{duration(seconds)} of a core by the {side}"
        for side in ("loader", "model")
        if (seconds := record.number("ceilings", "cpu_seconds", side))
    ]
    if cost:
        one = (record.text("unit") or "images").removesuffix("s")
        lines.append(f"{'An' if one == 'image' else 'A'} {one} costs {' and '.join(cost)}.")
    if weight := record.number("ceilings", "batch_bytes"):
        lines.append(f"A batch is {size(weight)} as the loader gives it.")
    return note(*lines)


def _alternatives(record: Record) -> list[Part]:
    """What else was measured, one side at a time, and why it is advised or not."""
    step, rows = step_of(record), []
    for side in ("loader", "model"):
        base = record.number("ceilings", side)
        for entry in record.alternatives(side):
            alone = entry.ratio.median if entry.ratio else entry.rate.median / base if base else None
            told = f"{times(alone)} today's {side} alone" if alone else ""
            name = named(" ".join(entry.overrides), "code")
            rate = Text(figure(entry.rate.median), small=[interval(entry.rate.low, entry.rate.high)])
            rows.append((name, rate, told, _advised(record, step, entry, alone)))
    heads = ("Also measured", f"#{unit_of(record).capitalize()} alone", "Compared with this run's", "For training")
    return [Table(heads, rows, stacked=True)] if rows else []


def _advised(record: Record, step: Step | None, entry: Alternative, times_alone: float | None) -> str:
    """That it is advised, with what it gives training; or why not."""
    found = entries(record, "findings")
    advised = [*found, *(remedy for one in found for remedy in entries(one, "remedies"))]
    for one in advised:
        if one.items("overrides") == list(entry.overrides):
            return f"advised: {promised} as fast" if (promised := gain(one.summary)) else "advised"
    if times_alone is not None and times_alone <= 1:
        return "not faster"
    keys = {key_of(text) for text in entry.overrides}
    if any(not keys.isdisjoint(key_of(str(text)) for text in one.items("overrides")) for one in advised):
        return "another value is advised"
    if step is None or too_low(record) or taken(record, "ceilings"):
        return "the machine was too busy to tell"
    return _gains(record, step, entry)


def _gains(record: Record, step: Step, entry: Alternative) -> str:
    """Why what is faster alone does not help training, or not for certain."""
    loads = entry.side == "loader"
    helped = estimate_of_loader(record, step, entry) if loads else None
    if not loads:
        helped = with_model(step, entry.rate, images=entry.images, ratio=entry.ratio)
    if helped is None:
        more = workers_of(entry, step) - step.workers
        return "fewer workers" if more < 0 else "more workers than cores" if more else "not measurably faster"
    if helped.median < WORTH:
        waits = f": {percent(step.waiting)} of a step waits for data" if loads else ""
        return f"training would gain less than 3%{waits}"
    if helped.low <= 1:
        return f"training may gain nothing: {interval(helped.low, helped.high, times)}"
    return "another change gains more"
