"""Does a configuration that is compared with itself show no difference?

    python -m strobe.validation.aa_test [KEY=VALUE ...] [--runs N] [--keep FOLDER] [--seed N]
    python -m strobe.validation.aa_test --trials [KEY=VALUE ...] [--minutes 9] [--seconds 0.5] [--keep FOLDER]
    python -m strobe.validation.aa_test --duels SCRIPT ... [--minutes 9] [--seconds 0.5] [--keep FOLDER]
    python -m strobe.validation.aa_test [--trials] --from FOLDER

Runs of one configuration are dealt to two sides, as a sweep of two cells would have had them, and compared as
``strobe compare`` does; with ``--trials`` they take turns as candidates of a search do, and with ``--duels``
each script with itself, as by ``strobe duel``. KEY=VALUE goes to every training. docs/bench/same.md says more.
"""

import argparse
import random
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from strobe.app.config.compose import BARE, UNSAVED, UNVALIDATED
from strobe.app.run.apart import train
from strobe.app.tuning.trainee import Trainee
from strobe.duel.foreign import Foreign
from strobe.errors import DataError, StrobeError
from strobe.measure.statistics import Estimate, unpaired
from strobe.overrides import cell_of, joined
from strobe.present import terminal
from strobe.present.format import pace
from strobe.process.signals import exit_code, interruptible
from strobe.records.places import runs_in
from strobe.records.run import Record, load_record, rate_of
from strobe.validation import aa_turns as turns
from strobe.validation import experiment
from strobe.validation.aa_turns import DUELS, TRIALS, Begin

RUNS = 24
TRAINING = ("trainer.max_time={seconds:4}", "trainer.max_epochs=-1", *UNVALIDATED, *UNSAVED, *BARE)
SIDES = (2, 3, 5)  # runs on each side
FEWEST = 2 * min(SIDES)  # runs in all
DEALINGS = 4  # of one window, at most
SLOWDOWNS = (0.05, 0.1, 0.2)  # shares by which one side's rates are made smaller
AIM = 0.95  # share of "no difference"
ENOUGH = 100  # comparisons

Dealing = tuple[tuple[int, ...], tuple[int, ...]]
Compare = Callable[[Sequence[float], Sequence[float]], Estimate]


@dataclass(frozen=True)
class Count:
    """What comparisons of so many runs a side came to."""

    side: int
    windows: int  # that have no run in common
    ratios: list[Estimate]

    @property
    def same(self) -> int:
        """How many said ``no difference``."""
        return sum(ratio.verdict == "no difference" for ratio in self.ratios)

    @property
    def widths(self) -> list[float]:
        """Of the intervals, as shares of the ratio."""
        ends = [(one.low, one.high, one.middle) for one in self.ratios]
        return [(high - low) / middle for low, high, middle in ends if low is not None and high is not None]

    def found(self, slowdown: float) -> int:
        """How many would call one side slower that is slower by such a share: by a factor of the whole interval."""
        return sum(ratio.times(1 - slowdown).verdict == "slower" for ratio in self.ratios)


