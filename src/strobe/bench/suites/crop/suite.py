"""``suite=crop``: a crop of a photo by decoders that decode all of it, and by one that decodes only the crop."""

from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from omegaconf import DictConfig

from strobe.app.config.suites import CROP_DECODERS
from strobe.bench.harness.declare import Cell, Input, Plan, Request, Section, Suite, Table, deferred, row
from strobe.bench.harness.results import faster
from strobe.bench.inputs import find_photos
from strobe.errors import ConfigError, DataError
from strobe.present import parts as page
from strobe.present.charts.rows import Segment, Stack, stacks
from strobe.present.format import milliseconds

TOGETHER = 32  # photos of one call of the native operator
MOST_PHOTOS = 256  # of a larger set as many are chosen at random, and kept in memory
PIXELS = "photo_pixels"  # of a photo, in the median
DECODE, MASK, COLOUR, SCALE, STEP = "decode_and_crop_jpeg", "random_mask", "convert_color", "scale", "train_step"
PARTS = {DECODE: "decode, crop", MASK: "random mask", COLOUR: "colours", SCALE: "scale", STEP: "training"}
WHOLE = "whole_step"  # beside the ranges: the mean of the traced steps
REST = "the rest"  # joining the batch, and the profiler's own
_NOTE = (
    "Milliseconds of a step: means over the steps of a trace in which everything, loading too, is done in the "
    "training process, one thing after the other, and the profiler is on. So they tell how the time divides; how "
    "long a step takes beside a worker process is in the table above. The traces lie in tensorboard/, a folder for "
    "each decoder."
)


def declare(cfg: DictConfig) -> Suite:
    """Decoders alone, and in a published pipeline with each number of workers."""
    chosen = cfg.suite
    decoders = list(dict.fromkeys(chosen.decoders or CROP_DECODERS))
    workers, batch = list(dict.fromkeys(chosen.workers or [1])), chosen.batch_size
    ways = {name: deferred("crop.cells:decode", decoder=name, batch=None) for name in decoders}
    cells = row("decode", "one at a time", ways)
    if "native" in decoders:
        together = deferred("crop.cells:decode", decoder="native", batch=TOGETHER)
        cells.append(Cell("decode", f"{TOGETHER} at a time", "native", together, against=cells[0].name))
    for count in workers:
        options = {"workers": count, "batch": batch, "traced": count == workers[0]}
        ways = {name: deferred("crop.cells:train", decoder=name, **options) for name in decoders}
        cells += row("step", str(count), ways, at=float(count))
    return Suite(
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
        form="photos",
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


def _find(request: Request, scratch: Path) -> Input:
    """The photos that are large enough, with their sizes; each is decoded once, to see that it is whole."""
    import numpy as np
    import torch

    from strobe.bench.suites.crop.decoders import CROP, Size, measured

    accelerator, there = request.cfg.trainer.accelerator, torch.accelerator.current_accelerator(check_available=True)
    gpu = there and there.type
    if accelerator not in {"auto", "gpu", "cpu", gpu}:
        raise ConfigError(f"trainer.accelerator={accelerator} is not measured here; give auto, cpu or gpu")
    if accelerator == "gpu" and gpu is None:
        raise ConfigError("trainer.accelerator=gpu needs a GPU, and this machine has none; give cpu, or leave it out")
    device = gpu if gpu and accelerator != "cpu" else "cpu"
    photos = find_photos(request, scratch)
    paths, sizes = photos.facts["paths"], dict[str, Size]()
    for place in np.random.default_rng(0).permutation(len(paths)):
        if size := measured(paths[place]):
            sizes[paths[place]] = size
        if len(sizes) == MOST_PHOTOS:
            break
    if not sizes:
        raise DataError(
            f"none of the {len(paths)} photos is a JPEG in colours of {CROP}x{CROP} pixels or more; name a folder of "
            "larger ones as data.root, or leave it out to measure on generated ones"
        )
    title = f"{len(sizes)} of {photos.title}" if len(sizes) < len(paths) else photos.title
    kept = sorted(sizes)
    facts = {"paths": kept, "sizes": [sizes[path] for path in kept], "device": device}
    pixels = median(sizes[path][0] * sizes[path][1] for path in kept)
    title += (
        f", {pixels / 1e6:.2f} million pixels in the median; steps train on the {device if device == 'cpu' else 'GPU'}"
    )
    return Input(title, photos.generated, photos.overrides, facts)


def conclude(record: Mapping[str, Any]) -> list[str]:
    """What decoding only the crop gains, alone and in a step, against each of the others."""
    cells = {(cell["table"], cell["row"], cell["column"]): cell for cell in record["cells"]}
    found = []
    for (kind, count, other), cell in sorted(cells.items(), key=lambda item: CROP_DECODERS.index(item[0][2])):
        native = cells.get((kind, count, "native"), cell)
        if native is cell or not (times := faster(native, cell)):
            continue
        if kind == "decode":
            found.append(f"Decoding only the crop is {times} times as fast as {other}.")
        else:
            before, after = (milliseconds(one["seconds"]["median"]) for one in (cell, native))
            found.append(
                f"Training with {count} worker{'s' * (count != '1')} is {times} times as fast as with {other}"
                f": a step takes {after} instead of {before} ms."
            )
    return found


def sections(record: Mapping[str, Any], _: Path) -> list[Section]:
    """A section with a bar for each decoder whose steps were traced, stacked of the parts of a step."""
    found = {}
    for cell in record["cells"]:
        means = {name: figure["median"] for name, figure in cell["figures"].items()}
        if WHOLE in means:
            parts = {title: means[name] for name, title in PARTS.items()}
            found[cell["column"]] = parts | {REST: max(0.0, means[WHOLE] - sum(parts.values()))}
    if not found:
        return []
    names = [*PARTS.values(), REST]
    css = {part: f"s{place}" for place, part in enumerate(names, 1)}
    rows, bars, lines = [], [], []
    for name, seconds in found.items():
        told = {part: milliseconds(seconds[part]) for part in names}
        rows.append([name, *told.values(), milliseconds(sum(seconds.values()))])
        bars.append(Stack(name, name, [Segment(part, css[part], seconds[part]) for part in names]))
        lines.append(f"{name}: {', '.join(f'{part} {value}' for part, value in told.items())}; ms a step")
    drawn: list[page.Part] = [page.Keys([page.Key(f"key {css[part]}", part) for part in names]), stacks(bars, "a step")]
    table = page.Table(["decoder", *(f"#{part}" for part in names), "#step"], rows, "cells")
    return [Section("Where a step's time goes", [page.Paragraph(_NOTE), *drawn, table], "\n".join(lines))]
