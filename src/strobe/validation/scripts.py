"""Does ``strobe tune SCRIPT`` find the remedy of scripts whose mistake is known, and are its predictions right?

    python -m strobe.validation.scripts CASES [NAME ...] [--half held_out] [--budget 4m] [--seconds 1]
                                       [--finalists 1] [--no-grid] [--keep FOLDER] [--seed N]

CASES is a JSON file, such as ``tests/tune/programs/cases.json``: a list of ``{file, half, remedy, grid}``. ``remedy``
names the dimensions of which one must be in what is recommended, or the cause that must be told first where it lies
beside steps (``validation``, ``epoch_checkpoint``, ``logging``), which these searches do not change. ``grid`` has the
axes of an exhaustive search, each a list of changes (lists of KEY=VALUE). Every script is tuned first; then each cell
of its grid trains in a fresh process, in random order, and the fastest take turns with what was recommended, as in
:mod:`strobe.validation.search`.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from strobe.duel.foreign import Foreign
from strobe.duel.training import TakesTurns
from strobe.errors import DataError, StrobeError
from strobe.overrides import applied, key_of
from strobe.present import terminal
from strobe.probe.changes import WANTED
from strobe.records.run import load_record
from strobe.tune.dimensions import ALL, DIMENSIONS
from strobe.tune.record import NAME
from strobe.validation import experiment, search

AIM = 0.95  # of the grid's best
REMEDIES = (*ALL, "epoch_checkpoint")
TOLD, PRESCRIBED = "told", "prescribed"  # of the first finding before anything was changed: its cause, and its changes


@dataclass(frozen=True)
class Case:
    """A script with a known mistake."""

    file: Path
    half: str  # developed; held_out, if it was kept aside while rules were written
    remedy: tuple[str, ...]  # dimensions, each a right recommendation, and causes, each a right verdict
    grid: tuple[tuple[tuple[str, ...], ...], ...]  # the axes of an exhaustive search

    @property
    def name(self) -> str:
        """Of the script, without its ending."""
        return self.file.stem

    @property
    def cells(self) -> list[list[str]]:
        """The changes of each cell of the grid."""
        return [applied([], list(itertools.chain.from_iterable(values))) for values in itertools.product(*self.grid)]

    def is_right(self, tuning: Mapping[str, Any], by: str = "recommended") -> bool:
        """Whether one of the remedies was recommended, or ``PRESCRIBED``, or one of the causes told first."""
        changed = {DIMENSIONS.get(key_of(text)) for text in tuning[by]}
        return bool({*changed, tuning[TOLD]} & {*self.remedy})


def main(arguments: Sequence[str] | None = None) -> None:
    """Tune each script, measure its grid, and print the figures."""
    options = _parse(arguments)
    try:
        cases = [one for one in load(options.cases) if options.half in (None, one.half)]
    except StrobeError as error:
        sys.exit(str(error))
    names = [case.name for case in cases]
    if unknown := [name for name in options.names if name not in names]:
        sys.exit(f"{', '.join(unknown)} is not a script of {options.cases}; choose from {', '.join(names)}")
    console = terminal.console()
    tunings: list[tuple[Case, dict[str, Any]]] = []
    shares: list[float] = []
    with experiment.folder_of(options.keep) as folder:
        for case in cases:
            if options.names and case.name not in options.names:
                continue
            tunings.append((case, tune(case, folder / case.name / "tune", options.budget)))
            if options.grid and "given" in tunings[-1][1]:
                place, begin = folder / case.name, partial(begun, case.file)
                shares += search.compare([tunings[-1][1]], case.cells, place, console, options, begin=begin)
            terminal.say(console, *lines(tunings, shares))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    about = "strobe tune on scripts whose mistake is known."
    parser = experiment.arguments("scripts", about, seed="of the order of cells")
    parser.add_argument("cases", type=Path, metavar="CASES", help="a JSON file of scripts, their remedies and grids")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these scripts")
    parser.add_argument("--half", help="only scripts of this half")
    parser.add_argument("--budget", default="4m", help="of a search (4m)")
    parser.add_argument("--seconds", type=float, default=1.0, help="of a turn, once it is warm (1)")
    parser.add_argument("--finalists", type=int, default=1, help="of a grid, that take turns with what was found (1)")
    parser.add_argument("--no-grid", dest="grid", action="store_false", help="search only")
    return parser.parse_args(arguments)


def load(file: Path) -> list[Case]:
    """The cases of a file, beside which their scripts lie; a DataError if it names no such scripts or remedies."""
    try:
        cases = [
            Case(
                file.parent / one["file"],
                one["half"],
                tuple(one["remedy"]),
                tuple(tuple(map(tuple, axis)) for axis in one["grid"]),
            )
            for one in json.loads(file.read_text())
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{file} cannot be read as a list of cases ({error!r}); see strobe.validation.scripts"
        ) from None
    for case in cases:
        if not case.file.is_file() or not {*case.remedy} <= {*REMEDIES}:
            raise DataError(f"{file}: {case.file.name} is missing, or its remedy is not one of {', '.join(REMEDIES)}")
    return cases


def tune(case: Case, folder: Path, budget: str) -> dict[str, Any]:
    """The record of ``strobe tune`` of a script, with nothing in it if that fails; what it prints is shown."""
    words = ["--yes", "--budget", budget, "--out", str(folder), str(case.file)]
    if subprocess.run([sys.executable, "-m", "strobe.tune", *words], check=False).returncode:
        return {"recommended": [], "trials": [], "trainings": 0, TOLD: None, PRESCRIBED: []}
    record: dict[str, Any] = json.loads((folder / NAME).read_text())
    findings = load_record(folder / record["looks"][0]["directory"]).items("findings") if record["looks"] else []
    first = findings[0] if findings else {"cause": None, "changes": []}
    return record | {TOLD: first["cause"], PRESCRIBED: first.get("changes") or []}


def begun(script: Path, changes: Sequence[str], folder: Path) -> TakesTurns:
    """A training of a script with changes."""
    variables = {**os.environ, WANTED: json.dumps(list(changes)), "PYTHONDONTWRITEBYTECODE": "1"}
    return Foreign([sys.executable, str(script)], folder, variables=variables, timeout=search.TIMEOUT)


def lines(tunings: Sequence[tuple[Case, dict[str, Any]]], shares: Sequence[float]) -> list[str]:
    """The figures of the scripts' ``tune.json`` beside the aims.

    ``shares``: how many times as fast as its grid's best each recommendation is, as far as grids were measured.
    """
    right = [case.name for case, tuning in tunings if case.is_right(tuning)]
    wrong = [case.name for case, _ in tunings if case.name not in right]
    good = sum(share >= AIM for share in shares)
    sure, aim = experiment.interval_of(len(right), len(tunings)), "aim 11 of 12"
    first = sum(case.is_right(tuning, PRESCRIBED) for case, tuning in tunings)
    trainings, cells = sum(one["trainings"] for _, one in tunings), sum(len(case.cells) for case, _ in tunings)
    beside = f"{trainings} trainings beside {cells} of the grids, {trainings / cells:.0%} (aim 25%)"
    best = f"{statistics.median(shares):.2f} in the median (aim {AIM})" if shares else "unknown"
    return [
        f"first prescription right: {first} of {len(tunings)} ({experiment.interval_of(first, len(tunings))}; {aim})",
        f"remedy recommended, or cause told first: {len(right)} of {len(tunings)} ({sure}; {aim})"
        + (f"; not of {', '.join(wrong)}" if wrong else ""),
        search.score(one for _, tuning in tunings for one in tuning["trials"]),
        f"at least {AIM} of the grid's best: {good} of {len(shares)}: {', '.join(f'{one:.2f}' for one in shares)}",
        f"found/best: {best}; {beside}",
    ]


if __name__ == "__main__":
    main()
