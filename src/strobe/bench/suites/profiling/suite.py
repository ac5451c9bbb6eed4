"""``suite=profiling``: what phase timers, traces, spans and Python profiles cost the steps that they watch."""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from strobe.bench.harness.declare import Cell, Input, Plan, Request, Suite, Table, deferred
from strobe.bench.harness.results import known
from strobe.bench.inputs import find_data, require_batch, require_sound
from strobe.present.format import figure

TRACES: dict[str, dict[str, Any]] = {
    "nothing more": {"record_shapes": False},
    "record_shapes (default)": {},
    "+ with_flops": {"with_flops": True},
    "+ profile_memory": {"profile_memory": True},
    "+ with_stack": {"with_stack": True},
    "all": {"with_flops": True, "profile_memory": True, "with_stack": True},
}
TRACEML = "traceml_ai"  # another project's timers (the package traceml-ai), compared where it is installed
TWO_RANKS = "Strobe, two ranks"
WATCHING = ("phase timers", "trace that waits", "Strobe", TWO_RANKS, "SimpleProfiler", "TraceML")
CELLS: dict[str, dict[str, dict[str, Any]]] = {  # by table and column: what its function in cells.py is called with
    "callbacks": {name: {"kind": name} for name in WATCHING},
    "traces": {name: {"options": options} for name, options in TRACES.items()},
    "spans": {"switched off": {"recorded": False}, "recorded": {"recorded": True}},
    "python": {kind: {"kind": kind} for kind in ("sampling", "events")},
}
TITLES = {
    "callbacks": "Steps that do next to nothing, with a callback",
    "traces": "Steps that are recorded, by a trace with",
    "spans": "Loading a batch, with spans",
    "python": "Steps under a Python profile",
}


def declare(cfg: DictConfig) -> Suite:
    """A table for each kind of watching."""
    tables = list(cfg.suite.tables or CELLS)
    batch = f"batch {cfg.data.batch_size}"
    return Suite(
        title="What profilers cost",
        about="Watched steps, each in turns with the same steps unwatched, in the same process; a cell's "
        "seconds are those of a watched step, or batch. Callbacks: the timers that are always on, a trace "
        "callback that waits, Strobe on a script, also on one of two ranks, Lightning's SimpleProfiler and TraceML's "
        "callback without its runtime, in a training that does next to nothing. Traces: recorded steps beside the "
        "waiting ones of the same training, with the bytes a step and the stall at the end of a cycle of 3 steps. "
        "Spans: loading alone, in one process; recorded ones beside those that are switched off, these beside none. "
        "Python: a training under a profile beside one without, and the share of a step that loading seems to take.",
        cells=[
            Cell(
                table,
                "tiny step" if table == "callbacks" else batch,
                column,
                deferred(f"profiling.cells:{table}", **options),
            )
            for table in tables
            for column, options in CELLS[table].items()
            if column != "TraceML" or find_spec(TRACEML)
        ],
        tables=[Table(table, TITLES[table], unit="ms") for table in tables],
        quick=Plan(rounds=1, turn=0.5, budget=40),
        full=Plan(rounds=9, turn=5.0, budget=900),
        find=_find,
        conclude=conclude,
        varies={
            "profiler": "suite.tables=[NAME,...]",
            "trainer.max_steps": "rounds=N for more of them",
            "trainer.max_epochs": "rounds=N for more steps",
        },
        packages=["pyinstrument"],
    )


def _find(request: Request, scratch: Path) -> Input:
    """The images, enough for a batch."""
    source = find_data(request, scratch)
    require_batch(request.cfg.data.batch_size, source, "data.batch_size=N")
    require_sound("suite=profiling", [*source.overrides, *request.overrides])
    return source


def conclude(record: Mapping[str, Any]) -> list[str]:
    """A sentence for each cell that was measured."""
    measured = [cell for cell in record["cells"] if cell["visits"]]
    steps = [cell["figures"]["unwatched"]["median"] for cell in measured if cell["table"] in {"traces", "python"}]
    sentences = [_sentence(cell, cell["figures"], min(steps, default=0.0)) for cell in measured]
    columns = {cell["column"] for cell in measured}
    if "phase timers" in columns and "TraceML" not in columns:
        sentences.append("TraceML was not measured beside them: pip install traceml-ai, and it is.")
    return sentences


def _sentence(cell: Mapping[str, Any], figures: Mapping[str, Any], step: float) -> str:
    """What a cell tells, beside the seconds of a ``step`` that nobody watches, or 0."""

    def told(name: str, words: str, scale: float = 1.0) -> str:
        return known(figures[name], len(cell["visits"]), words, lambda value: figure(scale * value))

    column, middle = cell["column"], {name: values["median"] for name, values in figures.items()}
    match cell["table"]:
        case "callbacks":
            share = f", {100 * middle['cost'] / step:.3f}% of a training step of {1e3 * step:.1f} ms" if step else ""
            of = f"a {column}" if column == "trace that waits" else column
            return f"The cost of {of} is {told('cost', f'{{}} µs a step{share}', 1e6)}."
        case "traces":
            return (
                f"In a trace with {column}, the time of a recorded step is {told('times', '{} times a waiting one')}. "
                f"A step adds {figure(middle['bytes'] / 1e3)} kB to it; the stall at the end of a cycle is "
                f"{told('stall', '{} ms', 1e3)}."
            )
        case "spans":
            other = "switched off" if column == "recorded" else "absent"
            return (
                f"With spans {column}, the time of loading is {told('times', f'{{}} times that with spans {other}')}. "
                f"Two spans a file take {middle['share']:.2%} of it; the time of one is {told('span', '{} µs', 1e6)}."
            )
    return (
        f"Under a profile by {column}, loading seems to take {middle['share']:.1%} of a step, not "
        f"{middle['share_unwatched']:.1%}; the time of a step is {told('times', '{} times that without it')}."
    )
