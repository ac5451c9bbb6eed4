"""``suite=crop``: a crop of a photo by decoders that decode all of it, and by one that decodes only the crop."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from omegaconf import DictConfig

from strobe.bench.harness.declare import Cell, Input, Plan, Request, Section, Suite, Table, deferred
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
    cells = _row("decode", "one at a time", decoders, batch=None)
    if "native" in decoders:
        together = _row("decode", f"{TOGETHER} at a time", ["native"], batch=TOGETHER)
        cells += [replace(cell, against=cells[0].name) for cell in together]
    for place, count in enumerate(workers):
        cells += _row("step", str(count), decoders, float(count), workers=count, batch=batch, traced=place == 0)
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


def _row(table: str, row: str, names: Sequence[str], at: float | None = None, **options: Any) -> list[Cell]:
    """A cell for each decoder; the ratios are to the first."""
    cells: list[Cell] = []
    for name in names:
        make = deferred(f"crop.cells:{'decode' if table == 'decode' else 'train'}", decoder=name, **options)
        cells.append(Cell(table, row, name, make, against=cells[0].name if cells else None, at=at))
    return cells


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
    from strobe.bench.suites.crop.report import conclusions  # which knows the names of what torch measures

    return conclusions(record)


def sections(record: Mapping[str, Any], _: Path) -> list[Section]:
    """Where a step's time goes."""
    from strobe.bench.suites.crop.report import parts_of_a_step

    return parts_of_a_step(record)