def main(arguments: Sequence[str] | None = None, begin: Begin = Trainee) -> None:
    """Train, compare and tell; exit code 1 where the aim is missed or nothing can be told."""
    options = parse(arguments)
    console, code = terminal.console(), 0
    how = {name: getattr(options, name) for name in ("minutes", "seconds", "seed")}
    try:
        with experiment.folder_of(options.source or options.keep) as folder:
            try:
                with interruptible():
                    if options.duels:
                        turns.keep(turns.duels(options.duels, folder, Foreign, **how), folder / DUELS, console)
                    elif options.source is None and options.trials:
                        turns.keep(turns.trials(options.overrides, folder, begin, **how), folder / TRIALS, console)
                    elif options.source is None:
                        measure(options, folder, console)
            except KeyboardInterrupt as interrupt:
                terminal.say(console, "Interrupted; this is what was measured before:")
                code = exit_code(interrupt)
            if options.duels or options.trials or (folder / DUELS).is_file():
                good = turns.tell(folder, TRIALS if options.trials else DUELS, console)
            else:
                good = _of_runs(folder, options, console)
    except StrobeError as error:
        sys.exit(code or str(error))
    sys.exit(code or not good)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """``overrides``, ``source``, and the options by their names; exits on a wrong one."""
    parser = experiment.arguments("aa_test", "Compare a configuration with itself.", seed="of the order")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="an override for every training")
    parser.add_argument("--trials", action="store_true", help="let trainings take turns, as a search does")
    parser.add_argument("--duels", nargs="+", default=[], metavar="SCRIPT", help="any scripts, each against itself")
    parser.add_argument("--runs", type=int, default=RUNS, metavar="N", help=f"how many to train ({RUNS})")
    parser.add_argument("--minutes", type=float, default=9.0, help="after which no trial begins (9)")
    parser.add_argument("--seconds", type=float, default=0.5, help="of a turn (0.5)")
    parser.add_argument("--from", type=Path, dest="source", metavar="FOLDER", help="train nothing; take what lies here")
    options = parser.parse_intermixed_args(arguments)
    if options.runs < FEWEST:
        parser.error(f"--runs {options.runs} is out of range; it must be at least {FEWEST}")
    if not (options.minutes > 0 and options.seconds > 0):
        parser.error("--minutes and --seconds must be above 0")
    if wrong := [override for override in options.overrides if not experiment.is_override(override)]:
        parser.error(f"{wrong[0]!r} is not an override; give KEY=VALUE, such as loader=native")
    if options.source is not None and (options.overrides or options.keep or options.duels):
        parser.error("--from trains nothing; leave KEY=VALUE, --duels and --keep out")
    kept = options.keep
    if kept is not None and kept.exists() and (not kept.is_dir() or any(kept.iterdir())):
        parser.error(f"--keep {kept} is not an empty folder; give a new one, or take what is there by --from")
    return options


def measure(options: argparse.Namespace, folder: Path, console: Console) -> None:
    """Train one run after the other; a DataError if the first one fails or has no rate, as the others would."""
    for number in range(options.runs):
        ended = train(joined(TRAINING, options.overrides), folder / f"{number:03}")
        rate = None if ended.error else rate_of(load_record(ended.folder))
        why = ended.error or "no step was measured; train longer, such as trainer.max_time={seconds:15}"
        if number == 0 and rate is None:
            raise DataError(f"The first run has told no rate: {why}")
        terminal.say(console, f"[{number + 1}/{options.runs}] {why if rate is None else pace(rate)}")


def _of_runs(folder: Path, options: argparse.Namespace, console: Console) -> bool:
    """Print what the runs in a folder come to; whether the aim is reached."""
    records = read(folder)
    rates = [rate for record in records if (rate := rate_of(record)) is not None]
    if len(rates) < FEWEST:
        raise DataError(f"{len(rates)} runs have told a rate, and {FEWEST} are needed at least; give a larger --runs")
    counts = count(rates, options.seed)
    console.print(table(counts))
    terminal.say(console, *lines(rates, counts, records[0]))
    return reached(counts)


def read(folder: Path) -> list[Record]:
    """The completed runs in a folder, in the order in which they ended.

    Raises a DataError if there are none, or if they differ in configuration or machine.
    """
    summaries = [run / "summary.json" for run in (runs_in(folder) if folder.is_dir() else [])]
    ended = sorted((path for path in summaries if path.is_file()), key=lambda path: path.stat().st_mtime_ns)
    records = [record for path in ended if (record := load_record(path.parent)).text("status") == "completed"]
    if not records:
        raise DataError(
            f"{folder} holds no completed run; train some with: python -m strobe.validation.aa_test --keep FOLDER"
        )
    for what, values in (
        ("overrides", [_configuration(record) for record in records]),
        ("host", [record.text("environment", "host") for record in records]),
    ):
        if other := [value for value in values if value != values[0]]:
            raise DataError(f"{folder} holds runs of different {what}: {values[0]}, and {other[0]}; give those of one")
    return records


def _configuration(record: Record) -> str:
    overrides = cell_of(map(str, record.items("overrides")))
    return " ".join(sorted(f"{key}={value}" for key, value in overrides.items()))


