"""The top of the page: how the run ended, the verdict, and the figures that matter most."""

import re

from strobe.diagnose import rank
from strobe.records.run import Record
from strobe.report.html.bracket import lowest
from strobe.report.html.pieces import command, interval
from strobe.report.html.text import NBSP, TIMES, counted, duration, esc, percent, rate

_STATUS = {"completed": "good", "interrupted": "fair", "failed": "bad"}
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[^a-z\s])|\n+")
LONGEST_HEADLINE = 240  # characters; a longer first sentence is set as text


def head(record: Record, name: str) -> str:
    """Kicker, status, verdict, the command that it advises, and headline figures."""
    status = record.text("status") or "unknown"
    first, rest = _verdict(record)
    advised = _best(record)
    size = "long" if len(first) > LONGEST_HEADLINE else ""
    return (
        f'<header><p class="kicker"><span class="brand">Strobe</span><span class="what">{esc(_what(record))}</span>'
        f'<span class="badge {_STATUS.get(status, "fair")}">{esc(status, 40)}</span></p>'
        f'<h1 class="{size}">{esc(first, 4000)}</h1>'
        + (f'<p class="lede">{esc(rest, 4000)}</p>' if rest else "")
        + (command(advised) if advised else "")
        + _error(record, status)
        + _figures(record)
        + f'<p class="run-name">{esc(name)}</p></header>'
    )


def headline(record: Record) -> str:
    """The verdict's first sentence: the page's title, too."""
    return _verdict(record)[0]


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
    """The command of the first finding; empty where there is nothing to change by a command."""
    first = next((entry for entry in record.items("findings") if isinstance(entry, dict)), {})
    given = first.get("overrides")
    return rank.command(record, [str(part) for part in given]) if isinstance(given, list) and given else ""


def _error(record: Record, status: str) -> str:
    kind, message = record.text("error", "type"), record.text("error", "message")
    if not (kind or message):
        return ""
    words = "What stopped it" if status == "interrupted" else "What went wrong"
    return (
        f'<div class="error {_STATUS.get(status, "fair")}"><p><b>{words}</b> {esc(kind or "")}</p>'
        f"<pre>{esc((message or '').strip() or 'It came without a message.', 6000)}</pre></div>"
    )


def _what(record: Record) -> str:
    """What ran where, in a line."""
    workers = record.count("num_workers")
    parts = [
        record.text("data") or record.text("choices", "data"),
        record.text("choices", "model"),
        _with("loader ", record.text("choices", "loader")),
        _with("batch ", record.count("batch_size")),
        None if workers is None else counted(workers, "worker"),
        _with("", record.count("world_size"), f" {TIMES} {record.text('accelerator') or 'device'}"),
        record.text("precision"),
    ]
    return " · ".join(str(part) for part in parts if part)


def _with(before: str, value: object, after: str = "") -> str:
    return "" if value is None else f"{before}{value}{after}"


def _figures(record: Record) -> str:
    """Tiles: throughput, efficiency, the step, the share of waiting. Nothing where nothing was measured."""
    tiles = []
    median = record.number("images_per_second", "median")
    if median is not None:
        low, high = record.number("images_per_second", "low"), record.number("images_per_second", "high")
        spread = interval(low, high, rate)
        tiles.append(_tile("Throughput", rate(median), "images/s", spread and f"95% interval {spread}"))
    efficiency = record.number("efficiency")
    if efficiency is not None:
        tiles.append(_tile("Of the ceiling", percent(efficiency), "", lowest(record)))
    total = record.number("step_seconds", "total")
    if total is not None and total > 0:
        figure, _, unit = duration(total).partition(NBSP)
        steps = record.count("steps", "measured")
        tiles.append(_tile("Step", figure, unit, f"mean of {counted(steps, 'step')}" if steps else ""))
        wait = record.number("step_seconds", "data_wait")
        if wait is not None:
            tiles.append(_tile("Waiting for data", percent(wait / total), "", f"{duration(wait)} of each step"))
    return f'<dl class="figures">{"".join(tiles)}</dl>' if tiles else ""


def _tile(name: str, figure: str, unit: str, note: str) -> str:
    return f"<div><dt>{name}</dt><dd><b>{figure}</b> {unit}<small>{note}</small></dd></div>"
