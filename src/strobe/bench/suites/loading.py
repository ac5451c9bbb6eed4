"""``suite=loading``: from files to batches, by every loader, batch size and number of threads."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from strobe.app.config.checks import loaders_for
from strobe.bench.harness.declare import Cache, Cell, Input, Plan, Request, Suite, Table, Trial, Work
from strobe.bench.harness.results import by_round
from strobe.bench.inputs import MOST_FILES, find_data
from strobe.errors import ConfigError
from strobe.present.format import estimate

LOADERS = {  # by the form of data; what all are held against comes first
    "tiles": [
        "skimage loader.scale=numpy",
        "rasterio loader.scale=numpy",
        "skimage loader.scale=torch",
        "tifffile",
        "native",
        "packed",
    ],
    "photos": ["pil", "torchvision", "spdl", "native", "native loader.dct_scaling=false"],
    "array": ["memory loader.batched=false loader.scale=numpy", "memory loader.batched=false", "memory"],
}


def declare(cfg: DictConfig) -> Suite:
    """Loaders x batch sizes x threads, and each loader once more with cold files."""
    chosen, form = cfg.suite, cfg.data.form
    loaders = list(LOADERS[form] if chosen.loaders is None else chosen.loaders)
    sizes = list(chosen.batch_sizes or ([1, 32] if cfg.quick else [1, 32, 64, 1024]))
    threads = list(chosen.threads or ([1] if cfg.quick else [1, 4]))
    batches = chosen.batches
    check_loaders(loaders, form)
    warm: Cache | None = None if form == "array" else "warm"
    cells: list[Cell] = []
    for count in threads:
        for size in sizes:
            cells += _row(loaders, size, count, warm, batches)
    if chosen.cold_batch_size and warm:
        cells += _row(loaders, chosen.cold_batch_size, 1, "cold", batches)
    return Suite(
        name="loading",
        title="From files to batches",
        about=f"A repetition loads {batches} batches of images in random order, in one process, and makes them what a "
        "model takes: float32, scaled and standardised. Loaders whose name says scale=numpy or scale=torch scale each "
        f"image as it is read, as the comparison that this follows did. Of a set of more than {MOST_FILES:,} files so "
        "many are used. Cold: the files are thrown out of the page cache before each repetition.",
        cells=cells,
        tables=[Table("load", f"Loading {batches} batches", unit="ms", rows="batch size", logarithmic=True)],
        quick=Plan(rounds=2, turn=0.1, budget=40),
        full=Plan(rounds=7, turn=0.5, budget=1200),
        find=_find,
        conclude=conclude,
        varies={
            "loader": "suite.loaders=[NAME,...]",
            "loader.scale": 'suite.loaders=["NAME loader.scale=torch",...]',
            "data.batch_size": "suite.batch_sizes=[N,...]",
            "threads": "suite.threads=[N,...]",
        },
        packages=["imagecodecs", "pillow", "spdl"],
    )


def check_loaders(loaders: Sequence[str], form: str) -> None:
    """Raise a ConfigError for a loader that there is not, or that does not read this form of data."""
    fitting = loaders_for(form)
    if not loaders or len(set(loaders)) < len(loaders):
        listed = ",".join(loaders)
        raise ConfigError(f"suite.loaders=[{listed}] must name one or more, each once; such as {', '.join(fitting)}")
    for loader in loaders:
        if any(not part.startswith("loader.") for part in loader.split()[1:]):
            raise ConfigError(
                f"suite.loaders: {loader!r} may set keys of its loader only; give {loader.split()[0]} loader.KEY=VALUE"
            )
        if loader.partition(" ")[0] not in fitting:
            raise ConfigError(
                f"suite.loaders={loaders}: {loader} is no loader of this data; loaders that fit: {', '.join(fitting)}"
            )


def _row(loaders: list[str], size: int, threads: int, cache: Cache | None, batches: int) -> list[Cell]:
    """One cell for each loader; the ratios are to the first."""
    row: list[Cell] = []
    for loader in loaders:
        row.append(
            Cell(
                "load",
                str(size),
                _label(loader),
                partial(load, loader=loader, size=size, batches=batches, cold=cache == "cold"),
                threads=threads,
                cache=cache,
                against=row[0].name if row else None,
                at=float(size),
            )
        )
    return row


def _label(loader: str) -> str:
    return loader.replace("loader.", "")


def _find(asked: Request, scratch: Path) -> Input:
    """The images; what cells pack is packed here, so that none of them is measured while it is made."""
    from strobe.bench.inputs import prepared
    from strobe.bench.loading_parts import loader_keys

    found = find_data(asked, scratch)
    packs = str(scratch / "packs")
    loaders = LOADERS[asked.cfg.data.form] if asked.cfg.suite.loaders is None else asked.cfg.suite.loaders
    for loader in loaders:
        keys = [*found.overrides, *asked.overrides, *loader_keys(loader, packs)]
        _require_sound(loader, keys)
        if loader.split()[0] == "packed":
            prepared(keys)
    return Input(found.told, found.generated, found.overrides, {**found.facts, "packs": packs})


def _require_sound(loader: str, overrides: Sequence[str]) -> None:
    """Raise a ConfigError for a loader whose overrides cannot be."""
    from hydra.errors import HydraException

    from strobe.app.config.checks import check
    from strobe.app.config.compose import configure

    try:
        check(configure(overrides))
    except (HydraException, ConfigError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"suite.loaders: {loader!r} cannot be measured: {reason}") from error


def conclude(record: Mapping[str, Any]) -> list[str]:
    """Each loader against the first where the batch is largest, what the page cache is worth, and what threads are."""
    measured = {cell["name"]: cell for cell in record["cells"] if cell["visits"]}
    warm = [cell for cell in measured.values() if cell["cache"] != "cold" and cell["threads"] == 1]
    sizes = {cell["at"] for cell in warm}
    told = []
    for size in sorted(sizes & {32.0, max(sizes, default=0)}):
        cells = [cell for cell in warm if cell["at"] == size and cell["ratio"]]
        ratios = ", ".join(f"{cell['column']} {estimate(cell['ratio'])}" for cell in cells)
        told += (
            [f"Times as fast as {_first(measured, cells[0])} at batch {size:.0f}, one thread: {ratios}."]
            if cells
            else []
        )
    told += _change(measured, {"cache": "cold"}, {"cache": "warm"}, "Cold files take this many times as long")
    most = max((cell["threads"] for cell in measured.values()), default=1)
    words = f"{most} threads instead of 1 make it this many times as fast, where the batch is largest"
    return told + _change(measured, {"threads": 1, "at": max(sizes, default=0)}, {"threads": most}, words)


def _first(measured: Mapping[str, Any], cell: Mapping[str, Any]) -> str:
    return str(measured[cell["against"]]["column"])


def _change(measured: Mapping[str, Any], of: dict[str, Any], to: dict[str, Any], words: str) -> list[str]:
    """What it does to cells ``of`` such values to have those of ``to`` instead: the ratio of seconds, old / new."""
    found = []
    for cell in measured.values():
        if all(cell[key] == value for key, value in of.items()):
            alike = {key: cell[key] for key in ("row", "column", "threads", "cache")} | to
            others = [other for other in measured.values() if all(other[key] == value for key, value in alike.items())]
            if others and others[0] is not cell:
                times = by_round(others[0], cell)
                found += [f"{cell['column']} {estimate(times)}"] if times else []
    return [f"{words}: {', '.join(found)}."] if found else []


@contextmanager
def load(trial: Trial, *, loader: str, size: int, batches: int, cold: bool) -> Iterator[Work]:
    """Whole batches of one loader, ready for a model."""
    import numpy as np

    from strobe.app.engines.base import WholeBatches
    from strobe.app.loaders.packed import PackedData
    from strobe.bench.inputs import prepared
    from strobe.bench.loading_parts import loader_keys, orders

    data, _ = prepared([*trial.overrides, *loader_keys(loader, trial.input.facts["packs"])])
    dataset, source = data.datasets["train"], data.found["train"]
    some = np.random.default_rng(0).permutation(len(dataset))[:MOST_FILES].tolist()
    whole, drawn = WholeBatches(dataset), orders(some, size)

    def one() -> None:
        data.normalise(whole.__getitems__(next(drawn))[0])

    def repeat() -> int:
        for _ in range(batches):
            one()
        return batches * size

    if isinstance(dataset, PackedData):  # whose pages cannot be thrown out once they were touched

        def elsewhere() -> None:
            """Warm up the memory and the code of a batch, but touch no page of the pack."""
            pixels = dataset.buffers.take((size, *dataset.planes.shape), dataset.planes.dtype)
            data.normalise(dataset.loader.scaled(pixels.zero_(), dataset.full_scale, size))

        yield Work(repeat, warm_up=elsewhere if cold else one, files=[str(dataset.images.path)], once=cold)
    else:
        yield Work(repeat, warm_up=one, files=[source.path(index) for index in some] if hasattr(source, "path") else [])
