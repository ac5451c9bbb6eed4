"""The top of the page: how the run ended, the verdict, and the figures that matter most."""

import re
from collections.abc import Mapping
from typing import Any

from strobe.diagnose import rank
from strobe.present.format import TIMES, counted, duration, figure, interval, percent
from strobe.present.parts import Tile
from strobe.records.run import Record
from strobe.report.ceilings import lowest

STATUS = {"completed": "good", "interrupted": "fair", "failed": "bad"}
LONGEST_HEADLINE = 240  # characters; a longer first sentence is set as text
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[^a-z\s])|\n+")


def head(record: Record) -> dict[str, Any]:
    """What ran, how it ended, the verdict, the command that it advises, and the main figures."""
    status = record.text("status") or "unknown"
    first, rest = _verdict(record)
    return {
        "title": first,
        "what": _what(record),
        "badges": [(STATUS.get(status, "fair"), status)],
        "long": len(first) > LONGEST_HEADLINE,
        "rest": rest,
        "command": _best(record),
        "error": _error(record, status),
        "tiles": _tiles(record),
    }


def _verdict(record: Record) -> tuple[str, str]:
    """The first sentence, and the others; what can be said from the phases if there is no verdict."""
    if said := (record.text("verdict") or "").strip():
        first, *rest = _SENTENCE.split(said.replace(" -> ", " → "))
        return first, " ".join(rest)
    if record.text("status") == "failed":
        return "The run failed before it could be judged.", ""
    total = record.number("step_seconds", "total")
    shares = {name: value for name in record.mapping("step_seconds") if (value := record.number("step_seconds", name))}
    shares.pop("total", None)
    if not total or total < 0 or not shares:
        return "No step was measured.", "All steps were warm-up or profiled, or there were none."
    longest = max(shares, key=lambda name: shares[name])
    first = f"The longest phase of a step is {longest.replace('_', ' ')}: {percent(shares[longest] / total)} of it."
    return first, "This record holds no verdict."


def _best(record: Record) -> str:
    """The command of the first finding; empty where no command changes anything."""
    first = next((entry for entry in record.items("findings") if isinstance(entry, dict)), {})
    given = first.get("overrides")
    return rank.command(record, [str(part) for part in given]) if isinstance(given, list) and given else ""


def _error(record: Record, status: str) -> Mapping[str, str] | None:
    kind, message = record.text("error", "type"), record.text("error", "message")
    if not (kind or message):
        return None
    return {
        "css": STATUS.get(status, "fair"),
        "title": "What stopped it" if status == "interrupted" else "What went wrong",
        "kind": kind or "",
        "message": (message or "").strip() or "It came without a message.",
    }


def _what(record: Record) -> str:
    """What ran where, in a line."""
    workers, batch, world = (record.count(key) for key in ("num_workers", "batch_size", "world_size"))
    loader = record.text("choices", "loader")
    parts = [
        record.text("data") or record.text("choices", "data"),
        record.text("choices", "model"),
        loader and f"loader {loader}",
        None if batch is None else f"batch {batch}",
        None if workers is None else counted(workers, "worker"),
        None if world is None else f"{world} {TIMES} {record.text('accelerator') or 'device'}",
        record.text("precision"),
    ]
    return " · ".join(part for part in parts if part)


def _tiles(record: Record) -> list[Tile]:
    """Throughput, efficiency, the step, the share of waiting: of what was measured."""
    tiles = []
    if (median := record.number("images_per_second", "median")) is not None:
        spread = interval(record.number("images_per_second", "low"), record.number("images_per_second", "high"))
        tiles.append(Tile("Throughput", figure(median), "images/s", spread and f"95% interval {spread}"))
    if (efficiency := record.number("efficiency")) is not None:
        tiles.append(Tile("Of the ceiling", percent(efficiency), "", lowest(record)))
    total = record.number("step_seconds", "total")
    if total is not None and total > 0:
        much, _, unit = duration(total).partition(" ")
        steps = record.count("steps", "measured")
        tiles.append(Tile("Step", much, unit, f"mean of {counted(steps, 'step')}" if steps else ""))
        if (wait := record.number("step_seconds", "data_wait")) is not None:
            tiles.append(Tile("Waiting for data", percent(wait / total), "", f"{duration(wait)} of each step"))
    return tiles
