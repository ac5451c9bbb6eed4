"""Tables of operators over all cycles of a profile, like torch.profiler's `acc_events=True`, but parsed at the end.

`acc_events=True` turns every event of a cycle into Python objects while training waits, and keeps them all
(https://docs.pytorch.org/docs/stable/profiler.html). A finished cycle keeps its raw results, so it can be parsed later.
"""

import csv
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from torch._C._autograd import DeviceType
from torch.autograd.profiler import profile
from torch.autograd.profiler_util import EventList, FunctionEventAvg

from .ranges import RANGES
from .tracefile import without_gc

_STEP = "ProfilerStep*"  # torch's name for all `ProfilerStep#<n>`
_TEXT_ROWS = 100
MOST_CYCLES = 8  # kept as they are, some megabytes each, before the oldest one is parsed
_NAME_WIDTH = 80  # characters; the names of kernels are longer than that
_NARROW = 44  # in TensorBoard's Text tab, which breaks words and figures wherever a table is too wide
_KEY = ("key", "node_id", "device_type", "is_legacy")  # and whether it is an annotation, as EventList.key_averages
_FIGURES = {
    "calls": "count",
    "self_cpu_us": "self_cpu_time_total",
    "cpu_us": "cpu_time_total",
    "self_device_us": "self_device_time_total",
    "device_us": "device_time_total",
    "self_cpu_bytes": "self_cpu_memory_usage",
    "cpu_bytes": "cpu_memory_usage",
    "self_device_bytes": "self_device_memory_usage",
    "device_bytes": "device_memory_usage",
    "flops": "flops",
}
_NOUNS = {"cpu": "CPU", "device": "device"}


