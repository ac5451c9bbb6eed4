"""A comparison, from runs to a table, ``comparison.json``, ``.csv`` and ``.html``."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from strobe.callbacks.columns import PHASES
from strobe.compare.gather import Request, gather
from strobe.compare.operators import changed_operators, operators_between
from strobe.compare.table import print_comparison
from strobe.errors import disk_errors
from strobe.measure.gate import parse_share
from strobe.overrides import Parse
from strobe.present.page import write_whole
from strobe.present.terminal import console, say
from strobe.records.files import interval_columns, write_csv, write_summary

RECORD, TABLE, PAGE = "comparison.json", "comparison.csv", "comparison.html"


def conclude(sweep_dir: Path, parse: Parse, baseline: str | None = None, fail_if_slower: str | None = None) -> int:
    """Compare a sweep's cells at its end, as the command with these options does; returns and raises the same."""
    flags = {"--baseline": baseline, "--fail-if-slower": fail_if_slower}
    arguments = [part for flag, value in flags.items() if value for part in (flag, value)]
    command = shlex.join(["strobe", "compare", str(sweep_dir), *arguments])
    limit = None if fail_if_slower is None else parse_share(fail_if_slower, "--fail-if-slower ")
    return compare(Request([sweep_dir], sweep_dir, command, baseline, limit, parse))


def compare(request: Request, *, strict: bool = False) -> int:
    """Compare runs, print and write the result; returns the exit code: the gate's, else 1 if nothing was measured.

    Raises:
        DataError: nothing of the baseline was measured, or the comparison cannot be written.
        ConfigError: there are no runs, or the baseline names no cell, or several.
        SystemExit: ``strict`` was asked for, and the runs' circumstances differ.
    """
    comparison = gather(request)
    if strict and comparison["unlike"]:
        raise SystemExit(
            f"--strict: {'; '.join(comparison['unlike'])}; compare runs of like circumstances, or leave --strict out"
        )
    page = write(request.folder, comparison)
    output = console()
    print_comparison(output, comparison)
    code = 0 if any(cell["images_per_second"] for cell in comparison["cells"]) else 1
    if gate := comparison["regression"]:
        say(output, gate["text"], style="bold")
        code = gate["code"]
    say(output, str(page))
    return code


def write(folder: Path, comparison: dict[str, Any]) -> Path:
    """Add the operators, and write the record, the table and the page, each whole or not at all; returns the page.

    Raises:
        DataError: the folder cannot be made or written to.
    """
    from strobe.compare.page import render

    if pair := operators_between(comparison):
        before, after, *runs = pair
        if changed := changed_operators(*runs):
            comparison["operators"] = {"before": before, "after": after, **changed}
    remedy = "choose another folder with --out FOLDER"
    with disk_errors(lambda why: f"The comparison cannot be written to {folder} ({why}); {remedy}"):
        folder.mkdir(parents=True, exist_ok=True)
        write_summary(folder / RECORD, comparison)
        _write_table(folder / TABLE, comparison)
        return write_whole(folder / PAGE, render(comparison))


def _write_table(path: Path, comparison: Mapping[str, Any]) -> None:
    """A row for each cell."""
    accuracy = sorted({name for cell in comparison["cells"] for name in cell["accuracy"] or ()})
    table = []
    for cell in comparison["cells"]:
        row = {"name": cell["name"], **cell["overrides"], "status": cell["status"], "verdict": cell["verdict"]}
        row["runs"] = sum(run["images_per_second"] is not None for run in cell["runs"])
        for name in ("images_per_second", "speedup"):
            row |= interval_columns(name, cell[name])
        row["interval_of"] = (cell["images_per_second"] or {}).get("of")
        row |= {f"{name}_seconds": (cell["step_seconds"] or {}).get(name) for name in (*PHASES, "total")}
        row |= {name: cell[name] for name in ("between_seconds", "images_per_step")}
        row |= {f"ceiling_{name}": value for name, value in cell["ceilings"].items()}
        row |= {"efficiency": cell["efficiency"], **cell["memory"]}
        row |= {name: (cell["accuracy"] or {}).get(name) for name in accuracy} | {"error": cell["error"]}
        table.append(row)
    write_csv(path, table)
