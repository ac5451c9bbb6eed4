"""Photo files by every loader, for each way to make a square of one."""

import os
import tempfile
from pathlib import Path

import torch

from strobe.app.config.checks import loaders_for
from strobe.bench.contest import Result, contest
from strobe.bench.inputs import class_folders, jpegs, prepared
from strobe.bench.loading_parts import loader_entrant
from strobe.errors import DataError

PHOTO_BATCH = 32


def framings(overrides: list[str], rounds: int, seconds: float) -> dict[str, list[Result]]:
    """Photo files by every loader, on one thread, for each way to make a square of one."""
    torch.set_num_threads(1)
    results = {}
    with tempfile.TemporaryDirectory() as links, tempfile.TemporaryDirectory() as packs:
        root = class_folders(_paths(), Path(links))
        for framing, size in (("random_crop", 256), ("random_resized_crop", 224), ("resize", 224)):
            common = ["data=image_folder", f"data.root={root}", f"data.framing={framing}", f"data.size={size}"]
            data, _ = prepared([*common, *overrides])
            choices = [name for name in loaders_for("photos") if name != "packed" or framing == "resize"]
            choices += ["native loader.dct_scaling=false"] * (framing != "random_crop")
            entrants = [loader_entrant(data, [*common, *overrides], choice, packs, PHOTO_BATCH) for choice in choices]
            results[f"{framing}, {size}"] = contest(entrants, rounds=rounds, seconds=seconds)
    return results


def _paths() -> list[Path]:
    folder = Path(os.environ.get("STROBE_DATA", "data")) / "photos"
    if not (found := jpegs(folder)):
        raise DataError(f"{folder} holds no JPEG; name the folder above it in the variable STROBE_DATA")
    return found
