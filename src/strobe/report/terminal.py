"""A run's record for the terminal."""

import shlex
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from strobe.diagnose.predict import idle_of_device
from strobe.diagnose.promise import LEARNING
from strobe.overrides import key_of
from strobe.present.format import counted, duration, here, size
from strobe.present.format import rate as whole
from strobe.records.run import CONFIG, Record, rate_of, read_yaml
from strobe.report import wording
from strobe.report.evidence import figure_of

COLOURS = {"completed": "green", "interrupted": "yellow", "failed": "red"}
TRUST = {"good": "green", "fair": "yellow", "bad": "red"}
_NAMES = 9  # columns; the widest is "callbacks"
_READABLE = 110  # columns; longer lines of prose are hard to read


def print_summary(summary: dict[str, Any], run_dir: Path, console: Console) -> None:
    """Print the end of a run: the verdict, what to change, the figures, and where the rest is."""
    record = Record(summary, read_yaml(run_dir / CONFIG) or {})  # a command follows what else was configured
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True, min_width=_NAMES)
    table.add_column(overflow="fold")
    for name, value in _rows(summary, record):
        if value:
            table.add_row(name, Text(value))
    colour = COLOURS[summary["status"]]
    console.print()
    console.rule(f"[bold {colour}]run {summary['status']}", align="left", style=colour)
    if summary["status"] == "interrupted" and (said := record.text("error", "message")):
        console.print(Text(said))  # the error of a failed run comes last, on stderr
    _print_verdict(record, console, min(console.width, _READABLE))
    console.print(table)
    path, report = shlex.quote(here(run_dir)), run_dir / "report.html"
    lines = {"report": shlex.quote(here(report))} if report.is_file() else {"run": path}
    if traces := len(summary["traces"]):
        lines["traces"] = f"{traces}; to look at them: strobe view {path} --perfetto"
    if taken := record.number("bytes"):
        hint = "" if record.text("script") else "; strobe clean removes old runs"
        lines["files"] = f"{size(taken)}{hint}"
    for name, value in lines.items():  # as they are, however long: a path may look like markup
        console.print(Text(f"{name:<{_NAMES}}  {value}"), soft_wrap=True)


def _print_verdict(record: Record, console: Console, width: int) -> None:
    """Print the verdict, then each finding with its evidence and the command to copy; nothing twice."""
    findings, (first, rest) = wording.advice(record), wording.verdict(record)
    if first:
        colour = "yellow" if findings else "green" if wording.fine(record) else "default"
        console.print(Text.assemble((first, f"bold {colour}"), rest and f" {rest}"), width=width)
    level, trust = wording.trust(record)
    if trust:
        console.print(Text(trust, TRUST[level]), width=width)
    for number, finding in enumerate(findings):
        if finding["title"]:
            title = Text(finding["title"], "bold")
            if finding["predicted"]:
                title = Text.assemble(title, ". Predicted: ", (finding["predicted"], "bold green"))
            if number or first:
                console.print()
            console.print(title, width=width)
        console.print(Text(finding["evidence"]), width=width)
        if finding["command"]:
            line = Text(finding["command"], "cyan")
            line.highlight_words([shlex.quote(override) for override in finding["overrides"]], "bold")
            console.print(line, soft_wrap=True)
        learning = LEARNING & {key_of(override) for override in finding["overrides"]}
        if finding["advice"] and (learning or not finding["command"]):
            console.print(Text(finding["advice"]), width=width)
        for remedy in finding["remedies"]:
            console.print(Text(remedy), width=width)
    if first or trust or findings:
        console.print()


def _rows(summary: dict[str, Any], record: Record) -> list[tuple[str, str]]:
    """Names with values; empty values are unknown."""
    metrics = {name: record.number("metrics", name) for name in summary["metrics"]}
    lines = [("what", ", ".join(wording.subject(record)))]
    if (rate := rate_of(record)) is not None:
        lines.append((wording.unit_of(record), f"{whole(rate)}, {wording.rate_counts(record)}"))
        lines.append(("step", _step(record, summary["step_seconds"])))
    lines += [
        ("ranks", wording.ranks(record)),
        ("callbacks", wording.callbacks(record)),
        ("ceilings", wording.ceilings(record)),
        ("left out", wording.left_out(record)),
    ]
    for stage in ("train", "val", "test"):
        told = ((kind, figure_of(metrics, f"{stage}/{kind}")) for kind in ("loss", "accuracy"))
        lines.append((stage, ", ".join(f"{kind} {value}" for kind, value in told if value)))
    return lines


def _step(record: Record, seconds: dict[str, float]) -> str:
    """The mean step's length and its phases, the largest first; with a GPU, how long that was idle."""
    total = seconds["total"]
    shares = {name: value / total for name, value in seconds.items() if name != "total" and value}
    largest = sorted(shares.items(), key=lambda item: -item[1])
    parts = [f"{wording.phase_of(record, name)} {share:.0%}" for name, share in largest if share >= 0.005]
    told = f"GPU idle {idle_of_device(record) / total:.0%}" if record.number("device_seconds", "total") else ""
    mean = f"{duration(total)}, mean of {counted(record.count('steps', 'measured') or 0, 'step')}: {', '.join(parts)}"
    return "; ".join(filter(None, (mean, told)))
