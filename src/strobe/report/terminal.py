"""A run's record for the terminal."""

import shlex
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

COLOURS = {"completed": "green", "interrupted": "yellow", "failed": "red"}


def print_summary(summary: dict[str, Any], run_dir: Path, console: Console) -> None:
    """Print what a person wants to know at the end of a run, and where the rest lies."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows(summary):
        table.add_row(name, value)
    colour = COLOURS[summary["status"]]
    console.print()
    console.rule(f"[bold {colour}]run {summary['status']}", align="left", style=colour)
    console.print(table)
    path = _pasteable(run_dir)
    console.print(Text(f"run       {path}"), soft_wrap=True)  # plain text: a path may look like markup
    if traces := len(summary["traces"]):
        view = f"python -m strobe.view {path} --perfetto"
        console.print(Text(f"traces    {traces}, look at them with: {view}"), soft_wrap=True)


def _pasteable(path: Path) -> str:
    """The path from here, quoted for the shell."""
    return shlex.quote(str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path))


def rows(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """Names and values, of what there is."""
    lines = [("what", _what(summary))]
    rate = summary["images_per_second"]
    if rate["median"] is not None:
        steps = summary["steps"]["measured"]
        lines.append(
            (
                "images/s",
                f"{rate['median']:,.0f} ({rate['low']:,.0f} to {rate['high']:,.0f}), median of {steps} steps",
            )
        )
        lines.append(("step", _step(summary["step_seconds"])))
    elif any(summary["steps"].values()):
        steps = sum(summary["steps"].values())
        lines.append(
            (
                "images/s",
                f"none: all {steps} steps were profiled or warm-up; train longer, or raise profiler.wait",
            )
        )
    lines += [(stage, text) for stage in ("train", "val", "test") if (text := _metrics(summary["metrics"], stage))]
    return lines


def _what(summary: dict[str, Any]) -> str:
    choices = summary["choices"]
    parts = [
        summary["data"] or choices["data"],
        choices["model"],
        f"loader {choices['loader']}",
        f"batch {summary['batch_size']}",
        f"{summary['num_workers']} workers",
    ]
    if summary["world_size"]:
        parts.append(f"{summary['world_size']} x {summary['accelerator']}")
    return ", ".join(parts)


def _step(seconds: dict[str, float]) -> str:
    total = seconds["total"]
    shares = {name: seconds[name] / total for name in seconds if name != "total"}
    largest = sorted(shares.items(), key=lambda item: -item[1])
    parts = [f"{name.replace('_', ' ')} {share:.0%}" for name, share in largest if share >= 0.005]
    return f"{total * 1e3:,.1f} ms: {', '.join(parts)}"


def _metrics(metrics: dict[str, float], stage: str) -> str:
    parts = []
    if f"{stage}/loss" in metrics:
        parts.append(f"loss {metrics[f'{stage}/loss']:.3f}")
    if f"{stage}/accuracy" in metrics:
        parts.append(f"accuracy {metrics[f'{stage}/accuracy']:.3f}")
    return ", ".join(parts)
