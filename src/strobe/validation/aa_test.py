"""Does a configuration that is compared with itself show no difference?

    python -m strobe.validation.aa_test [KEY=VALUE ...] [--runs N] [--keep FOLDER] [--seed N]
    python -m strobe.validation.aa_test --from FOLDER

One configuration is trained N times, each for some seconds in a process of its own. Its runs are then dealt to two
sides, as a sweep of two cells would have had them, and compared as ``python -m strobe.compare`` does. KEY=VALUE goes to
every run. ``--from`` takes the runs that lie in a folder. See docs/bench/same.md.
"""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from strobe.errors import DataError
from strobe.overrides import joined, key_of
from strobe.present.format import pace
from strobe.process.signals import exit_code, interruptible
from strobe.process.training import train
from strobe.records.places import runs_in
from strobe.records.run import Record, load_record, rate_of
from strobe.validation.aa_pairs import AIM, ENOUGH, SIDES, SLOWDOWNS, Count, count

RUNS = 24
FEWEST = 2 * min(SIDES)
SHORT = (
    "trainer.max_time={seconds:4}",
    "trainer.max_epochs=-1",
    "trainer.limit_val_batches=0",
    "trainer.num_sanity_val_steps=0",
    "trainer.enable_checkpointing=false",
    "trainer.enable_progress_bar=false",
    "profiler=none",
    "test=false",
    "ceilings=false",
)
UNLIKE = ("seed", "ckpt_path", "hydra", "sweep")  # overrides in which runs of one configuration may differ


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, compare and print the table; exit code 1 where the aim is missed or nothing can be told."""
    options = parse(arguments)
    console = Console(width=None if sys.stdout.isatty() else 140)
    code = 0
    try:
        with ExitStack() as stack:
            folder = options.source
            if folder is None:
                folder = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
                code = measure(options.overrides, folder, options.runs, console)
            records = read(folder)
        rates = [rate for record in records if (rate := rate_of(record)) is not None]
        if len(rates) < FEWEST:
            raise DataError(
                f"{len(rates)} runs have told a rate, and {FEWEST} are needed at least; give a larger --runs"
            )
    except DataError as error:
        sys.exit(code or str(error))
    counts = count(rates, options.seed)
    console.print(table(counts))
    for line in lines(rates, counts, records[0]):
        console.print(line, markup=False, soft_wrap=True)
    sys.exit(code or not reached(counts))


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """``overrides``, ``runs``, ``keep``, ``source`` and ``seed``; exits on a wrong one."""
    parser = argparse.ArgumentParser(
        prog="python -m strobe.validation.aa_test", description="Compare a configuration with itself."
    )
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="an override for every run")
    parser.add_argument("--runs", type=int, default=RUNS, metavar="N", help=f"how many to train ({RUNS})")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the runs here")
    parser.add_argument("--from", type=Path, dest="source", metavar="FOLDER", help="train nothing; take the runs here")
    parser.add_argument("--seed", type=int, default=0, help="of the dealing (0)")
    options = parser.parse_intermixed_args(arguments)
    if options.runs < FEWEST:
        parser.error(f"--runs {options.runs} is out of range; it must be at least {FEWEST}")
    if wrong := [given for given in options.overrides if "=" not in given and not given.startswith("~")]:
        parser.error(f"{wrong[0]!r} is not an override; give KEY=VALUE, such as loader=native")
    if options.source is not None and (options.overrides or options.keep):
        parser.error("--from trains nothing; leave KEY=VALUE and --keep out")
    if options.keep is not None and options.keep.exists() and not (options.keep.is_dir() and _empty(options.keep)):
        parser.error(f"--keep {options.keep} is not an empty folder; give a new one, or take its runs by --from")
    return options


def _empty(folder: Path) -> bool:
    return next(folder.iterdir(), None) is None


def measure(overrides: Sequence[str], folder: Path, runs: int, console: Console) -> int:
    """Train one run after the other; the exit code, not 0 if Ctrl-C or SIGTERM came.

    Raises:
        DataError: the first run fails or tells no rate, as the others would.
    """
    number = 0
    try:
        with interruptible():
            for number in range(runs):
                ended = train(joined(SHORT, overrides), folder / f"{number:03}")
                rate = None if ended.error else rate_of(load_record(ended.folder))
                why = ended.error or "no step was measured; train longer, such as trainer.max_time={seconds:15}"
                if number == 0 and rate is None:
                    raise DataError(f"The first run has told no rate: {why}")
                told = why if rate is None else pace(rate)
                console.print(f"[{number + 1}/{runs}] {told}", markup=False, soft_wrap=True)
    except KeyboardInterrupt as interrupt:
        console.print(f"Interrupted after {number} of {runs} runs.", markup=False)
        return exit_code(interrupt)
    return 0


def read(folder: Path) -> list[Record]:
    """The completed runs in a folder, in the order in which they ended.

    Raises:
        DataError: there is none, or they are not of one configuration on one machine.
    """
    found = [run / "summary.json" for run in (runs_in(folder) if folder.is_dir() else [])]
    ended = sorted((path for path in found if path.is_file()), key=lambda path: path.stat().st_mtime_ns)
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
    given = [str(override) for override in record.items("overrides")]
    return " ".join(sorted(one for one in given if key_of(one).split(".")[0] not in UNLIKE))


def table(counts: Sequence[Count]) -> Table:
    """A row for each number of runs a side, and one of all."""
    drawn = Table(title="one configuration compared with itself")
    names = ["runs a side", "comparisons", "of separate runs", "no difference", "median width of interval"]
    for name in (*names, *(f"{slowdown:.0%} slower is found" for slowdown in SLOWDOWNS)):
        drawn.add_column(name, justify="right")
    for one in counts:
        found = [_share(one.found[slowdown], one.comparisons) for slowdown in SLOWDOWNS]
        width = "-" if one.width is None else f"{one.width:.1%}"
        same = _share(one.same, one.comparisons)
        drawn.add_row(str(one.side), str(one.comparisons), str(one.windows), same, width, *found)
    drawn.add_section()
    drawn.add_row("all", str(_total(counts)[1]), "", _share(*_total(counts)))
    return drawn


def lines(rates: Sequence[float], counts: Sequence[Count], first: Record) -> list[str]:
    """The aim, the rates behind it, and the machine."""
    same, total = _total(counts)
    spread = statistics.stdev(rates) / statistics.fmean(rates)
    told = "reached" if reached(counts) else "missed"
    if total < ENOUGH:
        told = f"not told by fewer than {ENOUGH} comparisons, give a larger --runs"
    host: dict[str, Any] = first.mapping("environment")
    return [
        f"aim: no difference in at least {AIM:.0%}: {told}; {_share(same, total)}",
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
    return sum(one.same for one in counts), sum(one.comparisons for one in counts)


def _share(part: int, of: int) -> str:
    return f"{part / of:.0%} ({part} of {of})" if of else "-"


if __name__ == "__main__":
    main()
