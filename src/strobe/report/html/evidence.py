"""What lies below the phases: operators, the trace's own figures, loader workers, memory; and what was learned."""

import re
from collections.abc import Mapping
from typing import Any

from strobe.records.run import Record, as_number
from strobe.records.tables import Operators
from strobe.report.html.drawing import rect, svg
from strobe.report.html.pieces import facts, more, named, section, table
from strobe.report.html.text import duration, esc, percent, size

MOST_WORKERS = 64
MOST_CLASSES = 40
_STAGES = ("train", "val", "test")


def operators(found: Operators | None) -> str:
    """The slowest operators as a table with bars; nothing where none were recorded."""
    if found is None:
        return ""
    whole = found.own or sum(row.own for row in found.rows) or 1.0
    rows = [
        (
            named(row.name, "code") + ("<small>range</small>" if row.is_range else ""),
            _meter(row.own / whole),
            percent(row.own / whole),
            duration(row.own),
            f"{row.calls:,}",
            duration(row.total / row.calls) if row.calls else "",
        )
        for row in found.rows
    ]
    side = "device" if found.on_device else "CPU"
    heads = ("Operator", "", "#Share", f"#Self {side} time", "#Calls", "#Total a call")
    over = f", over {esc(found.over)}" if found.over else ""
    note = f"By {side} time without what they call{over}: {len(found.rows)} of {found.count:,}."
    if any(row.is_range for row in found.rows):
        note += " A range is code around operators; its time is what they do not explain."
    link = f'<p class="note">All of them: <a href="tables/{found.table}.csv">tables/{found.table}.csv</a></p>'
    return section("operators", "Slowest operators", note, table(heads, rows, "operators") + link)


def trace(record: Record) -> str:
    """What was read off the trace: how busy the device and the loader's workers were, and what made the host wait."""
    seen = record.mapping("trace_evidence")
    pairs = [
        (name, show(value))
        for key, name, show in (
            ("steps", "Steps in the trace", lambda value: f"{value:,.0f}"),
            ("device_busy", "Device busy", percent),
            ("kernels_per_step", "Kernels a step", lambda value: f"{value:,.0f}"),
            ("kernel_seconds_median", "Median kernel", duration),
            ("tensor_core_share", "Kernel time on tensor cores", percent),
            ("sync_seconds", "Host waits for the device", lambda value: f"{duration(value)} a step"),
        )
        if (value := as_number(seen.get(key))) is not None
    ]
    pairs += _named(seen.get("syncs"), "name", "calls", "calls")
    pairs += _named(seen.get("copies"), "kind", "bytes", "")
    workers = _workers(seen.get("loader_workers"))
    body = facts(pairs) + workers
    note = "Read off the newest traces" + (": how much of the time each loader was loading." if workers else ".")
    return section("trace", "Workers and device", note, body)


def memory(record: Record) -> str:
    """The most that was held, against what there is."""
    pairs = []
    whole = record.number("environment", "memory_bytes")
    held = record.number("memory", "rss_peak_bytes")
    if held is not None:
        share = f"<small> of {size(whole)}</small>{_meter(held / whole)}" if whole and held <= whole else ""
        pairs.append(("This process, at most", f"{size(held)}{share}"))
    held = record.number("memory", "device_peak_bytes")
    if held is not None:
        pairs.append(("On the device, at most", size(held)))
    free = record.number("environment", "shm_free_bytes")
    if free is not None:
        pairs.append(("Free in /dev/shm", size(free)))
    return section("memory", "Memory", "", facts(pairs))


def metrics(record: Record) -> str:
    """Losses and accuracies by stage; then by class, the lowest first."""
    values = {
        str(name): value for name in record.mapping("metrics") if (value := record.number("metrics", name)) is not None
    }
    plain = {name: value for name, value in values.items() if name.count("/") == 1}
    kinds = list(dict.fromkeys(name.partition("/")[2] for name in plain))
    stages = [*_STAGES, *sorted({name.partition("/")[0] for name in plain} - {*_STAGES})]
    rows = [
        (esc(stage), *(_figure(plain.get(f"{stage}/{kind}")) for kind in kinds))
        for stage in stages
        if any(f"{stage}/{kind}" in plain for kind in kinds)
    ]
    body = table(("Stage", *(f"#{esc(kind.replace('_', ' '))}" for kind in kinds)), rows) if rows else ""
    classes = sorted((value, name) for name, value in values.items() if re.match(r"\w+/accuracy/.", name))
    if classes:
        shown = classes[:MOST_CLASSES]
        items = [(esc(name.partition("/accuracy/")[2]), f"{percent(value)}{_meter(value)}") for value, name in shown]
        stage = esc(classes[0][1].partition("/")[0])
        body += f"<h3>Accuracy by class, {stage}</h3>{facts(items)}{more(len(classes) - len(shown), 'classes')}"
    others = [(esc(name), _figure(value)) for name, value in values.items() if "/" not in name]
    return section("metrics", "Metrics", "", body + facts(others))


def _named(found: Any, key: str, amount: str, unit: str) -> list[tuple[str, str]]:
    """Entries with a name, seconds a step and calls or bytes a step."""
    pairs = []
    for entry in found if isinstance(found, list) else ():
        if not isinstance(entry, dict):
            continue
        seconds = next((as_number(entry[name]) for name in entry if str(name).startswith("seconds")), None)
        count = next((as_number(entry[name]) for name in entry if str(name).startswith(amount)), None)
        much = "" if count is None else f"{count:,.3g} {unit}" if unit else size(count)
        said = [text for text in ("" if seconds is None else duration(seconds), much) if text]
        pairs.append((esc(entry.get(key) or "unnamed"), f"{', '.join(said) or 'unknown'} a step"))
    return pairs


def _workers(found: Any) -> str:
    shares = {str(name): as_number(found[name]) for name in found} if isinstance(found, Mapping) else {}
    known = [(name, share) for name, share in shares.items() if share is not None]
    items = [
        (esc(name), f"{percent(share)} <small>of the time</small>{_meter(share)}")
        for name, share in known[:MOST_WORKERS]
    ]
    return facts(items) + more(len(known) - MOST_WORKERS, "workers") if items else ""


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}" if 1e-3 <= abs(value) < 1e5 or value == 0 else f"{value:.3g}"


def _meter(share: float) -> str:
    """A share as a small bar."""
    parts = [rect(0, 0, 1, 6, "rail"), rect(0, 0, min(1.0, max(0.0, share)), 6, "fill level")]
    return svg(6, percent(share), parts, "meter")
