"""The ground-truth grid: does the first finding of a run name the bottleneck that was put into it, and is its
prediction right?

    python -m strobe.validation.accuracy [NAME ...] [KEY=VALUE ...] [--repeats N] [--keep FOLDER] [--seed N]

Each cell (``accuracy_cells``; NAME chooses one, default: all) is a short training in a process of its own.
Its first finding's command is then run in another, and the ratio of their images/s is held against the prediction.
Cells come in random order, one process at a time; on a machine that does other work the figures are worth little.
KEY=VALUE goes to every run. CIFAR-10 is taken from $STROBE_DATA; where it is not there, photos of its form are
generated.
"""

import argparse
import contextlib
import os
import random
import shlex
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from strobe.bench.inputs import write_cifar10
from strobe.diagnose.rank import command
from strobe.measure import environment
from strobe.overrides import joined
from strobe.process.training import train as train_apart
from strobe.records.run import Record, read_summary
from strobe.validation.accuracy_cells import Cell, cells
from strobe.validation.accuracy_score import Result, Runs, first_finding, judge, lines, score, table

ROOT = Path(__file__).parents[3]
TIMEOUT = 600.0  # seconds of one run, its measurements of ceilings included
PHOTOS = "cifar-10-batches-py"


class RunFailedError(Exception):
    """A run ended without a complete record; the message is one line."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the cells and print the table and the figures."""
    options = parse(arguments)
    console = Console(width=None if sys.stdout.isatty() else 180)
    results = []
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        kept = options.keep.resolve() if options.keep else scratch
        variables, photos = data_variables(scratch)
        for number, cell in enumerate(options.cells, 1):
            runs = run_cell(cell, options.overrides, kept / cell.name, variables, options.repeats)
            results.append(judge(cell, runs))
            console.print(f"[{number}/{len(options.cells)}] {told(results[-1])}", markup=False)
    console.print(table(results))
    for line in lines(score(results)):
        console.print(line, markup=False)
    machine = environment.describe()
    console.print(f"{machine['cpu']}, {machine['usable_cores']} cores, torch {machine['versions']['torch']}; {photos}")


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """``cells`` in the order in which they are run, ``overrides``, ``repeats``, ``keep``; exits on a wrong one."""
    parser = argparse.ArgumentParser(prog="python -m strobe.validation.accuracy", description="The ground-truth grid.")
    parser.add_argument("given", nargs="*", metavar="NAME or KEY=VALUE", help="a cell, or an override for every run")
    parser.add_argument("--repeats", type=int, default=1, help="base and changed runs of a cell, in turn (1)")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the runs here")
    parser.add_argument("--seed", type=int, default=0, help="of the order of cells (0)")
    options = parser.parse_intermixed_args(arguments)
    if options.repeats < 1:
        parser.error(f"--repeats {options.repeats} is out of range; it must be at least 1")
    options.overrides = [given for given in options.given if "=" in given or given.startswith("~")]
    names = [given for given in options.given if given not in options.overrides]
    known = {cell.name: cell for cell in cells()}
    if unknown := [name for name in names if name not in known]:
        parser.error(f"{unknown[0]!r} is not a cell; choose from {', '.join(map(repr, known))}")
    options.cells = [known[name] for name in names] or list(known.values())
    random.Random(options.seed).shuffle(options.cells)
    return options


def run_cell(cell: Cell, more: Sequence[str], folder: Path, variables: Mapping[str, str], repeats: int) -> Runs:
    """The cell's runs, base and changed in turn; ``failure`` says why there are fewer."""
    runs = Runs()
    given = joined(cell.overrides, more)
    try:
        for turn in range(repeats):
            base = given if turn == 0 else joined(given, ["ceilings=false"])
            runs.base.append(train(base, folder / f"base-{turn}", variables))
            finding = first_finding(runs.base[0])
            if not finding.get("overrides"):
                break
            prescribed = shlex.split(command(Record(runs.base[0]), finding["overrides"]))[2:]
            changed = joined(prescribed, ["ceilings=false"])
            runs.changed.append(train(changed, folder / f"changed-{turn}", variables))
    except RunFailedError as error:
        runs.failure = str(error)
    return runs


def train(overrides: Sequence[str], folder: Path, variables: Mapping[str, str]) -> dict[str, Any]:
    """The record of ``train.py`` with these overrides, in a fresh process.

    Raises:
        RunFailedError: it left none, or did not complete.
    """
    ended = train_apart(overrides, folder, timeout=TIMEOUT, variables=variables)
    if ended.status != "completed":
        raise RunFailedError(ended.error)
    return read_summary(folder / "summary.json")


def told(result: Result) -> str:
    """A cell's outcome, in a line while others are still to come."""
    found = result.failure or f"first finding {result.found or 'none'}, {'right' if result.right else 'WRONG'}"
    return f"{result.cell.name}: {found}"


def data_variables(scratch: Path) -> tuple[dict[str, str], str]:
    """Environment variables with which ``data=cifar10`` finds its photos, and what photos these are."""
    root = Path(os.environ.get("STROBE_DATA", ROOT / "data"))
    folders = [root, *(path for path in root.iterdir() if path.is_dir())] if root.is_dir() else []
    if any((folder / PHOTOS).is_dir() for folder in folders):
        return {"STROBE_DATA": str(root)}, "CIFAR-10's photos"
    write_cifar10(scratch / PHOTOS)
    return {"STROBE_DATA": str(scratch)}, "generated photos"


if __name__ == "__main__":
    main()
