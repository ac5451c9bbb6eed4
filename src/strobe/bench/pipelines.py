"""Every way from files to a batch, side by side in one run, on real files.

    python -m strobe.bench.pipelines [PART ...] [KEY=VALUE ...]

Parts (default: all): `tiles` (every loader against skimage, rasterio and the floors), `framings` (photos), `cifar10`,
`engines` (0, 1, 2 and 4 workers against a DataLoader tuned by hand), `buffers` (fresh and reused memory, batches of 1
to 1,024) and `training` (against the model's own ceiling). Crops from memory are measured by `strobe.bench suite=crop`.
Within a part all take turns in one process, in rounds of random order; ratios are of medians within a round, the
interval is over rounds. Files are looked for in the folder that STROBE_DATA names: EuroSAT's tiles, CIFAR-10's batches,
and JPEGs in `photos/`. KEY=VALUE goes to the configuration, as in train.py; `rounds=N` and `seconds=S` (a turn) are for
this command.
"""

import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from strobe.app.run.train import quieten
from strobe.bench import engine_parts, loading_parts, photo_parts
from strobe.bench.contest import Result, table
from strobe.bench.engine_parts import BY_HAND, Reached
from strobe.bench.loading_parts import COPY, FLOOR
from strobe.errors import StrobeError
from strobe.measure import environment
from strobe.measure.statistics import median_interval

ROUNDS = 9
SECONDS = 0.3

Options = dict[str, Any]


def tiles(overrides: list[str], options: Options) -> list[Table]:
    """RGB of tiles, one thread."""
    against = ["loader=skimage", "loader=rasterio", FLOOR, COPY]
    found = loading_parts.tiles(overrides, **options)
    return [table(f"tiles, batches of {size}, one thread, warm", results, against) for size, results in found.items()]


def framings(overrides: list[str], options: Options) -> list[Table]:
    """Photo files by every loader, one thread."""
    against = ["loader=pil", "loader=torchvision", "loader=spdl"]
    found = photo_parts.framings(overrides, **options)
    return [table(f"photos, {framing}, one thread", results, against) for framing, results in found.items()]


def cifar10(overrides: list[str], options: Options) -> list[Table]:
    """CIFAR-10 from memory, one thread."""
    results = loading_parts.cifar10(overrides, **options)
    return [table("CIFAR-10, batches of 1,024, one thread", results, ["one image at a time"])]


def engines(overrides: list[str], options: Options) -> list[Table]:
    """Engines and numbers of workers."""
    found = engine_parts.engines(overrides, **options)
    return [table(f"tiles, batches of 64, {title}", results, [BY_HAND]) for title, results in found.items()]


def buffers(overrides: list[str], options: Options) -> list[Table]:
    """Fresh and reused memory."""
    made = Table("batch", *BUFFER_WORDS, title="microseconds an image")
    for size, results in loading_parts.buffers(overrides, **options).items():
        made.add_row(str(size), *(_micros(result) for result in results))
    return [made]


def training(overrides: list[str], options: Options) -> list[Table]:
    """Training from tiles, with all threads and with one."""
    made = []
    for more in ([], ["threads=1"]):
        reached = engine_parts.training([*more, *overrides], max(1, options["rounds"] // 3), 5 * options["seconds"])
        made.append(_reached(f"training from tiles, {torch.get_num_threads()} threads", reached))
    return made


BUFFER_WORDS = ("batch, fresh", "batch, shared", "batch, reused", "normalised, out of place", "normalised, in place")
PARTS: dict[str, Callable[[list[str], Options], list[Table]]] = {
    part.__name__: part for part in (tiles, framings, cifar10, engines, buffers, training)
}


def _micros(result: Result) -> str:
    rate = median_interval(result.rates)
    return f"{1e6 / rate['median']:.2f} ({1e6 / rate['high']:.2f} to {1e6 / rate['low']:.2f})"  # type: ignore[operator]


def _reached(title: str, reached: Sequence[Reached]) -> Table:
    made = Table("", "images/s", "model alone", "reached", title=title)
    for entry in reached:
        own, alone = (median_interval(rates)["median"] for rates in (entry.training, entry.ceiling))
        share = entry.share
        words = f"{share['median']:.2f} ({share['low']:.2f} to {share['high']:.2f})"
        made.add_row(entry.overrides, f"{own:,.1f}", f"{alone:,.1f}", words)
    return made


def main() -> None:
    """Measure and print."""
    quieten()
    warnings.simplefilter("ignore")
    parts = [argument for argument in sys.argv[1:] if argument in PARTS] or list(PARTS)
    given = [argument for argument in sys.argv[1:] if argument not in PARTS]
    if unknown := [argument for argument in given if "=" not in argument]:
        sys.exit(f"{unknown[0]} is neither a part nor KEY=VALUE; parts: {', '.join(PARTS)}")
    own = dict(argument.split("=") for argument in given if argument.startswith(("rounds=", "seconds=")))
    overrides = [argument for argument in given if argument.partition("=")[0] not in own]
    options = {"rounds": int(own.get("rounds", ROUNDS)), "seconds": float(own.get("seconds", SECONDS))}
    console = Console(width=None if sys.stdout.isatty() else 200)
    threads = torch.get_num_threads()
    for part in parts:
        torch.set_num_threads(threads)
        try:
            for made in PARTS[part](overrides, options):
                console.print(made)
        except StrobeError as error:
            sys.exit(f"{part}: {error}")
    machine = environment.describe()
    console.print(
        f"{machine['cpu']}, {machine['usable_cores']} cores, torch {machine['versions']['torch']}, "
        f"commit {(machine['git_commit'] or 'unknown')[:12]}; all files in the page cache"
    )


if __name__ == "__main__":
    main()
