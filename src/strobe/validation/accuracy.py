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
import os
import random
import shlex
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.table import Table

from strobe.app.run.apart import train
from strobe.bench.inputs import write_cifar10
from strobe.diagnose.rank import command
from strobe.measure import environment
from strobe.measure.statistics import Interval
from strobe.overrides import joined
from strobe.present import terminal
from strobe.present.format import estimate
from strobe.records.run import Record, read_summary
from strobe.validation.accuracy_cells import Cell, cells
from strobe.validation.experiment import arguments as arguments_of
from strobe.validation.experiment import folder_of, is_override, say, scored

ROOT = Path(__file__).parents[3]
TIMEOUT = 600.0  # seconds of one run, its measurements of ceilings included
PHOTOS = "cifar-10-batches-py"
RATE = "overall_images_per_second"


@dataclass
class Result:
    """A cell, and the records (``summary.json``) that its runs left, in turn: as given, and as its first finding says.

    Speed-ups are ratios of images/s, None where they are not known.
    """

    cell: Cell
    base: list[dict[str, Any]] = field(default_factory=list)
    changed: list[dict[str, Any]] = field(default_factory=list)
    failure: str | None = None  # why there are no more

    @property
    def finding(self) -> dict[str, Any]:
        """The first run's first; empty if there is none."""
        return dict(((self.base[0].get("findings") if self.base else None) or [{}])[0])

    @property
    def right(self) -> bool:
        """Whether the first finding is the injected one; a run that failed found nothing.

        A control's is right if it is that there is nothing to fix, or if it gives what it promises when it is applied.
        """
        cause, predicted, measured = self.finding.get("cause"), self.predicted, self.measured
        if self.cell.cause is not None or cause in (None, "nothing"):
            return cause == (self.cell.cause or "nothing")
        return predicted is not None and measured is not None and predicted["low"] <= measured <= predicted["high"]

    @property
    def predicted(self) -> Interval | None:
        """The first finding's speed-up."""
        found: Interval = self.finding.get("predicted_speedup") or {}
        return found if all(found.get(key) for key in ("median", "low", "high")) else None

    @property
    def measured(self) -> float | None:
        """The median over pairs of a base run and the changed run after it."""
        rates = [(base.get(RATE), changed.get(RATE)) for base, changed in zip(self.base, self.changed, strict=False)]
        ratios = [after / before for before, after in rates if before and after]
        return statistics.median(ratios) if ratios else None


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the cells and print the table and the figures."""
    options = parse(arguments)
    console = terminal.console()
    results = []
    with folder_of(None) as scratch, folder_of(options.keep) as kept:
        variables, photos = data_variables(scratch)
        for number, cell in enumerate(options.cells, 1):
            results.append(run_cell(cell, options.overrides, kept / cell.name, variables, options.repeats))
            say(console, f"[{number}/{len(options.cells)}] {told(results[-1])}")
    console.print(table(results))
    machine = environment.describe()
    torch = machine["versions"]["torch"]
    say(console, *lines(results), f"{machine['cpu']}, {machine['usable_cores']} cores, torch {torch}; {photos}")


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """``cells`` in the order in which they are run, ``overrides``, ``repeats``, ``keep``; exits on a wrong one."""
    parser = arguments_of("strobe.validation.accuracy", "The ground-truth grid.", seed="of the order of cells")
    parser.add_argument("given", nargs="*", metavar="NAME or KEY=VALUE", help="a cell, or an override for every run")
    parser.add_argument("--repeats", type=int, default=1, help="base and changed runs of a cell, in turn (1)")
    options = parser.parse_intermixed_args(arguments)
    if options.repeats < 1:
        parser.error(f"--repeats {options.repeats} is out of range; it must be at least 1")
    options.overrides = [given for given in options.given if is_override(given)]
    names = [given for given in options.given if not is_override(given)]
    known = {cell.name: cell for cell in cells()}
    if unknown := [name for name in names if name not in known]:
        parser.error(f"{unknown[0]!r} is not a cell; choose from {', '.join(map(repr, known))}")
    options.cells = [known[name] for name in names] or list(known.values())
    random.Random(options.seed).shuffle(options.cells)
    return options


def run_cell(cell: Cell, more: Sequence[str], folder: Path, variables: Mapping[str, str], repeats: int) -> Result:
    """The cell's runs, base and changed in turn, each in a fresh process; ``failure`` says why there are fewer."""
    result, given = Result(cell), joined(cell.overrides, more)

    def ran(overrides: Sequence[str], name: str, records: list[dict[str, Any]]) -> bool:
        ended = train(overrides, folder / name, timeout=TIMEOUT, variables=variables)
        if ended.status != "completed":
            result.failure = ended.error
            return False
        records.append(read_summary(folder / name / "summary.json"))
        return True

    for turn in range(repeats):
        base = given if turn == 0 else joined(given, ["ceilings=false"])
        if not ran(base, f"base-{turn}", result.base) or not (overrides := result.finding.get("overrides")):
            break
        prescribed = shlex.split(command(Record(result.base[0]), overrides))[2:]
        if not ran(joined(prescribed, ["ceilings=false"]), f"changed-{turn}", result.changed):
            break
    return result


