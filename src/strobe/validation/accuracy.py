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

from strobe.app.run.apart import train as train_apart
from strobe.bench.inputs import write_cifar10
from strobe.diagnose.rank import command
from strobe.measure import environment
from strobe.measure.statistics import quantile
from strobe.overrides import joined
from strobe.present import terminal
from strobe.records.run import Record, read_summary
from strobe.validation.accuracy_cells import Cell, cells
from strobe.validation.experiment import arguments as arguments_of
from strobe.validation.experiment import folder_of, overrides_among

ROOT = Path(__file__).parents[3]
TIMEOUT = 600.0  # seconds of one run, its measurements of ceilings included
PHOTOS = "cifar-10-batches-py"
RATE = "overall_images_per_second"
LOADER_BOUND = "loader"
AIMS = {"right": 0.95, "false loader-bound": 0, "median error": 0.10, "p90 error": 0.20}


@dataclass
class Runs:
    """The records (``summary.json``) that a cell's runs left, in turn: as given, and as its first finding says."""

    base: list[dict[str, Any]] = field(default_factory=list)
    changed: list[dict[str, Any]] = field(default_factory=list)
    failure: str | None = None  # why there are no more


@dataclass(frozen=True)
class Result:
    """One cell, judged; speed-ups are ratios of images/s, None where they are not known."""

    cell: Cell
    found: str | None  # the first finding's cause
    overrides: tuple[str, ...]
    predicted: tuple[float, float, float] | None  # median, low, high
    measured: float | None
    failure: str | None

    @property
    def right(self) -> bool:
        """Whether the first finding is the right one; a run that failed found nothing."""
        return self.cell.accepts(self.found)

    @property
    def error(self) -> float | None:
        """Predicted / measured - 1."""
        return self.predicted[0] / self.measured - 1 if self.predicted and self.measured else None

    @property
    def inside(self) -> bool | None:
        """Whether the measured speed-up lies in the predicted interval."""
        return self.predicted[1] <= self.measured <= self.predicted[2] if self.predicted and self.measured else None


@dataclass(frozen=True)
class Score:
    """All cells together; shares and errors are None where there is nothing to count."""

    injected: int
    right: int
    controls: int
    controls_right: int
    loader_bound: int  # controls that were called so
    predictions: int  # with a measured speed-up beside them
    inside: int
    median_error: float | None  # of |predicted / measured - 1|
    p90_error: float | None
    failed: int

    @property
    def share_right(self) -> float | None:
        """Of the cells with an injected bottleneck."""
        return self.right / self.injected if self.injected else None


class RunFailedError(Exception):
    """A run ended without a complete record; the message is one line."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the cells and print the table and the figures."""
    options = parse(arguments)
    console = terminal.console()
    results = []
    with folder_of(None) as scratch, folder_of(options.keep) as kept:
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
    parser = arguments_of("strobe.validation.accuracy", "The ground-truth grid.", seed="of the order of cells")
    parser.add_argument("given", nargs="*", metavar="NAME or KEY=VALUE", help="a cell, or an override for every run")
    parser.add_argument("--repeats", type=int, default=1, help="base and changed runs of a cell, in turn (1)")
    options = parser.parse_intermixed_args(arguments)
    if options.repeats < 1:
        parser.error(f"--repeats {options.repeats} is out of range; it must be at least 1")
    options.overrides = overrides_among(options.given)
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


def first_finding(record: dict[str, Any]) -> dict[str, Any]:
    """The finding that is ranked first; empty if there is none."""
    findings = record.get("findings") or [{}]
    return dict(findings[0])


def judge(cell: Cell, runs: Runs) -> Result:
    """Hold the first run's first finding against the cell, and its prediction against the runs.

    The measured speed-up is the median over pairs of a base run and the changed run after it.
    """
    finding = first_finding(runs.base[0]) if runs.base else {}
    speedup = finding.get("predicted_speedup") or {}
    median, low, high = (speedup.get(key) for key in ("median", "low", "high"))
    rates = [(base.get(RATE), changed.get(RATE)) for base, changed in zip(runs.base, runs.changed, strict=False)]
    ratios = [after / before for before, after in rates if before and after]
    return Result(
        cell=cell,
        found=finding.get("cause"),
        overrides=tuple(finding.get("overrides") or ()),
        predicted=(median, low, high) if median and low and high else None,
        measured=statistics.median(ratios) if ratios else None,
        failure=runs.failure,
    )


def score(results: Sequence[Result]) -> Score:
    """Count and summarise."""
    injected = [result for result in results if result.cell.cause is not None]
    controls = [result for result in results if result.cell.cause is None]
    errors = sorted(abs(result.error) for result in results if result.error is not None)
    return Score(
        injected=len(injected),
        right=sum(result.right for result in injected),
        controls=len(controls),
        controls_right=sum(result.right for result in controls),
        loader_bound=sum(result.found == LOADER_BOUND for result in controls),
        predictions=len(errors),
        inside=sum(result.inside is True for result in results),
        median_error=quantile(errors, 0.5),
        p90_error=quantile(errors, 0.9),
        failed=sum(result.failure is not None for result in results),
    )


def table(results: Sequence[Result]) -> Table:
    """One row a cell, those that failed too."""
    columns = ("cell", "injected", "first finding", "", "overrides", "predicted", "measured", "error")
    drawn = Table(*columns, title="ground-truth grid: speed-ups are ratios of images/s")
    for result in results:
        predicted = result.predicted and "{:.2f} ({:.2f} to {:.2f})".format(*result.predicted)
        drawn.add_row(
            result.cell.name,
            result.cell.cause or "nothing",
            result.found or "-",
            "right" if result.right else "WRONG",
            " ".join(result.overrides) or "-",
            predicted or "-",
            "-" if result.measured is None else f"{result.measured:.2f}",
            result.failure or ("-" if result.error is None else f"{result.error:+.0%}"),
        )
    return drawn


def lines(total: Score) -> list[str]:
    """The figures beside the aims."""
    return [
        f"first finding right: {total.right} of {total.injected} injected causes ({_share(total.share_right)}; "
        f"aim {AIMS['right']:.0%})",
        f"controls called loader-bound: {total.loader_bound} of {total.controls} (aim {AIMS['false loader-bound']}); "
        f"controls right: {total.controls_right}",
        f"prediction error: median {_share(total.median_error)} (aim {AIMS['median error']:.0%}), "
        f"90th percentile {_share(total.p90_error)} (aim {AIMS['p90 error']:.0%}), of {total.predictions} predictions",
        f"measured within the predicted interval: {total.inside} of {total.predictions}",
        f"cells that failed: {total.failed}",
    ]


def _share(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.0%}"


if __name__ == "__main__":
    main()
