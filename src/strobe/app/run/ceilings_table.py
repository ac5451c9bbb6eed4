"""Ceilings for the terminal."""

from typing import Any

from rich.console import Console
from rich.table import Table

from strobe.app.config.register import workers_beside
from strobe.measure.environment import usable_cores

NAMES = {
    "loader": "loader (nobody trains)",
    "model": "model (one batch replayed)",
    "transfer": "transfer (host to GPU)",
}


def print_ceilings(record: dict[str, Any], cfg: Any, console: Console) -> None:
    """A table of what was measured, and what bounds what."""
    workers = workers_beside(cfg.engine)
    title = f"batch {cfg.data.batch_size}, {workers} workers"
    if record["batch_bytes"] is not None:
        title += f", {record['batch_bytes'] / 1e6:,.2f} MB a batch"
    table = Table("ceiling", "images/s", "95% interval", "core-ms an image", title=title)
    for side, name in NAMES.items():
        if record[side] is None:
            continue
        low, high = record["intervals"][side]
        cpu = record["cpu_seconds"].get(side)
        table.add_row(
            name, _rate(record[side]), f"{_rate(low)} to {_rate(high)}", "" if cpu is None else f"{cpu * 1e3:,.2f}"
        )
    if record["joint"] is not None:
        table.add_row("joint (on shared cores)", _rate(record["joint"]), "", "")
    if table.row_count:
        console.print(table)
    if record["reason"] is not None:
        console.print(f"Not measured: {record['reason']}", markup=False, highlight=False, soft_wrap=True)
    for sentence in explain(record, workers=workers):
        console.print(sentence, markup=False, highlight=False, soft_wrap=True)


def explain(record: dict[str, Any], *, workers: int) -> list[str]:
    """Sentences on what bounds training."""
    rates = {side: record[side] for side in NAMES if record[side] is not None}
    if "loader" not in rates or "model" not in rates:
        return []
    first, second = sorted(rates, key=lambda side: float(rates[side]))[:2]
    sentences = [
        f"The {first} bounds training: it reaches {_rate(rates[first])} images/s, and the {second} "
        f"{_rate(rates[second])} ({rates[second] / rates[first]:,.1f} times as many)."
    ]
    if record["joint"] is None:
        return sentences
    joint = record["joint"]
    if workers == 0:
        how = "The training process loads and computes in turn"
    else:
        how = f"Loader and model share {usable_cores()} core{'s'[: usable_cores() != 1]}"
    if joint < rates[first]:
        sentences.append(f"{how}: both ceilings cannot be reached together; {_rate(joint)} images/s can.")
    else:
        sentences.append(f"{how}, which leave room for both.")
    return sentences


def _rate(value: float) -> str:
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"
