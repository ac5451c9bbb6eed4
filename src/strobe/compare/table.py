"""A comparison for the terminal: the table, then notes, one per line."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import methodcaller
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from strobe.compare.cells import ACCURACY, CEILINGS
from strobe.compare.shown import ComparedCell, Comparison, between, comparison_of
from strobe.present.format import UNKNOWN, differ, estimate, figure, rate
from strobe.present.terminal import say
from strobe.records.sweep import INTERRUPTED

_COLOURS = {"faster": "green", "slower": "red", "baseline": "cyan", "failed": "red", "interrupted": "yellow"}
_PHASES = {"waiting": "data_wait", "forward": "forward", "backward": "backward", "optimizer": "optimizer"}
_MEMORY = {"memory": "rss_peak_bytes", "GPU memory": "device_peak_bytes"}
# What a narrow terminal does without, the first of these first; comparison.csv and the page have it all.
_SPARED = (
    *("rest", "optimizer", "joint ceiling", "runs", "forward", "backward", "model ceiling", "loader ceiling"),
    *("memory", "GPU memory", "accuracy", "waiting"),
)


@dataclass(frozen=True)
class Column:
    """A heading, and a cell's text below it."""

    heading: str
    text: Callable[[ComparedCell], str]
    right: bool = True


def print_comparison(console: Console, comparison: Mapping[str, Any]) -> None:
    """Print a comparison from its record."""
    compared = comparison_of(comparison)
    columns = [column for column in _figures(compared) if any(map(column.text, compared.cells))]
    columns = [*_settings(compared), *columns]
    against = comparison["against"] or comparison["baseline"]
    title = f"Times as fast as {against}" if any(cell.speedup for cell in compared.cells) else ""
    names = [column.heading for column in columns]
    table, spared = _table(title, columns, compared.cells), list(_SPARED)
    unlimited = console.options.update(width=1000)
    while spared and console.measure(table, options=unlimited).maximum > console.width:
        heading = spared.pop(0)
        columns = [column for column in columns if column.heading != heading]
        table = _table(title, columns, compared.cells)
    console.print(table)
    if dropped := [name for name in names if name not in {column.heading for column in columns}]:
        say(console, f"Left out, because the terminal is too narrow: {', '.join(dropped)}")
    say(console, *_lines(compared, comparison))


def _table(title: str, columns: Sequence[Column], cells: Sequence[ComparedCell]) -> Table:
    table = Table(title=Text(title), title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in columns:
        table.add_column(column.heading, justify="right" if column.right else "left", overflow="fold")
    for cell in cells:
        texts = [column.text(cell) for column in columns]
        table.add_row(*(Text(text, _COLOURS.get(text, "")) for text in texts), style="bold" if cell.best else "")
    return table


def _settings(compared: Comparison) -> list[Column]:
    """The overrides that differ; the cells' names if these do not tell them apart."""
    settings, keys = [cell.record.mapping("overrides") for cell in compared.cells], compared.keys
    if len({tuple(overrides.values()) for overrides in settings}) < max(len(settings), 2):
        return [Column("", lambda cell: cell.name, False)]
    short = {key: key.rpartition(".")[2] for key in keys}
    clear = len(set(short.values())) == len(keys)
    return [Column(short[key] if clear else key, partial(_override, key), False) for key in keys]


def _override(key: str, cell: ComparedCell) -> str:
    return str(cell.record.mapping("overrides")[key])


def _figures(compared: Comparison) -> list[Column]:
    """The figures that the cells may have; any of them may be missing."""
    cells = compared.cells
    accuracy = [name for name in ACCURACY if any(cell.told(str, "accuracy", name) for cell in cells)]
    counts = {_measured(cell) for cell in compared.measured}

    def gigabytes(count: float) -> str:
        return f"{figure(count / 1e9)} GB"

    return [
        Column("", lambda cell: cell.place if len(cells) > 1 else "", False),
        Column(compared.unit, lambda cell: estimate(cell.record.summary["images_per_second"])),
        Column("times as fast", _times),
        Column("verdict", _verdict, False),
        Column("runs", lambda cell: str(_measured(cell) or "") if len(counts) > 1 else ""),
        *(Column(heading, methodcaller("share", name)) for heading, name in _PHASES.items()),
        Column("rest", lambda cell: cell.share(*_PHASES.values(), rest=True)),
        *(Column(f"{name} ceiling", methodcaller("told", rate, "ceilings", name)) for name in CEILINGS),
        *(Column(heading, methodcaller("told", gigabytes, "memory", name)) for heading, name in _MEMORY.items()),
        *(Column("accuracy", methodcaller("told", "{:.3f}".format, "accuracy", name)) for name in accuracy[:1]),
    ]


def _times(cell: ComparedCell) -> str:
    """The speed-up; of one that is too wide to tell its end towards 1, or how many runs differ if that is beyond 1."""
    ratio = cell.speedup
    if ratio is None or ratio.tells or ratio.low is None:
        return estimate(cell.record.summary["speedup"])
    if ratio.high is not None and ratio.high < 1:
        return f"at most {figure(ratio.high)}"
    return f"at least {figure(ratio.low)}" if ratio.low > 1 else differ(_measured(cell), "run")


def _measured(cell: ComparedCell) -> int:
    return sum(run["images_per_second"] is not None for run in cell.runs)


def _verdict(cell: ComparedCell) -> str:
    if not cell.rate:
        return "not measured" if cell.status in ("completed", "mixed") else cell.status
    return cell.told_verdict


def _lines(compared: Comparison, comparison: Mapping[str, Any]) -> list[str]:
    errors: dict[str, list[str]] = {}
    for cell in compared.cells:
        if cell.error:
            errors.setdefault(cell.error, []).append(f"{cell.name} {_how_many(cell)}")
    lines = [", ".join(ended) + f": {error}" * (error != INTERRUPTED) for error, ended in errors.items()]
    lines += [f"not the same: {sentence}" for sentence in comparison["unlike"]]
    lines += [
        f"{knee['where']}: data.batch_size={knee['batch_size']} comes within 5% of the best, {knee['best_batch_size']} "
        f"(the smallest that does: {between(knee)})"
        for knee in comparison["knees"]
    ]
    if any(_times(cell).startswith(UNKNOWN) for cell in compared.cells):
        lines.append("For a verdict, train longer, or raise sweep.repeats.")
    lines += [*([compared.alone] if compared.alone else []), *comparison["notes"]]
    if any(cell.rate and cell.rate.of == "steps" for cell in compared.cells):
        lines.append("The interval of a single run's rate is over its steps: another run may well lie outside.")
    return lines


def _how_many(cell: ComparedCell) -> str:
    """How many of a cell's runs did not complete, in words."""
    lost = [run["status"] for run in cell.runs if run["status"] != "completed"]
    words = lost[0] if len(set(lost)) == 1 else "failed"
    return words if len(lost) == len(cell.runs) else f"{words} in {len(lost)} of {len(cell.runs)} runs"
