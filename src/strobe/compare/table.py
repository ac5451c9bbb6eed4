"""A comparison for the terminal: the table, and what else is worth knowing, line by line."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from strobe.present.format import estimate, figure, percent, rate

Cell = Mapping[str, Any]
FILE_WIDTH = 180  # columns, where there is no terminal
_COLOURS = {"faster": "green", "slower": "red", "baseline": "cyan", "failed": "red", "interrupted": "yellow"}
_PHASES = {"waiting": "data_wait", "forward": "forward", "backward": "backward", "optimizer": "optimizer"}
_CEILINGS = {"loader ceiling": "loader", "model ceiling": "model", "joint ceiling": "joint"}
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
    text: Callable[[Cell], str]
    right: bool = True


def print_comparison(console: Console, comparison: Mapping[str, Any]) -> None:
    """Show the record of a comparison."""
    cells = comparison["cells"]
    columns = [*_settings(comparison), *(column for column in _figures(cells) if any(map(column.text, cells)))]
    against = comparison.get("against") or comparison["baseline"]
    title = f"Times as fast as {against}" if any(cell["speedup"] for cell in cells) else ""
    table, spared = _table(title, columns, cells), list(_SPARED)
    unlimited = console.options.update(width=1000)
    while spared and console.measure(table, options=unlimited).maximum > console.width:
        heading = spared.pop(0)
        columns = [column for column in columns if column.heading != heading]
        table = _table(title, columns, cells)
    console.print(table)
    for line in _lines(comparison):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _table(title: str, columns: Sequence[Column], cells: Sequence[Cell]) -> Table:
    table = Table(title=Text(title), title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in columns:
        table.add_column(column.heading, justify="right" if column.right else "left", overflow="fold")
    for cell in cells:
        texts = [column.text(cell) for column in columns]
        style = "bold" if cell["best"] else ""
        table.add_row(*(Text(text, _COLOURS.get(text, "")) for text in texts), style=style)
    return table


def _settings(comparison: Mapping[str, Any]) -> list[Column]:
    """The overrides that differ; the cells' names where that does not tell them apart."""
    keys, cells = comparison["keys"], comparison["cells"]
    if len({tuple(cell["overrides"].values()) for cell in cells}) < max(len(cells), 2):
        return [Column("", lambda cell: str(cell["name"]), False)]
    short = {key: key.rpartition(".")[2] for key in keys}
    clear = len(set(short.values())) == len(keys)
    return [Column(short[key] if clear else key, _override(key), False) for key in keys]


def _override(key: str) -> Callable[[Cell], str]:
    return lambda cell: str(cell["overrides"][key])


def _figures(cells: Sequence[Cell]) -> list[Column]:
    """What may be told of the cells; of no cell is it sure that there is anything."""
    accuracy = next((name for name in ("test/accuracy", "val/accuracy") if _any(cells, "accuracy", name)), None)
    counts = {_measured(cell) for cell in cells if cell["images_per_second"]}
    return [
        Column("", lambda cell: "best" if cell["best"] and len(cells) > 1 else "", False),
        Column("images/s", lambda cell: estimate(cell["images_per_second"])),
        Column("times as fast", lambda cell: estimate(cell["speedup"])),
        Column("verdict", _verdict, False),
        Column("runs", lambda cell: str(_measured(cell) or "") if len(counts) > 1 else ""),
        *(Column(heading, _phase(name)) for heading, name in _PHASES.items()),
        Column("rest", _rest),
        *(Column(heading, _number("ceilings", name, rate)) for heading, name in _CEILINGS.items()),
        *(Column(heading, _number("memory", name, _gigabytes)) for heading, name in _MEMORY.items()),
        *([Column("accuracy", _number("accuracy", accuracy, "{:.3f}".format))] if accuracy else []),
    ]


def _any(cells: Sequence[Cell], group: str, name: str) -> bool:
    return any((cell[group] or {}).get(name) is not None for cell in cells)


def _measured(cell: Cell) -> int:
    return sum(run["images_per_second"] is not None for run in cell["runs"])


def _verdict(cell: Cell) -> str:
    if not cell["images_per_second"]:
        return "not measured" if cell["status"] in ("completed", "mixed") else str(cell["status"])
    return str(cell["verdict"])


def _phase(name: str) -> Callable[[Cell], str]:
    """A phase's share of the step."""

    def text(cell: Cell) -> str:
        seconds = cell["step_seconds"] or {}
        part, total = seconds.get(name), seconds.get("total")
        return "" if part is None or not total else percent(part / total)

    return text


def _rest(cell: Cell) -> str:
    """What the other columns leave of the step."""
    seconds = cell["step_seconds"] or {}
    total = seconds.get("total")
    named = sum(seconds.get(name) or 0.0 for name in _PHASES.values())
    return percent(max(0.0, 1 - named / total)) if total else ""


def _number(group: str, name: str, words: Callable[[float], str]) -> Callable[[Cell], str]:
    def text(cell: Cell) -> str:
        value = (cell[group] or {}).get(name)
        return "" if value is None else words(value)

    return text


def _gigabytes(count: float) -> str:
    return f"{figure(count / 1e9)} GB"


def _lines(comparison: Mapping[str, Any]) -> list[str]:
    cells = comparison["cells"]
    errors: dict[str, list[str]] = {}
    for cell in cells:
        if cell["error"]:
            errors.setdefault(cell["error"], []).append(f"{cell['name']} {_how_many(cell)}")
    lines = [f"{', '.join(ended)}: {error}" for error, ended in errors.items()]
    lines += [f"not the same: {sentence}" for sentence in comparison["unlike"]]
    lines += [
        f"{knee['where']}: data.batch_size={knee['batch_size']} comes within 5% of the best, {knee['best_batch_size']}"
        for knee in comparison["knees"]
    ]
    lines += comparison.get("notes", ())
    if any((cell["images_per_second"] or {}).get("of") == "steps" for cell in cells):
        lines.append("Intervals of images/s of a single run are over its steps: another run may well lie outside.")
    return lines


def _how_many(cell: Cell) -> str:
    """How many of a cell's runs did not complete."""
    lost = [run["status"] for run in cell["runs"] if run["status"] != "completed"]
    words = lost[0] if len(set(lost)) == 1 else "failed"
    return words if len(lost) == len(cell["runs"]) else f"{words} in {len(lost)} of {len(cell['runs'])} runs"
