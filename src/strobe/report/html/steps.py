"""Where a step goes: its phases on the host and on the device, the callbacks by name, and what lies between steps."""

from collections.abc import Mapping

from strobe.callbacks.columns import PHASES
from strobe.records.run import Record, as_number
from strobe.report.html.drawing import label, rect, svg
from strobe.report.html.pieces import more, named, section, table
from strobe.report.html.text import duration, esc, milliseconds, percent

DEVICE = ("transfer", "forward", "backward", "optimizer", "idle")
FEWEST_CALLBACKS, MOST_CALLBACKS = 3, 8
_NOTABLE = 0.001  # share of a step from which on a callback is always listed
BAR = 44  # pixels
_BETWEEN = dict.fromkeys(("between", "other"), "epoch ends and the like")
_WIDE = 0.09  # share of a bar from which on its figure fits, on a phone too


def step(record: Record) -> str:
    """The section; it says so where no step was measured."""
    host = _seconds(record, "step_seconds", PHASES)
    total = record.number("step_seconds", "total") or 0.0
    if not host or total <= 0:
        body = '<p class="empty">No step was measured: all were warm-up or profiled, or there were none.</p>'
        return section("step", "Where a step goes", "", body)
    device = _seconds(record, "device_seconds", DEVICE)
    device_total = record.number("device_seconds", "total") or sum(device.values())
    widest = max(total, device_total if device else 0.0, sum(host.values()), sum(device.values()))
    body = stacked("Host" if device else "", host, total, widest)
    if device and device_total > 0:
        body += stacked("Device", device, device_total, widest)
    body += _callbacks(record, total) + _between(record, total)
    steps = record.count("steps", "measured")
    note = f"Mean of {steps:,} measured steps; warm-up and profiled steps are left out." if steps else "Mean of a step."
    if device:
        note += " Host: when work is submitted. Device: when it is done, by CUDA events."
    return section("step", "Where a step goes", note, body)


def _seconds(record: Record, key: str, phases: tuple[str, ...]) -> dict[str, float]:
    """The known phases in their order, then others by name; negative and missing ones are left out."""
    found = record.mapping(key)
    names = [*phases, *(name for name in found if name not in phases and name != "total")]
    values = {name: as_number(found.get(name)) for name in names}
    return {name: value for name, value in values.items() if value is not None and value >= 0}


def stacked(name: str, seconds: Mapping[str, float], total: float, widest: float) -> str:
    """A stacked bar with a legend that holds all figures."""
    parts, legend, start = [], [], 0.0
    for phase, value in seconds.items():
        share, css = value / widest, phase if phase in PHASES or phase == "idle" else "other"
        words = phase.replace("_", " ")
        parts.append(rect(start, 0, share, BAR, f"fill {css}", f"{words}: {duration(value)}, {percent(value / total)}"))
        if share >= _WIDE:
            parts.append(label(start + share / 2, BAR / 2 + 5, percent(value / total), f"on {css}", "middle"))
        start += share
        legend.append(
            f'<li class="{"none" if value == 0 else ""}"><i class="key {css}"></i><span>{esc(words)}</span>'
            f"<b>{milliseconds(value)}<small> ms</small></b><em>{percent(value / total)}</em></li>"
        )
    said = ", ".join(f"{phase.replace('_', ' ')} {percent(value / total)}" for phase, value in seconds.items())
    title = f"<h3>{name} <small>{duration(total)} a step</small></h3>" if name else ""
    picture = svg(BAR, f"{name} step of {duration(total)}: {said}", parts, "stack")
    return f'<figure>{title}{picture}<ul class="legend">{"".join(legend)}</ul></figure>'


def _callbacks(record: Record, total: float) -> str:
    found = [entry for entry in record.items("callbacks") if isinstance(entry, dict) and as_number(entry.get("mean"))]
    if not found:
        return ""
    found.sort(key=lambda entry: -(as_number(entry.get("mean")) or 0.0))
    notable = sum(1 for entry in found if (as_number(entry["mean"]) or 0.0) >= _NOTABLE * total)
    count = min(MOST_CALLBACKS, max(FEWEST_CALLBACKS, notable))
    shown, rest = found[:count], found[count:]
    rows = []
    for entry in shown:
        mean, longest = as_number(entry.get("mean")) or 0.0, as_number(entry.get("longest"))
        calls, kind = as_number(entry.get("calls")), str(entry.get("kind") or "")
        rows.append(
            (
                named(entry.get("name") or "unnamed"),
                f"<small>{esc(kind, 40)}</small>",
                duration(mean),
                percent(mean / total),
                "" if longest is None else duration(longest),
                "" if calls is None else f"{calls:,.0f}",
            )
        )
    left = sum(as_number(entry.get("mean")) or 0.0 for entry in rest)
    heads = ("Callbacks, loggers and hooks", "", "#Mean a step", "#Share", "#Longest", "#Steps with it")
    return table(heads, rows, "hooks") + more(len(rest), "of them", f", together {duration(left)} a step")


def _between(record: Record, total: float) -> str:
    """What comes on top of the steps, and what only some of them pay; as a line of text."""
    parts = []
    for name in record.mapping("between_seconds"):
        value, words = record.number("between_seconds", name), _BETWEEN.get(name, esc(name))
        if value:
            share = value / total
            parts.append(f"{duration(value)} of {words} ({'+' * (share >= 0.005)}{percent(share)})")
    lines = [f"Between steps, spread over all: {' and '.join(parts)}."] if parts else []
    first = record.number("first_step_seconds")
    if first:
        lines.append(f"The run's first step took {duration(first)}, {first / total:,.1f} times a later one.")
    starts, wait = record.count("epoch_starts", "count"), record.number("epoch_starts", "data_wait")
    if starts and wait is not None:
        lines.append(f"The first step of an epoch waits {duration(wait)} for data (mean of {starts:,}).")
    updates = record.number("updates")
    if updates is not None and 0 < updates < 1:
        lines.append(f"The optimizer stepped in {percent(updates)} of the steps; its time is spread over all of them.")
    return f'<p class="note">{" ".join(lines)}</p>' if lines else ""
