"""Where a step goes: its phases on the host and on the device, and callbacks by name."""

from collections.abc import Mapping

from strobe.callbacks.columns import PHASES
from strobe.present.charts.rows import Segment, stacked
from strobe.present.format import duration, percent
from strobe.present.parts import Paragraph, Part, Section, Table, Text, more, named, note
from strobe.records.run import Record, as_number
from strobe.report.wording import entries

DEVICE = ("transfer", "forward", "backward", "optimizer", "idle")
FEWEST_CALLBACKS, MOST_CALLBACKS = 3, 8
_NOTABLE = 0.001  # share of a step from which on a callback is always listed
_BETWEEN = dict.fromkeys(("between", "other"), "epoch ends and the like")


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
