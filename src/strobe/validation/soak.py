"""Does a training survive what weeks bring? Faults at random moments, for as long as they are asked for.

``python -m strobe.validation.soak [FAULT ...] [--hours H]``, or ``make soak HOURS=H``. Each fault is tried in turn, at
least once, until the time is up. A try fails if something is **lost** (the record of steps that were trained, or a
checkpoint that stood before), if it **hung**, if a process was **left** behind, if it had the **wrong ending** (a
traceback, another exit code, or no word of what was wrong), or if the memory, descriptors or threads of a
long training **grew**. It is **undecided** whether they did where it had too few steps, or they were too uneven. It
prints each failure. Exit code 1: something failed.
"""

import random
import shutil
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence

from rich.table import Table

from strobe.present import terminal
from strobe.present.format import duration
from strobe.process.signals import exit_code, interruptible
from strobe.validation import experiment
from strobe.validation.soak_bench import WAYS, Bench
from strobe.validation.soak_faults import FAULTS

HOURS = 1 / 6


class Soak:
    """Tries faults, by their ``names`` in ``FAULTS``, in turn, and counts; ``seed``: of the moments."""

    def __init__(self, bench: Bench, names: Sequence[str], seed: int) -> None:
        self._bench, self._names, self._seed = bench, names, seed
        self._rows: defaultdict[str, set[str]] = defaultdict(set)  # of the table: a fault's places
        self._tries: Counter[str] = Counter()
        self._failed: Counter[tuple[str, str]] = Counter()
        self._undecided: Counter[str] = Counter()
        self._untried: dict[str, str] = {}  # why
        self._console = terminal.console()

    def run(self, seconds: float) -> None:
        """Try each once, and go on until the time is up."""
        ends, number = time.monotonic() + seconds, 0
        while number < len(self._names) or time.monotonic() < ends:
            name = self._names[number % len(self._names)]
            if name not in self._untried:
                self._try(name, number)
            number += 1

    def _try(self, name: str, number: int) -> None:
        folder = self._bench.scratch / str(number)
        folder.mkdir(parents=True)
        tried = FAULTS[name](self._bench, folder, random.Random(f"{self._seed} {number}"))
        if tried.untried:
            self._untried[name] = tried.untried
        row = f"{name}: {tried.where}" if tried.where else name
        self._rows[name].add(row)
        self._tries[row] += tried.tries
        self._undecided[row] += tried.undecided
        for sentence in tried.notes:
            terminal.say(self._console, sentence)
        for way, sentence in tried.failed:
            self._failed[row, way] += 1
            terminal.say(self._console, f"{row}: {way}: {sentence}")
        if not tried.failed:
            shutil.rmtree(folder, ignore_errors=True)

    def report(self, seconds: float) -> int:
        """Print the table; returns how many tries failed."""
        table = Table("fault", "tries", *WAYS, "undecided")
        for name in self._names:
            for row in sorted(self._rows[name]) or [name]:
                counts = [*(str(self._failed[row, way]) for way in WAYS), str(self._undecided[row])]
                table.add_row(row, f"{self._tries[row]:,}", *(["-"] * len(counts) if name in self._untried else counts))
        self._console.print(table)
        for name, why in self._untried.items():
            terminal.say(self._console, f"{name} was not tried: {why}")
        terminal.say(self._console, f"{self._tries.total():,} tries in {duration(seconds)}; --seed {self._seed}")
        return self._failed.total()


def main(arguments: Sequence[str] | None = None) -> int:
    """Try the faults, and print the table; 1 if something failed."""
    parser = experiment.arguments("soak", (__doc__ or "").partition("\n")[0], seed="of the moments")
    parser.add_argument("faults", nargs="*", metavar="FAULT", help=f"of {', '.join(FAULTS)} (all)")
    parser.add_argument("--hours", type=float, default=HOURS, help="no try begins after these (ten minutes)")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.faults if name not in FAULTS]:
        parser.error(f"{unknown[0]} is not a fault; give some of {', '.join(FAULTS)}")
    began = time.monotonic()
    with interruptible(), experiment.folder_of(options.keep) as scratch:
        names, seconds = options.faults or list(FAULTS), 3600 * options.hours
        soak = Soak(Bench(scratch, seconds=seconds, faults=len(names)), names, options.seed)
        try:
            soak.run(seconds)
        except KeyboardInterrupt as interrupt:
            soak.report(time.monotonic() - began)
            return exit_code(interrupt)
        return int(soak.report(time.monotonic() - began) > 0)


if __name__ == "__main__":
    sys.exit(main())
