"""``suite=crop``: a crop of a photo by decoders that decode all of it, and by one that decodes only the crop."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from omegaconf import DictConfig

from strobe.bench.harness.declare import Cell, Input, Plan, Request, Section, Suite, Table, Trial, Work
from strobe.bench.inputs import find_photos
from strobe.errors import ConfigError, DataError

NAMES = ("pil", "torchvision", "spdl", "native")  # what all are held against comes first
TOGETHER = 32  # photos of one call of the native operator
MOST_PHOTOS = 256  # of a larger set as many are chosen at random, and kept in memory


def declare(cfg: DictConfig) -> Suite:
    """Decoders alone, and in a published pipeline with each number of workers."""
    if cfg.data.form != "photos":
        raise ConfigError(f"suite=crop crops photos, and data has {cfg.data.form}; give data.root=FOLDER only")
    chosen = cfg.suite
    decoders = list(dict.fromkeys(chosen.decoders or NAMES))
    workers, batch = list(dict.fromkeys(chosen.workers or [1])), chosen.batch_size
    cells = [_decoding(name, decoders, None) for name in decoders]
    if "native" in decoders:
        cells.append(_decoding("native", decoders, TOGETHER))
    for place, count in enumerate(workers):
        cells += [_training(name, decoders, count, batch, first=place == 0) for name in decoders]
    return Suite(
        name="crop",
        title="Crops of photos",
        about="Alone: 256x256 pixels at a random place of an encoded photo in memory, on one thread. In training: "
        f"worker processes do what a published pipeline does to each crop (a random mask, YCbCr, scaling), {batch} of "
        "them a step, and the network is so small that the loader sets the pace, as it did there. The first trial to "
        "each step also records a few steps in a trace that TensorBoard reads (below tensorboard/): they load in the "
        "training process, because the profiler sees no other, and are not among the timed ones. spdl crops at whole "
        "samples of colour, which is its quickest way. Photos that are smaller or grey are left out; of more than "
        f"{MOST_PHOTOS} so many are used.",
        cells=cells,
        tables=[
            Table("decode", "Decoding and cropping alone, one thread"),
            Table("step", f"A training step of {batch} crops", unit="ms", rows="worker processes"),
        ],
        quick=Plan(rounds=2, turn=0.15, budget=35),
        full=Plan(rounds=9, turn=1.5, budget=900),
        find=_find,
        conclude=conclude,
        sections=sections,
        varies={
            "loader": "suite.decoders=[NAME,...]",
            "engine": "suite.workers=[N,...]",
            "threads": "no threads (each decoder has one, and so has the network)",
            "model": "no model (the suite has its own small network)",
            "data.framing": "suite=loading, which frames photos in every way,",
            "data.batch_size": "suite.batch_size=N",
        },
        packages=["pillow", "torchvision", "spdl", "spdl-io"],
    )


def _decoding(name: str, decoders: list[str], batch: int | None) -> Cell:
    return Cell(
        "decode",
        "one at a time" if batch is None else f"{batch} at a time",
        name,
        partial(decode, decoder=name, batch=batch),
        against=None if name == decoders[0] and batch is None else _named("decode", "one at a time", decoders[0]),
    )


def _training(name: str, decoders: list[str], workers: int, batch: int, *, first: bool) -> Cell:
    return Cell(
        "step",
        str(workers),
        name,
        partial(train, decoder=name, workers=workers, batch=batch, traced=first),
        against=None if name == decoders[0] else _named("step", str(workers), decoders[0]),
        at=float(workers),
    )


def _named(table: str, row: str, decoder: str) -> str:
    return Cell(table, row, decoder, partial(decode, decoder=decoder, batch=None)).name


def decode(trial: Trial, *, decoder: str, batch: int | None) -> AbstractContextManager[Work]:
    """Crops from memory."""
    from strobe.bench.suites.crop import cells as crop_cells

    return crop_cells.decode(trial, decoder=decoder, batch=batch)


def train(trial: Trial, *, decoder: str, workers: int, batch: int, traced: bool) -> AbstractContextManager[Work]:
    """Training steps on what worker processes prepare of crops."""
    from strobe.bench.suites.crop import cells as crop_cells

    return crop_cells.train(trial, decoder=decoder, workers=workers, batch=batch, traced=traced)


def _find(asked: Request, scratch: Path) -> Input:
    """The photos that are large enough, with their sizes; each is decoded once, to see that it is whole."""
    import numpy as np

    from strobe.bench.suites.crop.decoders import CROP, Size, measured

    device = _device(asked.cfg.trainer.accelerator)
    found = find_photos(asked, scratch)
    sizes: dict[str, Size] = {}
    skipped = 0
    for place in np.random.default_rng(0).permutation(len(found.facts["paths"])):
        path = found.facts["paths"][place]
        if (size := measured(path)) is None:
            skipped += 1
        else:
            sizes[path] = size
        if len(sizes) == MOST_PHOTOS:
            break
    if not sizes:
        raise DataError(
            f"none of the {skipped} photos is a JPEG in colours of {CROP}x{CROP} pixels or more; name a folder of "
            "larger ones as data.root, or leave it out to measure on generated ones"
        )
    told = f"{len(sizes)} of {found.told}" if len(sizes) < len(found.facts["paths"]) else found.told
    kept = sorted(sizes)
    facts = {"paths": kept, "sizes": [sizes[path] for path in kept], "device": device}
    pixels = median(sizes[path][0] * sizes[path][1] for path in kept)
    told += f", {pixels / 1e6:.2f} million pixels in the median; steps train on the {device.replace('cuda', 'GPU')}"
    return Input(told, found.generated, found.overrides, facts)


def _device(accelerator: str) -> str:
    """Where the network trains: on a GPU where there is one, unless trainer.accelerator says otherwise."""
    import torch

    if accelerator not in {"auto", "gpu", "cuda", "cpu"}:
        raise ConfigError(f"trainer.accelerator={accelerator} is not measured; give auto, cpu or gpu")
    if accelerator != "cpu" and torch.cuda.is_available():
        return "cuda"
    if accelerator in {"gpu", "cuda"}:
        raise ConfigError(
            f"trainer.accelerator={accelerator} needs a GPU, and there is none; give cpu, or leave it out"
        )
    return "cpu"


def conclude(record: Mapping[str, Any]) -> list[str]:
    """What decoding only the crop gains."""
    from strobe.bench.suites.crop.report import conclusions

    return conclusions(record)


def sections(record: Mapping[str, Any], _: Path) -> list[Section]:
    """Where a step's time goes."""
    from strobe.bench.suites.crop.report import parts_of_a_step

    return parts_of_a_step(record)
