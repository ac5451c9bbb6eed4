"""Does ``python -m strobe.tune`` find what an exhaustive grid finds, with fewer measurements, and are its predictions
right?

    python -m strobe.validation.search DATA [KEY=VALUE ...] [--budget 5m] [--seconds 3] [--keep FOLDER] [--seed N]

DATA is eurosat, cifar10 or sample; KEY=VALUE goes to every training. The search starts from the slowest corner of the
grid. Every cell of the grid then trains in a fresh process of its own, in random order, for so many seconds. The
fastest few of the grid and what the search found take turns at the end: a single measurement of each of many cells
favours those that were lucky.
"""

import argparse
import contextlib
import itertools
import json
import math
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from strobe.app.tuning.record import NAME
from strobe.app.tuning.table import times
from strobe.app.tuning.trainee import Trainee
from strobe.duel.paired_trial import Duel, duel
from strobe.overrides import applied
from strobe.process.fork import Failure
from strobe.validation.search_score import FINALISTS, Rated, Score, lines, score

ROOT = Path(__file__).parents[3]
TIMEOUT = 300.0  # seconds until a training is warm
Axes = dict[str, tuple[tuple[str, ...], ...]]  # what varies, and the overrides of each of its values; the first is slow

COMPUTING: Axes = {
    "layout": (("model.channels_last=false",), ("model.channels_last=true",)),
    "precision": (("trainer.precision=32-true",), ("trainer.precision=bf16-mixed",)),
}
WORKERS: Axes = {"workers": (("engine.num_workers=0",), ("engine.num_workers=2",))}
TILES: Axes = {
    "loader": (("loader=rasterio",), ("loader=skimage",), ("loader=native",)),
    **WORKERS,
    "batch size": tuple((f"data.batch_size={size}",) for size in (32, 64, 128)),
    **COMPUTING,
}
IMAGES: Axes = {
    "loader": (("loader.batched=false",), ("loader.batched=true",)),
    **WORKERS,
    "batch size": tuple((f"data.batch_size={size}",) for size in (32, 128, 512)),
    **COMPUTING,
}
GRIDS: dict[str, Axes] = {"eurosat": TILES, "cifar10": IMAGES, "sample": TILES}
LEFT_OUT: dict[str, tuple[str, ...]] = {"cifar10": ("data.verify=false",)}


@dataclass(frozen=True)
class Options:
    """What is measured."""

    data: str
    overrides: list[str]
    budget: str
    seconds: float
    keep: Path | None
    seed: int


def main(arguments: Sequence[str] | None = None) -> None:
    """Search, measure the grid, let the best take turns, and print the figures."""
    options = parse(arguments)
    console = Console(width=None if sys.stdout.isatty() else 180)
    common = [f"data={options.data}", *LEFT_OUT.get(options.data, ()), *options.overrides]
    cells = [applied(common, cell) for cell in grid(GRIDS[options.data])]
    with contextlib.ExitStack() as stack:
        folder = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="strobe-")))
        tuning = search(cells[0], folder.resolve() / "tune", options)
        began = time.perf_counter()
        rated = []
        for number, cell in enumerate(shuffled(cells, options.seed), 1):
            rated.append(rate(cell, folder / "grid" / str(number), options.seconds))
            told = rated[-1].error or f"{rated[-1].images_per_second:,.0f} images/s"
            console.print(f"[{number}/{len(cells)}] {told}  {' '.join(cell)}", markup=False, highlight=False)
        took = time.perf_counter() - began
        final = finals(tuning["best"], rated, folder / "finals", options.seconds)
    show(console, score(tuning, rated, final, took), final)


def parse(arguments: Sequence[str] | None = None) -> Options:
    """The options; exits on a wrong one."""
    parser = argparse.ArgumentParser(
        prog="python -m strobe.validation.search", description="The search against a grid."
    )
    parser.add_argument("data", choices=list(GRIDS), help="the data set")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="an override for every training")
    parser.add_argument("--budget", default="5m", help="of the search (5m)")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each cell of the grid, once it is warm (3)")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep what is written here")
    parser.add_argument("--seed", type=int, default=0, help="of the order of cells (0)")
    given = parser.parse_intermixed_args(arguments)
    if not 0 < given.seconds < math.inf:
        parser.error(f"--seconds {given.seconds:g} is out of range; it must be above 0")
    return Options(**vars(given))


def grid(axes: Axes) -> Iterator[tuple[str, ...]]:
    """The overrides of each cell; the first cell has the first value of each axis."""
    for values in itertools.product(*axes.values()):
        yield tuple(itertools.chain.from_iterable(values))


def shuffled(cells: Sequence[list[str]], seed: int) -> list[list[str]]:
    """In random order."""
    return random.Random(seed).sample(list(cells), len(cells))


def search(start: Sequence[str], folder: Path, options: Options) -> dict[str, Any]:
    """The record of ``python -m strobe.tune`` from a cell; what it prints is shown."""
    given = [*start, f"tune.budget={options.budget}", f"hydra.run.dir='{folder}'"]
    ended = subprocess.run([sys.executable, "-m", "strobe.tune", *given], cwd=ROOT, check=False)
    if ended.returncode:
        sys.exit(ended.returncode)  # it has said why
    record: dict[str, Any] = json.loads((folder / NAME).read_text())
    return record


def rate(overrides: Sequence[str], folder: Path, seconds: float) -> Rated:
    """Images/s of one turn of a cell, in a fresh process."""
    with Trainee(overrides, folder, timeout=TIMEOUT) as trainee:
        ready = trainee.start()
        turn = ready if isinstance(ready, Failure) else trainee.turn(seconds)
        if isinstance(turn, Failure):
            return Rated(list(overrides), None, turn.reason)
        return Rated(list(overrides), turn.rate, None)


def finals(best: Sequence[str], rated: Sequence[Rated], folder: Path, seconds: float) -> list[tuple[Rated, Duel]]:
    """What the search found in turns with each of the grid's fastest."""
    fastest = sorted((one for one in rated if one.images_per_second), key=lambda one: -(one.images_per_second or 0.0))
    found = []
    with Trainee(best, folder / "tuned", timeout=TIMEOUT) as tuned:
        if isinstance(failure := tuned.start(), Failure):
            raise SystemExit(f"What was found cannot be trained again: {failure.reason}")
        for place, one in enumerate(fastest[:FINALISTS], 1):
            with Trainee(one.overrides, folder / str(place), timeout=TIMEOUT) as other:
                ready = other.start()
                result = ready if isinstance(ready, Failure) else duel(other, tuned, seconds=seconds, early=False)
                if isinstance(result, Duel):
                    found.append((one, result))
    return found


def show(console: Console, found: Score, final: Sequence[tuple[Rated, Duel]]) -> None:
    """The finals as a table, and the figures beside the aims."""
    table = Table("the grid's fastest", "images/s, once", "the search's best is", title="finals, in turns")
    for one, result in final:
        table.add_row(
            " ".join(one.overrides), f"{one.images_per_second:,.0f}", f"{times(result.ratio.as_record())} as fast"
        )
    console.print(table)
    for line in lines(found):
        console.print(line, markup=False, highlight=False)


if __name__ == "__main__":
    main()
