"""A run's record for the terminal."""

import shlex
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from strobe.present.format import estimate
from strobe.present.format import rate as whole
from strobe.report import wording

COLOURS = {"completed": "green", "interrupted": "yellow", "failed": "red"}
_NAMES = 9  # columns; the widest is "callbacks"
_READABLE = 110  # columns; longer lines of prose are hard to read


def print_summary(summary: dict[str, Any], run_dir: Path, console: Console) -> None:
    """Print what a person wants to know at the end of a run: figures, verdict, what to change, where the rest lies."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True, min_width=_NAMES)
    table.add_column(overflow="fold")
    for name, value in rows(summary):
        table.add_row(name, Text(value))
    colour = COLOURS[summary["status"]]
    console.print()
    console.rule(f"[bold {colour}]run {summary['status']}", align="left", style=colour)
    console.print(table)
    _print_verdict(summary, console)
    path = _pasteable(run_dir)
    if (run_dir / "report.html").is_file():
        _print_line("report", _pasteable(run_dir / "report.html"), console)
    else:
        _print_line("run", path, console)
    if traces := len(summary["traces"]):
        _print_line("traces", f"{traces}, look at them with: python -m strobe.view {path} --perfetto", console)


def _print_verdict(summary: dict[str, Any], console: Console) -> None:
    """The verdict, and each finding with its evidence and the command to copy; nothing twice."""
    width = min(console.width, _READABLE)
    findings = wording.findings(summary)
    if verdict := summary.get("verdict"):
        nothing = summary.get("findings") and summary["status"] == "completed"
        colour = "yellow" if findings else "green" if nothing else "default"
        console.print()
        console.print(Text(verdict, f"bold {colour}"), width=width)
    for found in findings:
        title, predicted = wording.heading(summary, found)
        if title:
            text = Text(title, "bold")
            if predicted:
                text = Text.assemble(text, ". Predicted: ", (predicted, "bold green"))
            console.print()
            console.print(text, width=width)
        console.print(Text(found["evidence"]), width=width)
        if command := wording.command_of(summary, found):
            line = Text(command, "cyan")
            line.highlight_words([shlex.quote(override) for override in found["overrides"]], "bold")
            console.print(line, soft_wrap=True)
        else:
            console.print(Text(found["advice"]), width=width)
    if verdict or findings:
        console.print()


def _print_line(name: str, value: str, console: Console) -> None:
    """One line as it is, however long: a path may look like markup."""
    console.print(Text(f"{name:<{_NAMES}}  {value}"), soft_wrap=True)


def _pasteable(path: Path) -> str:
    """The path from here, quoted for the shell."""
    return shlex.quote(str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path))


def rows(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """Names and values, of what there is."""
    lines = [("what", wording.subject(summary))]
    rate = summary["images_per_second"]
    if rate["median"] is not None:
        steps = summary["steps"]["measured"]
        lines.append(("images/s", f"{estimate(rate, whole)}, median of {steps} steps"))
        lines.append(("step", _step(summary)))
    elif any(summary["steps"].values()):
        steps, profiled = sum(summary["steps"].values()), summary["steps"]["profiled"]
        why = "profiled or warm-up; train longer, or raise profiler.wait" if profiled else "warm-up; train longer"
        lines.append(("images/s", f"none: all {steps} steps were {why}"))
    lines += [("callbacks", wording.callbacks(summary)), ("ceilings", wording.ceilings(summary))]
    lines += [(stage, _metrics(summary["metrics"], stage)) for stage in ("train", "val", "test")]
    return [(name, text) for name, text in lines if text]


def _step(summary: dict[str, Any]) -> str:
    """The step's length and its phases, largest first; on a GPU how long that had nothing to do."""
    seconds = summary["step_seconds"]
    total = seconds["total"]
    shares = {name: value / total for name, value in seconds.items() if name != "total" and value}
    largest = sorted(shares.items(), key=lambda item: -item[1])
    parts = [f"{name.replace('_', ' ')} {share:.0%}" for name, share in largest if share >= 0.005]
    text = f"{total * 1e3:,.1f} ms: {', '.join(parts)}"
    device = summary.get("device_seconds") or {}
    if device.get("total") and device.get("idle") is not None:
        text += f"; GPU idle {device['idle'] / device['total']:.0%}"
    return text


def _metrics(metrics: dict[str, float], stage: str) -> str:
    parts = []
    if f"{stage}/loss" in metrics:
        parts.append(f"loss {metrics[f'{stage}/loss']:.3f}")
    if f"{stage}/accuracy" in metrics:
        parts.append(f"accuracy {metrics[f'{stage}/accuracy']:.3f}")
    return ", ".join(parts)
