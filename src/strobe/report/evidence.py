"""What lies below the phases: operators, the trace's own figures, loader workers, memory; and what was learned."""

import re
from collections.abc import Callable, Mapping

from strobe.present.charts.svg import meter
from strobe.present.format import duration, percent, size
from strobe.present.parts import Cell, Heading, Paragraph, Part, Section, Table, Text, Words, facts, link, more, named
from strobe.records.run import Record, as_number
from strobe.records.tables import Operators
from strobe.report.wording import entries

MOST_WORKERS = 64
MOST_CLASSES = 40
_STAGES = ("train", "val", "test")
_SEEN: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("steps", "Steps in the trace", "{:,.0f}".format),
    ("device_busy", "Device busy", percent),
    ("kernels_per_step", "Kernels a step", "{:,.0f}".format),
    ("kernel_seconds_median", "Median kernel", duration),
    ("tensor_core_share", "Kernel time on tensor cores", percent),
    ("sync_seconds", "Host waits for the device", lambda value: f"{duration(value)} a step"),
)


def operators(found: Operators | None) -> Section:
    """The slowest operators with bars; nothing where none were recorded."""
    if found is None:
        return Section("operators", "Slowest operators", "", [])
    whole = found.own or sum(row.own for row in found.rows) or 1.0
    rows = [
        (
            named(row.name, "code", *["range"] * row.is_range),
            Cell(Text(after=meter(row.own / whole)), "meters"),
            percent(row.own / whole),
            duration(row.own),
            f"{row.calls:,}",
            duration(row.total / row.calls) if row.calls else "",
        )
        for row in found.rows
    ]
    side = "device" if found.on_device else "CPU"
    heads = ("Operator", Cell("", "meters"), "#Share", f"#Self {side} time", "#Calls", "#Total a call")
    over = f", over {found.over}" if found.over else ""
    about = f"By their own {side} time, without the operators that they call{over}: {len(found.rows)} of "
    about += f"{found.count:,}."
    if any(row.is_range for row in found.rows):
        about += " A range is code around operators; its time is what they leave unexplained."
    table = f"tables/{found.table}.csv"
    parts: list[Part] = [
        Table(heads, rows, "operators", stacked=True),
        Paragraph(["All of them:", link(table, table)], "note"),
    ]
    return Section("operators", "Slowest operators", about, parts)


def trace(record: Record) -> Section:
    """What was read off the trace: how busy the device and the loader's workers were, and what made the host wait."""
    seen = record.mapping("trace_evidence")
    pairs: list[tuple[str, Words]] = [
        (name, show(value)) for key, name, show in _SEEN if (value := as_number(seen.get(key))) is not None
    ]
    for key, name, amount, show in (
        ("syncs", "name", "calls", "{:,.3g} calls".format),
        ("copies", "kind", "bytes", size),
    ):
        for entry in entries(record, "trace_evidence", key):
            known = ((duration, entry.number("seconds")), (show, entry.number(amount)))
            amounts = ", ".join(told(value) for told, value in known if value is not None)
            pairs.append((entry.text(name) or "unnamed", f"{amounts or 'unknown'} a step"))
    shares = {str(name): as_number(share) for name, share in record.mapping("trace_evidence", "loader_workers").items()}
    busy = [(name, share) for name, share in shares.items() if share is not None]
    workers = facts((name, _bar(share, " of the time")) for name, share in busy[:MOST_WORKERS])
    workers += more(len(busy) - MOST_WORKERS, "workers")
    about = "Read off the newest traces" + (": how much of the time each loader was loading." if workers else ".")
    return Section("trace", "Workers and device", about, [*facts(pairs), *workers])


def memory(record: Record) -> Section:
    """The most that was held, against what there is."""
    pairs: list[tuple[str, Words]] = []
    whole = record.number("environment", "memory_bytes")
    if (held := record.number("memory", "rss_peak_bytes")) is not None:
        much: Words = size(held)
        if whole and held <= whole:
            much = [Text(size(held), small=[f" of {size(whole)}"]), Text(after=meter(held / whole))]
        pairs.append(("This process, at most", much))
    if (held := record.number("memory", "device_peak_bytes")) is not None:
        pairs.append(("On the device, at most", size(held)))
    if (free := record.number("environment", "shm_free_bytes")) is not None:
        pairs.append(("Free in /dev/shm", size(free)))
    return Section("memory", "Memory", "", facts(pairs))


def metrics(record: Record) -> Section:
    """Losses and accuracies by stage; then by class, the lowest first."""
    values = {str(name): record.number("metrics", name) for name in record.mapping("metrics")}
    plain = [name.split("/") for name in values if name.count("/") == 1]
    kinds = list(dict.fromkeys(kind for _, kind in plain))
    known = {stage for stage, _ in plain}
    stages = [*(stage for stage in _STAGES if stage in known), *sorted(known - {*_STAGES})]
    rows = [(stage, *(figure_of(values, f"{stage}/{kind}") for kind in kinds)) for stage in stages]
    heads = ("Stage", *(f"#{kind.replace('_', ' ')}" for kind in kinds))
    parts: list[Part] = [Table(heads, rows)] if rows else []
    classes = sorted(
        ((value, name) for name, value in values.items() if re.match(r"\w+/accuracy/.", name)),
        key=lambda one: (one[0] is None, one),
    )
    if classes:
        shown = classes[:MOST_CLASSES]
        parts.append(Heading(f"Accuracy by class, {classes[0][1].partition('/')[0]}"))
        parts += facts(
            (name.partition("/accuracy/")[2], "-" if value is None else _bar(value)) for value, name in shown
        )
        parts += more(len(classes) - len(shown), "classes")
    parts += facts((name, figure_of(values, name)) for name in values if "/" not in name)
    return Section("metrics", "Metrics", "", parts)


def _bar(share: float, *small: str) -> Words:
    """A share, and below it a bar that is as long."""
    return [Text(percent(share), small=small), Text(after=meter(share))]


def figure_of(values: Mapping[str, float | None], name: str) -> str:
    """A metric as text, empty if it was not recorded; the record holds null for infinities and NaN."""
    if name not in values:
        return ""
    if (value := values[name]) is None:
        return "not a number"
    return f"{value:.3f}" if 1e-3 <= abs(value) < 1e5 or value == 0 else f"{value:.3g}"
