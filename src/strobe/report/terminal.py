"""A run's record for the terminal."""

import shlex
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from strobe.present.format import counted, estimate
from strobe.present.format import rate as whole
from strobe.records.run import Record
from strobe.report import wording

COLOURS = {"completed": "green", "interrupted": "yellow", "failed": "red"}
_NAMES = 9  # columns; the widest is "callbacks"
DIFFERS = 0.1  # from here on the rate over all steps is shown beside that of a usual one
_READABLE = 110  # columns; longer lines of prose are hard to read


def print_summary(summary: dict[str, Any], run_dir: Path, console: Console) -> None:
    """Print what a person wants to know at the end of a run: figures, verdict, what to change, where the rest lies."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True, min_width=_NAMES)
    table.add_column(overflow="fold")
    for name, value in _rows(summary, Record(summary)):
        if value:
            table.add_row(name, Text(value))
    colour = COLOURS[summary["status"]]
    console.print()
    console.rule(f"[bold {colour}]run {summary['status']}", align="left", style=colour)
    console.print(table)
    _print_verdict(Record(summary), console)
    path, report = _pasteable(run_dir), run_dir / "report.html"
    lines = {"report": _pasteable(report)} if report.is_file() else {"run": path}
    if traces := len(summary["traces"]):
        lines["traces"] = f"{traces}, look at them with: python -m strobe.view {path} --perfetto"
    for name, value in lines.items():  # as they are, however long: a path may look like markup
        console.print(Text(f"{name:<{_NAMES}}  {value}"), soft_wrap=True)


def _print_verdict(record: Record, console: Console) -> None:
    """The verdict, and each finding with its evidence and the command to copy; nothing twice."""
    width = min(console.width, _READABLE)
    findings, verdict = wording.advice(record), record.text("verdict")
    if verdict:
        nothing = record.items("findings") and record.text("status") == "completed"
        colour = "yellow" if findings else "green" if nothing else "default"
        console.print()
        console.print(Text(verdict, f"bold {colour}"), width=width)
    for found in findings:
        if found["title"]:
            title = Text(found["title"], "bold")
            if found["predicted"]:
                title = Text.assemble(title, ". Predicted: ", (found["predicted"], "bold green"))
            console.print()
            console.print(title, width=width)
        console.print(Text(found["evidence"]), width=width)
        if found["command"]:
            line = Text(found["command"], "cyan")
            line.highlight_words([shlex.quote(override) for override in found["overrides"]], "bold")
            console.print(line, soft_wrap=True)
        else:
            console.print(Text(found["advice"]), width=width)
        for remedy in found["remedies"]:
            console.print(Text(remedy), width=width)
    if verdict or findings:
        console.print()


def _pasteable(path: Path) -> str:
    """The path from here, quoted for the shell."""
    return shlex.quote(str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path))


def _rows(summary: dict[str, Any], record: Record) -> list[tuple[str, str]]:
    """Names and values, empty where nothing is known."""
    rate, steps, metrics = summary["images_per_second"], summary["steps"], summary["metrics"]
    lines, unit = [("what", ", ".join(wording.subject(record)))], wording.unit_of(record)
    if rate["median"] is not None:
        lines.append((unit, f"{estimate(rate, whole)}, median of {counted(steps['measured'], 'step')}"))
        if (overall := record.number("overall_images_per_second")) and abs(overall / rate["median"] - 1) > DIFFERS:
            lines.append(("", f"{whole(overall)} over all of them, with long steps and what lies between steps"))
        lines.append(("step", _step(record, summary["step_seconds"])))
    elif any(steps.values()):
        why = "warm-up; train longer"
        if steps["profiled"]:
            why = "profiled or warm-up; train longer, or raise the profiler's wait"
        count = sum(steps.values())
        which = "the only step was" if count == 1 else f"all {count} steps were"
        lines.append((unit, f"none: {which} {why}"))
    lines += [("callbacks", wording.callbacks(record)), ("ceilings", wording.ceilings(record))]
    for stage in ("train", "val", "test"):
        values = ((kind, metrics.get(f"{stage}/{kind}")) for kind in ("loss", "accuracy"))
        lines.append((stage, ", ".join(f"{kind} {value:.3f}" for kind, value in values if value is not None)))
    return lines


def _step(record: Record, seconds: dict[str, float]) -> str:
    """The step's length and its phases, largest first; on a GPU how long that had nothing to do."""
    total = seconds["total"]
    shares = {name: value / total for name, value in seconds.items() if name != "total" and value}
    largest = sorted(shares.items(), key=lambda item: -item[1])
    parts = [f"{name.replace('_', ' ')} {share:.0%}" for name, share in largest if share >= 0.005]
    whole, idle = record.number("device_seconds", "total"), record.number("device_seconds", "idle")
    told = f"; GPU idle {idle / whole:.0%}" if whole and idle is not None else ""
    return f"{total * 1e3:,.1f} ms: {', '.join(parts)}{told}"