def table(counts: Sequence[Count]) -> Table:
    """A row for each number of runs a side, and one of all."""
    drawn = Table(title="one configuration compared with itself")
    names = ["runs a side", "comparisons", "of separate runs", "no difference", "median width of interval"]
    for name in (*names, *(f"{slowdown:.0%} slower is found" for slowdown in SLOWDOWNS)):
        drawn.add_column(name, justify="right")
    for one in counts:
        made, width = len(one.ratios), f"{statistics.median(one.widths):.1%}" if one.widths else "-"
        shares = [_share(one.found(slowdown), made) for slowdown in SLOWDOWNS]
        drawn.add_row(str(one.side), str(made), str(one.windows), _share(one.same, made), width, *shares)
    drawn.add_section()
    drawn.add_row("all", str(_total(counts)[1]), "", _share(*_total(counts)))
    return drawn


def lines(rates: Sequence[float], counts: Sequence[Count], first: Record) -> list[str]:
    """The aim, the rates behind it, and the machine."""
    same, total = _total(counts)
    spread = statistics.stdev(rates) / statistics.fmean(rates)
    verdict = "reached" if reached(counts) else "missed"
    if total < ENOUGH:
        verdict = f"not told by fewer than {ENOUGH} comparisons, give a larger --runs"
    host: dict[str, Any] = first.mapping("environment")
    return [
        f"aim: no difference in at least {AIM:.0%}: {verdict}; {_share(same, total)}",
        f"{len(rates)} runs, {min(rates):,.1f} to {max(rates):,.1f} images/s, which vary by {spread:.1%} "
        "(standard deviation, of the mean)",
        f"{_configuration(first)}",
        f"{host.get('cpu')}, {host.get('usable_cores')} cores, GPU {host.get('gpu') or 'none'}, "
        f"torch {first.mapping('environment', 'versions').get('torch')}",
    ]


def reached(counts: Sequence[Count]) -> bool:
    """Whether there were enough comparisons, and enough of them said ``no difference``."""
    same, total = _total(counts)
    return total >= ENOUGH and same >= AIM * total


def _total(counts: Sequence[Count]) -> tuple[int, int]:
    return sum(one.same for one in counts), sum(len(one.ratios) for one in counts)


def _share(part: int, of: int) -> str:
    return f"{part / of:.0%} ({part} of {of})" if of else "-"


def deal(runs: int, side: int, seed: int = 0) -> list[Dealing]:
    """The runs of both sides of each comparison, as places in the order of time.

    A sweep of two cells with interleaved repeats visits both in each round, in random order. So a comparison takes a
    window of consecutive runs, two for each round, and of each two neighbours a random one goes to either side: no run
    is on both. All windows are taken, which overlap, and of each several dealings, no two of which are the same or the
    same with its sides changed.
    """
    chance = random.Random(f"{seed} {side}")
    dealings = []
    for first in range(runs - 2 * side + 1):
        ways = 2 ** (side - 1)  # the first pair as it is; the rest either way
        for way in chance.sample(range(ways), min(ways, DEALINGS)):
            swaps = [way >> pair & 1 for pair in range(side)]
            ours = tuple(first + 2 * pair + swap for pair, swap in enumerate(swaps))
            theirs = tuple(first + 2 * pair + 1 - swap for pair, swap in enumerate(swaps))
            dealings.append((ours, theirs) if chance.random() < 0.5 else (theirs, ours))
    return dealings


def count(rates: Sequence[float], seed: int = 0, compare: Compare = unpaired) -> list[Count]:
    """What the comparisons of one configuration's runs come to, for each number of runs a side for which they suffice.

    ``rates`` are images/s of the runs, in the order of time; ``compare`` gives the ratio of two sides.
    """
    counts = []
    for side in SIDES:
        if dealings := deal(len(rates), side, seed):
            pairs = [([rates[run] for run in ours], [rates[run] for run in theirs]) for ours, theirs in dealings]
            counts.append(Count(side, len(rates) // (2 * side), [compare(*pair) for pair in pairs]))
    return counts


if __name__ == "__main__":
    main()
