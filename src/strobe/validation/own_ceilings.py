"""Does ``strobe probe`` of this project's ``train.py``, as if it were foreign, reach what ``strobe.ceilings`` reaches?

    python -m strobe.validation.own_ceilings [KEY=VALUE ...] [--pairs 6] [--seconds 5] [--keep FOLDER] [--seed N]

Both measure one configuration, in pairs, the first one of each at random: a machine differs from one minute to the
next. What counts is how many times as much the probe reaches, over the pairs.
"""

import json
import random
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from strobe.errors import DataError, StrobeError
from strobe.measure.statistics import interval
from strobe.present import terminal
from strobe.present.format import counted, estimate, rate
from strobe.records.run import load_record
from strobe.validation import experiment

ROOT = Path(__file__).parents[3]
SIDES = ("loader", "model", "transfer", "joint")
AIM = 0.1  # from the application's own ceilings

Ceilings = Mapping[str, Any]  # as a record has them
Measure = Callable[[Sequence[str], float, Path], Ceilings]  # overrides, seconds of a side, a new folder


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the pairs, and print each side's ratio."""
    parser = experiment.arguments("own_ceilings", "A probe beside strobe.ceilings.", seed="of the order")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="for train.py")
    parser.add_argument("--pairs", type=int, default=6, help="of a probe and strobe.ceilings (6)")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each side (5)")
    options = parser.parse_intermixed_args(arguments)
    if options.pairs < 1 or not options.seconds > 0:
        parser.error("--pairs and --seconds must be above 0")
    console, order = terminal.console(), random.Random(options.seed)
    ceilings: dict[Measure, list[Ceilings]] = {own: [], foreign: []}
    with experiment.folder_of(options.keep) as folder:
        for number in range(1, options.pairs + 1):
            for measure in order.sample([own, foreign], 2):
                place = folder / f"{number}-{measure.__name__}"
                try:
                    ceilings[measure].append(measure(options.overrides, options.seconds, place))
                except StrobeError as error:
                    sys.exit(str(error))
            terminal.say(console, *lines([ceilings[own][-1]], [ceilings[foreign][-1]], f"[{number}/{options.pairs}] "))
    terminal.say(console, *lines(ceilings[own], ceilings[foreign]))


def own(overrides: Sequence[str], seconds: float, _: Path) -> Ceilings:
    """What ``strobe.ceilings`` reaches."""
    record: Ceilings = json.loads(_run("strobe.ceilings", "--json", *overrides, f"ceilings_seconds={seconds:g}"))
    return record


def foreign(overrides: Sequence[str], seconds: float, folder: Path) -> Ceilings:
    """What ``strobe probe`` of ``train.py`` reaches."""
    _run("strobe.probe", "--yes", "--seconds", f"{seconds:g}", "--out", str(folder), "train.py", *overrides)
    return load_record(folder).mapping("ceilings")


def lines(ours: Sequence[Ceilings], theirs: Sequence[Ceilings], before: str = "") -> list[str]:
    """A line for each side that all have measured: ``ours`` by ``strobe.ceilings``, ``theirs`` by a probe."""
    sentences = []
    for side in SIDES:
        pairs = [(one[side], other[side]) for one, other in zip(ours, theirs, strict=True)]
        if not pairs or not all(map(all, pairs)):
            continue
        ratio = interval([other / one for one, other in pairs])
        factor = estimate(ratio.as_record(), "{:.2f}".format)
        if len(pairs) == 1:
            sentences.append(f"{before}{side}: {rate(pairs[0][0])} and probed {rate(pairs[0][1])} images/s, {factor}")
        else:
            good = "within" if abs(ratio.middle - 1) <= AIM else "not within"
            sentences.append(f"{side}: probed {factor} times its own, {good} {AIM:.0%} ({counted(len(pairs), 'pair')})")
    return sentences


def _run(module: str, *words: str) -> str:
    line = [sys.executable, "-m", module, *words]
    done = subprocess.run(line, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise DataError(f"{module} ended with code {done.returncode}")
    return done.stdout


if __name__ == "__main__":
    main()
