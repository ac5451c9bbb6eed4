"""Does ``strobe tune`` find what an exhaustive grid finds, with fewer measurements, and are its predictions
right?

    python -m strobe.validation.search DATA [KEY=VALUE ...] [--searches 1] [--budget 6m] [--seconds 1.5]
                                      [--finalists 2] [--keep FOLDER] [--seed N]

DATA is eurosat, cifar10 or sample; KEY=VALUE goes to every training. The search starts from the slowest corner of the
grid. Every cell of the grid then trains in a fresh process of its own, in random order, for so many seconds. The
fastest few of the grid and what each search recommends take turns at the end: a single measurement of each of many
cells favours those that were lucky.
"""

import argparse
import itertools
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from strobe.app.tuning.trainee import Trainee
from strobe.duel.paired_trial import Duel, alone
from strobe.duel.training import TakesTurns
from strobe.errors import DataError, StrobeError
from strobe.measure.statistics import recorded
from strobe.measure.timing import shuffled
from strobe.overrides import applied
from strobe.present import terminal
from strobe.present.format import estimate, pace
from strobe.process.fork import Failure
from strobe.tune.record import NAME
from strobe.tune.table import times
from strobe.validation import experiment

ROOT = Path(__file__).parents[3]
TIMEOUT = 120.0  # seconds until a training is warm, of a cell of the grid and in the finals
Begin = Callable[[Sequence[str], Path], TakesTurns]  # a training with these overrides, which writes to this folder
Axes = dict[str, tuple[tuple[str, ...], ...]]  # what varies, and the overrides of each of its values; the first is slow


def _axes(loaders: Sequence[str], sizes: Sequence[int]) -> Axes:
    return {
        "loader": tuple((loader,) for loader in loaders),
        "workers": (("engine.num_workers=0",), ("engine.num_workers=2",)),
        "batch size": tuple((f"data.batch_size={size}",) for size in sizes),
        "layout": (("model.channels_last=false",), ("model.channels_last=true",)),
        "precision": (("trainer.precision=32-true",), ("trainer.precision=bf16-mixed",)),
    }


TILES = _axes(("loader=rasterio", "loader=skimage", "loader=native"), (32, 64, 128))
IMAGES = _axes(("loader.batched=false", "loader.batched=true"), (32, 128, 512))
GRIDS = {"eurosat": TILES, "cifar10": IMAGES, "sample": TILES}
LEFT_OUT: dict[str, tuple[str, ...]] = {"cifar10": ("data.verify=false",)}


@dataclass(frozen=True)
class Rated:
    """A cell of the grid, measured once; ``error`` says why it was not."""

    overrides: list[str]
    images_per_second: float | None
    error: str | None


def main(arguments: Sequence[str] | None = None) -> None:
    """Search, measure the grid, let the best take turns, and print the figures."""
    options = parse(arguments)
    console = terminal.console()
    common = [f"data={options.data}", *LEFT_OUT.get(options.data, ()), *options.overrides]
    cells = [applied(common, cell) for cell in grid(GRIDS[options.data])]
    with experiment.folder_of(options.keep) as folder:
        tunings = [search(cells[0], folder / f"tune-{number}", options) for number in range(options.searches)]
        try:
            compare(tunings, cells, folder, console, options, begin=partial(Trainee, timeout=TIMEOUT))
        except StrobeError as error:
            sys.exit(str(error))


def compare(
    tunings: Sequence[Mapping[str, Any]],
    cells: Sequence[list[str]],
    folder: Path,
    console: Console,
    options: argparse.Namespace,
    *,
    begin: Begin,
) -> list[float]:
    """Rate each cell of a grid once, and let its fastest and what each search recommends take turns.

    Returns how many times as fast as the grid's best each search's recommendation is, at least.
    """
    began = time.perf_counter()
    rated = []
    for number, cell in enumerate(shuffled(cells, 0, options.seed), 1):
        rated.append(rate(cell, folder / "grid" / str(number), options.seconds, begin))
        outcome = rated[-1].error or pace(rated[-1].images_per_second or 0.0)
        terminal.say(console, f"[{number}/{len(cells)}] {outcome}  {' '.join(cell)}")
    took = time.perf_counter() - began
    ratios = []
    for number, tuning in enumerate(tunings):
        final = finals(tuning["recommended"], rated, folder / f"finals-{number}", options, begin)
        table = Table("the grid's fastest", "images/s, once", "the search's best is", title="finals, in turns")
        for one, result in final:
            ratio = f"{times(result.ratio.as_record())} as fast"
            table.add_row(" ".join(one.overrides), f"{one.images_per_second:,.0f}", ratio)
        console.print(table)
        terminal.say(console, *lines(tuning, rated, final, took))
        ratios.append(min((result.ratio.middle for _, result in final), default=math.nan))
    return ratios


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """``data``, ``overrides``, ``searches``, ``budget``, ``seconds``, ``finalists`` ...; exits on a wrong one."""
    parser = experiment.arguments("search", "The search against a grid.", seed="of the order of cells")
    parser.add_argument("data", choices=list(GRIDS), help="the data set")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="an override for every training")
    parser.add_argument("--searches", type=int, default=1, help="one after the other, from the same start (1)")
    parser.add_argument("--budget", default="6m", help="of a search (6m)")
    parser.add_argument("--seconds", type=float, default=1.5, help="of a turn, once it is warm (1.5)")
    parser.add_argument("--finalists", type=int, default=2, help="of the grid, that take turns with what was found (2)")
    options = parser.parse_intermixed_args(arguments)
    if not 0 < options.seconds < math.inf:
        parser.error(f"--seconds {options.seconds:g} is out of range; it must be above 0")
    for name in ("searches", "finalists"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} {getattr(options, name)} is out of range; it must be at least 1")
    return options