def told(result: Result) -> str:
    """A cell's outcome, in a line while others are still to come."""
    found = f"first finding {result.finding.get('cause') or 'none'}, {'right' if result.right else 'WRONG'}"
    return f"{result.cell.name}: {result.failure or found}"


def data_variables(scratch: Path) -> tuple[dict[str, str], str]:
    """Environment variables with which ``data=cifar10`` finds its photos, and what photos these are."""
    root = Path(os.environ.get("STROBE_DATA", ROOT / "data"))
    folders = [root, *(path for path in root.iterdir() if path.is_dir())] if root.is_dir() else []
    if any((folder / PHOTOS).is_dir() for folder in folders):
        return {"STROBE_DATA": str(root)}, "CIFAR-10's photos"
    write_cifar10(scratch / PHOTOS)
    return {"STROBE_DATA": str(scratch)}, "generated photos"


def table(results: Sequence[Result]) -> Table:
    """One row a cell, those that failed too."""
    columns = ("cell", "injected", "first finding", "", "overrides", "predicted", "measured", "error")
    drawn = Table(*columns, title="ground-truth grid: speed-ups are ratios of images/s")
    for result in results:
        predicted, measured = result.predicted, result.measured
        drawn.add_row(
            result.cell.name,
            result.cell.cause or "nothing",
            result.finding.get("cause") or "-",
            "right" if result.right else "WRONG",
            " ".join(result.finding.get("overrides") or ()) or "-",
            estimate(predicted, "{:.2f}".format) or "-",
            "-" if measured is None else f"{measured:.2f}",
            result.failure or (f"{predicted['median'] / measured - 1:+.0%}" if predicted and measured else "-"),
        )
    return drawn


def lines(results: Sequence[Result]) -> list[str]:
    """The figures beside the aims."""
    injected = [result.right for result in results if result.cell.cause is not None]
    controls = [result for result in results if result.cell.cause is None]
    share = f"{statistics.fmean(injected):.0%}" if injected else "unknown"
    loader_bound = sum(result.finding.get("cause") == "loader" for result in controls)
    known = [(result.predicted, result.measured) for result in results]
    return [
        f"first finding right: {sum(injected)} of {len(injected)} injected causes ({share}; aim 95%)",
        f"controls called loader-bound: {loader_bound} of {len(controls)} (aim 0); "
        f"controls right: {sum(result.right for result in controls)}",
        scored([(predicted, measured) for predicted, measured in known if predicted and measured], " (aim 20%)"),
        f"cells that failed: {sum(result.failure is not None for result in results)}",
    ]


if __name__ == "__main__":
    main()
