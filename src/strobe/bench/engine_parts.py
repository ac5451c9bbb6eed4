"""Engines against a DataLoader tuned by hand; and training against the model's own ceiling."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch.utils.data import DataLoader

from strobe.app.build.instantiate import build_model
from strobe.app.config.compose import configure
from strobe.app.data.base import ImageData
from strobe.app.loaders.base import Batch
from strobe.bench.contest import Entrant, Result, Work, contest
from strobe.bench.inputs import prepared
from strobe.bench.loading_parts import alike, loader_keys
from strobe.measure.statistics import median_interval
from strobe.measure.timing import Meter, Rate
from strobe.probe.loader import load_batch
from strobe.probe.model import WARMUP, CountSteps, lone_trainer, measure_model

WORKERS = (0, 1, 2, 4)
LOADERS = ("tifffile", "native")
PREFETCH = 4  # batches for each worker, twice torch's default


def engines(overrides: list[str], rounds: int, seconds: float) -> dict[str, list[Result]]:
    """Batches of tiles by every engine and number of workers, nobody trains, beside a DataLoader tuned by hand."""
    common = ["data=eurosat", "data.batch_size=64", *overrides]
    data, _ = prepared(common)
    results = {}
    for loader in LOADERS:
        for workers in WORKERS:
            entrants = [Entrant(BY_HAND, _by_hand(data, [*common, f"loader={loader}"], workers), skip=workers * 5)]
            for engine in ("torch", "spdl", "resident"):
                given = [*common, f"loader={loader}", f"engine={engine}", f"engine.num_workers={workers}"]
                given += [f"engine.prefetch_factor={PREFETCH}"] * (engine != "resident")
                if engine != "resident" or workers == 0:
                    entrants.append(Entrant(f"engine={engine}", _draining(data, given), skip=workers * 5))
            results[f"loader={loader}, {workers} workers"] = contest(entrants, rounds=rounds, seconds=seconds)
    return results


BY_HAND = "DataLoader by hand"


def _by_hand(data: ImageData, overrides: list[str], workers: int) -> Callable[[], Work]:
    """``DataLoader(data set)`` as its documentation has it, with all that is known to help.

    Persistent workers, prefetching, integers on their way between processes, one thread in each worker (torch sees to
    that); whole batches where the data set makes them.
    """

    def make() -> Work:
        dataset = alike(data, overrides).datasets["train"]
        options: dict[str, Any] = {"persistent_workers": True, "prefetch_factor": PREFETCH} if workers else {}
        collate = dataset.collate if hasattr(dataset, "__getitems__") else None
        batches = DataLoader(
            dataset, data.batch_size, shuffle=True, drop_last=True, num_workers=workers, collate_fn=collate, **options
        )
        return _taking(_endless(batches))

    return make


def _draining(data: ImageData, overrides: list[str]) -> Callable[[], Work]:
    def make() -> Work:
        return _taking(iter(alike(data, overrides).batches("train", data.batch_size, shuffle=True, endless=True)))

    return make


def _endless(batches: DataLoader[Batch]) -> Iterator[Batch]:
    while True:
        yield from batches


def _taking(batches: Iterator[Batch]) -> Work:
    def work() -> int:
        return len(next(batches)[1])

    return work


@dataclass
class Reached:
    """A training's images/s beside its model's own ceiling, measured by turns."""

    overrides: str
    training: list[float]
    ceiling: list[float]

    @property
    def share(self) -> dict[str, float | None]:
        """Of the ceiling, the median over the rounds and its interval."""
        return median_interval([one / other for one, other in zip(self.training, self.ceiling, strict=True)])


TRAININGS = (
    "loader=skimage",
    "loader=native",
    "loader=native engine.num_workers=1",
    "loader=native engine=spdl engine.num_workers=1",
    "loader=packed",
    "loader=native engine=resident",
)


def training(overrides: list[str], rounds: int, seconds: float) -> list[Reached]:
    """Training from tiles, as ``train.py`` does it, in turn with the same model on one batch that lies there already.

    With ``threads=1`` on two cores a core is left for loading.
    """
    common = ["data=eurosat", *overrides]
    reached = [Reached(given, [], []) for given in TRAININGS]
    data, _ = prepared(common)
    with TemporaryDirectory() as packs:
        for turn in range(rounds + 1):
            for entry in reached if turn % 2 else reversed(reached):
                loader, *engine = entry.overrides.removeprefix("loader=").split()
                given = [*common, *loader_keys(loader, packs), *engine]
                cfg = configure(given)
                if cfg.threads is not None:
                    torch.set_num_threads(cfg.threads)
                own = alike(data, given)
                ceiling = measure_model(cfg, own, load_batch(own), seconds=seconds)
                rate = train(cfg, own, seconds=2 * seconds)
                if turn:
                    entry.ceiling.append(ceiling.median)
                    entry.training.append(rate.median)
    return reached


def train(cfg: Any, data: ImageData, *, seconds: float) -> Rate:
    """Images/s of training from the files, epoch after epoch."""
    trainer = lone_trainer(cfg)
    workers = cfg.engine.num_workers
    warmup = max(WARMUP, workers * (cfg.engine.get("prefetch_factor", 1) + 1) + 2)
    meter = Meter(seconds, multiple=max(1, workers), warmup=warmup)
    trainer.callbacks.append(CountSteps(meter))  # type: ignore[attr-defined]
    trainer.fit(build_model(cfg, data), datamodule=data)
    return meter.rate()