class OperatorTables:
    """Operator tables of one process, over all cycles together.

    Ranges that a program opens itself (`record_function`, the waiting for a loader) have rows too; their self time is
    what no operator inside them explains. The steps' own ranges have no row. With a device, torch lists its kernels in
    rows of their own (`device` is not `cpu`), and once more as the device time of the operators that launched them.
    """

    def __init__(self) -> None:
        self.cycles = 0  # added
        self.steps = 0  # active ones in them
        self._waiting: list[Any] = []
        self._rows: dict[tuple[Any, ...], Any] = {}
        self._device: str | None = None
        self._shapes = self._memory = self._flops = False

    def add(self, cycle: profile, steps: int = 0) -> None:
        """Add a finished cycle of so many active steps: the `profiler` of a torch.profiler.profile that is ready."""
        self.cycles += 1
        self.steps += steps
        self._waiting.append(cycle)
        while len(self._waiting) > MOST_CYCLES:
            self._parse(self._waiting.pop(0))

    def write(self, directory: Path) -> list[Path]:
        """Write the tables as text (the top rows) and CSV (all rows); nothing without a cycle.

        `operators_by_cpu_time`, `operators_by_device_time` if a device was used, `operators_by_shape` if shapes were
        recorded, `operators_by_memory` if memory was profiled. Rows are sorted by their own share, without that of
        what they call. In CSV, times are microseconds, memory is bytes (freed minus allocated is negative), and what
        was not recorded has no column. Files appear whole or not at all.
        Raises:
            OSError: The directory or a file cannot be written.
        """
        shaped = self._parsed()
        if not shaped:
            return []
        rows, side = _without_shapes(shaped), self._side(shaped)
        tables = {"operators_by_cpu_time": ("self CPU time", "self_cpu_time_total", rows)}
        if side == "device":
            tables["operators_by_device_time"] = ("self device time", "self_device_time_total", rows)
        if self._shapes:
            what = f"input shape and self {_NOUNS[side]} time"
            tables["operators_by_shape"] = (what, f"self_{side}_time_total", shaped)
        if self._memory:
            what = f"self {_NOUNS[side]} memory"
            tables["operators_by_memory"] = (what, f"self_{side}_memory_usage", rows)
        directory.mkdir(parents=True, exist_ok=True)
        written = []
        with TemporaryDirectory(prefix=".tables-", dir=directory) as scratch:
            for name, (what, order, table) in tables.items():
                for suffix, render in ((".txt", self._text), (".csv", self._csv)):
                    draft = Path(scratch, name + suffix)
                    draft.write_text(render(what, order, table), encoding="utf-8", newline="")
                    written.append(draft)
            return [draft.replace(directory / draft.name) for draft in written]

    def markdown(self, rows: int = 15) -> str:
        """The top operators by self time, on the device if one was used, as a Markdown table; empty without a cycle.

        The phases of a step have no rows here; `strobe.callbacks.timeline` shows them.
        """
        table = _without_shapes(self._parsed())
        if not table:
            return ""
        side = self._side(table)
        own, total = f"self_{side}_time_total", f"{side}_time_total"
        # Kernels are not operators, and a range on the device holds kernels that are counted already.
        chosen = [row for row in table if row.device_type == DeviceType.CPU and row.key not in RANGES]
        # As torch's own table sums device time: work on the device, and not a range around some.
        kernels = [r for r in table if (r.is_legacy if r.device_type == DeviceType.CPU else not _annotated(r))]
        whole = sum(getattr(row, own) for row in (table if side == "cpu" else kernels)) or 1.0
        lines = [
            self._headline(f"self {_NOUNS[side]} time", min(rows, len(chosen)), len(chosen)),
            "",
            "| Operator | Share | Self, ms | Total, ms | Calls | Total a call, us |",
            "|:--|--:|--:|--:|--:|--:|",
        ]
        for row in sorted(chosen, key=lambda row: -getattr(row, own))[:rows]:
            times = (getattr(row, own) / 1e3, getattr(row, total) / 1e3, getattr(row, total) / row.count)
            itself, both, each = (f"{value:,.{max(0, 3 - len(f'{value:.0f}'))}f}" for value in times)
            name = " ".join(row.key.translate({ord("|"): "/", ord("`"): "'"}).split())  # these would end the cell
            name = name if len(name) <= _NARROW else f"{name[: _NARROW - 3]}..."
            share = getattr(row, own) / whole
            lines.append(f"| `{name}` | {share:.1%} | {itself} | {both} | {row.count:,} | {each} |")
        return "\n".join(lines) + "\n"

    def _parsed(self) -> list[Any]:
        while self._waiting:
            self._parse(self._waiting.pop(0))
        return list(self._rows.values())

    def _parse(self, cycle: Any) -> None:
        self._device = self._device or cycle.use_device
        self._shapes |= cycle.record_shapes
        self._memory |= cycle.profile_memory
        self._flops |= cycle.with_flops
        with without_gc():
            averages = cycle.key_averages(group_by_input_shape=True)
            for event in cycle.function_events:  # else a search for cycles would halt training for seconds later
                event.cpu_parent, event.cpu_children = None, []
        # Around a closure that range holds forward and backward; a range called `optimizer` in it does not.
        ranged = any(row.key == "optimizer" and _annotated(row) for row in averages)
        hidden = (_STEP, "Optimizer.step#") if ranged else (_STEP,)
        _merge(self._rows, [row for row in averages if not row.key.startswith(hidden)])

    def _side(self, rows: list[Any]) -> str:
        return "device" if self._device and any(row.self_device_time_total > 0 for row in rows) else "cpu"

    def _headline(self, what: str, shown: int, of: int) -> str:
        over = [f"{self.cycles} cycle{'s' * (self.cycles != 1)}"]
        if self.steps:
            over.append(f"{self.steps} step{'s' * (self.steps != 1)}")
        return f"Operators by {what}, over {' and '.join(over)}: {shown} of {of} rows."

    def _text(self, what: str, order: str, rows: list[Any]) -> str:
        events: Any = EventList
        table = events(rows, use_device=self._device, profile_memory=self._memory, with_flops=self._flops)
        drawn = table.table(sort_by=order, row_limit=_TEXT_ROWS, max_name_column_width=_NAME_WIDTH)
        return f"{self._headline(what, min(_TEXT_ROWS, len(rows)), len(rows))}\n\n{drawn}"

    def _csv(self, what: str, order: str, rows: list[Any]) -> str:
        unknown = {"flops"} if not self._flops else set()
        if not self._memory:
            unknown |= {name for name in _FIGURES if name.endswith("bytes")}
        if self._device is None:
            unknown |= {name for name in _FIGURES if "device" in name}
        figures = {name: attribute for name, attribute in _FIGURES.items() if name not in unknown}
        shaped = any(row.input_shapes for row in rows)
        text = StringIO()
        lines = csv.writer(text, lineterminator="\n")
        lines.writerow(["name", "device", "annotation", *figures, *(["input_shapes"] if shaped else [])])
        for row in sorted(rows, key=lambda row: -getattr(row, order)):
            values = {name: getattr(row, attribute) for name, attribute in figures.items()}
            plain = [f"{value:.3f}" if name.endswith("us") else value for name, value in values.items()]
            where = (row.device_type.name.lower(), int(_annotated(row)))
            lines.writerow([row.key, *where, *plain, *([row.input_shapes] if shaped else [])])
        return text.getvalue()


def _annotated(row: Any) -> bool:
    """Whether a program opened this range; torch 2.4 does not say, so only Strobe's own are known there."""
    return bool(getattr(row, "is_user_annotation", row.key in RANGES))


def _merge(into: dict[tuple[Any, ...], Any], rows: list[Any], *, shapes: bool = True) -> None:
    """Add averages to those of the same key, as EventList.key_averages does."""
    for row in rows:
        key = (*(getattr(row, name) for name in _KEY), _annotated(row), str(row.input_shapes) if shapes else "")
        average: Any = into.setdefault(key, FunctionEventAvg())
        average.add(row)
        average.cpu_parent = average.cpu_children = None  # these lead to every event of the cycle


def _without_shapes(rows: list[Any]) -> list[Any]:
    merged: dict[tuple[Any, ...], Any] = {}
    _merge(merged, rows, shapes=False)
    for row in merged.values():
        row.input_shapes = ""
    return list(merged.values())
