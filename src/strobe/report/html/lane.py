"""What lies between steps, in a lane below the plot: epochs, validation, other pauses."""

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass

from strobe.records.tables import Rows
from strobe.report.html.drawing import label, line, rect
from strobe.report.html.text import counted, duration

HEIGHT = 14  # pixels
PLACES = 400  # so many marks at most
MOST_EPOCHS = 40  # epochs that are marked with a line
_KINDS = {  # of pauses: columns of steps.csv
    "validation": ("validated", "validation"),
    "checkpoints": ("saved", "checkpoint, longer than a step"),
    "between": ("paused", "other pause, longer than a step"),
}
_NAMED = 5  # epochs that are named


@dataclass(frozen=True)
class Between:
    """``epochs``: first step and number of each; ``pauses``: by kind, steps before one, and its seconds."""

    epochs: list[tuple[float, float]]
    pauses: dict[str, list[tuple[float, float]]]


def between_steps(rows: Rows) -> Between:
    """What ``steps.csv`` tells of the time between steps."""
    return Between(_epochs(rows), _pauses(rows))


def lane(between: Between, x: Callable[[float], float], top: float) -> list[str]:
    """Epochs as lines through the plot above ``top``, validation and other pauses as marks below it."""
    drawn, starts = [], between.epochs
    if 1 < len(starts) <= MOST_EPOCHS:
        drawn += [line(x(step - 0.5), 0, x(step - 0.5), top + HEIGHT, "epoch") for step, _ in starts[1:]]
    if len(starts) > 1:
        for number in range(0, len(starts), math.ceil(len(starts) / _NAMED)):
            step, epoch = starts[number]
            name = f"{epoch:,.0f}" if number else f"epoch {epoch:,.0f}"
            drawn.append(label(x(step - 0.5 * bool(number)) + 0.004, 11, name, "axis quiet"))
    for css, steps in between.pauses.items():
        places = sorted({round(min(1.0, x(step + 0.5)) * PLACES) for step, _ in steps})
        drawn += [rect(place / PLACES - 0.0015, top + 7 * (css != "validated"), 0.003, 6, css) for place in places]
    return drawn


def pauses(between: Between) -> str:
    """What the marks mean, and how long it took in all; nothing without pauses."""
    items = [
        f'<li><i class="mark {css}"></i><span>{name}: {counted(len(steps), "time")}, '
        f"{duration(sum(seconds for _, seconds in steps))} in all</span></li>"
        for css, name in _KINDS.values()
        if (steps := between.pauses[css])
    ]
    if len(between.epochs) > 1:
        items.insert(0, f'<li><i class="stroke epoch"></i><span>{counted(len(between.epochs), "epoch")}</span></li>')
    return f'<ul class="keys">{"".join(items)}</ul>' if items else ""


def _epochs(rows: Rows) -> list[tuple[float, float]]:
    """The first step of each epoch, and its number."""
    found, last = [], None
    for number, row in enumerate(rows):
        epoch = row.get("epoch")
        if epoch is not None and math.isfinite(epoch) and epoch != last:
            found.append((_step(row, number), epoch))
            last = epoch
    return found


def _pauses(rows: Rows) -> dict[str, list[tuple[float, float]]]:
    """Steps after which came a validation, or another pause longer than a usual step; and the seconds of that."""
    totals = [row["total"] for row in rows if 0 < row.get("total", 0.0) < math.inf]
    usual = statistics.median(totals) if totals else math.inf
    found: dict[str, list[tuple[float, float]]] = {css: [] for css, _ in _KINDS.values()}
    for number, row in enumerate(rows):
        for kind, (css, _) in _KINDS.items():
            if (0 if kind == "validation" else usual) < row.get(kind, 0.0) < math.inf:
                found[css].append((_step(row, number), row[kind]))
    return found


def _step(row: dict[str, float], number: int) -> float:
    step = row.get("step", math.nan)
    return step if math.isfinite(step) else float(number)