def grid(axes: Axes) -> Iterator[tuple[str, ...]]:
    """The overrides of each cell; the first cell has the first value of each axis."""
    for values in itertools.product(*axes.values()):
        yield tuple(itertools.chain.from_iterable(values))


def search(start: Sequence[str], folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The record of ``strobe tune`` from a cell; what it prints is shown."""
    overrides = [*start, f"tune.budget={options.budget}", f"hydra.run.dir='{folder}'"]
    ended = subprocess.run([sys.executable, "-m", "strobe.tune", *overrides], cwd=ROOT, check=False)
    if ended.returncode:
        sys.exit(ended.returncode)  # it has said why
    record: dict[str, Any] = json.loads((folder / NAME).read_text())
    return record


def rate(overrides: Sequence[str], folder: Path, seconds: float, begin: Begin) -> Rated:
    """Images/s of one turn of a cell, in a fresh process."""
    with begin(overrides, folder) as training:
        rates = alone(training, turns=1, seconds=seconds)
    if isinstance(rates, Failure):
        return Rated(list(overrides), None, rates.reason)
    return Rated(list(overrides), rates[0], None)


def finals(
    best: Sequence[str], rated: Sequence[Rated], folder: Path, options: argparse.Namespace, begin: Begin
) -> list[tuple[Rated, Duel]]:
    """What the search found in turns with each of the grid's fastest."""
    fastest = sorted((one for one in rated if one.images_per_second), key=lambda one: -(one.images_per_second or 0.0))
    duels = []
    with begin(best, folder / "tuned") as tuned:
        experiment.start(tuned, "What was found")
        for place, one in enumerate(fastest[: options.finalists], 1):
            name = " ".join(one.overrides)
            with begin(one.overrides, folder / str(place)) as other, suppress(DataError):
                experiment.start(other, name)
                duels.append((one, experiment.fight(name, other, tuned, seconds=options.seconds, early=False)))
    return duels


def lines(
    tuning: Mapping[str, Any], rated: Sequence[Rated], final: Sequence[tuple[Any, Duel]], took: float
) -> list[str]:
    """The figures of a ``tune.json`` beside the aims; the grid ``took`` so many seconds.

    ``final``: the grid's fastest with the turns that they took with the search's best.
    """
    gain = f"{tuning['proof']['ratio']['median']:.2f} times as fast as the start" if tuning["proof"] else "the start"
    least = min((result.ratio for _, result in final), key=lambda ratio: ratio.middle, default=None)
    trainings, alternatives = tuning["trainings"], sum(one.get("alternatives", 0) for one in tuning["looks"])
    alternatives += len(tuning.get("sides", []))
    return [
        f"found: {gain}: {' '.join(tuning['recommended'])}",
        f"found/grid's best: {estimate(recorded(least), '{:.2f}'.format) or 'unknown'} (aim 0.95)",
        f"trainings: {trainings} beside {len(rated)} of the grid, {trainings / len(rated):.0%} (aim 25%), and "
        f"{alternatives} of a loader or a model alone; {tuning['seconds']:.0f} s (aim 360) beside {took:.0f}; "
        f"{sum(one.error is not None for one in rated)} cells failed",
        score(tuning["trials"]),
    ]


def score(trials: Iterable[Mapping[str, Any]]) -> str:
    """How good predictions were, of a search's trials that had one of more than a bound, and were measured."""
    tested = [one for one in trials if one["measured"] and one["predicted"] and not one["bounded"]]
    return experiment.scored([(one["predicted"], one["measured"]["median"]) for one in tested])


if __name__ == "__main__":
    main()
