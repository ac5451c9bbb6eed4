"""Comparison records as they are gathered of made-up sweeps of 2, 24 and 200 cells, and hostile ones."""

import copy
import itertools
import math
import random
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from strobe.callbacks.columns import PHASES
from strobe.compare.gather import Request, gather
from support.run_folders import write_sweep

HOSTILE = "<script>alert(1)</script>&\"'" + "x" * 300
TITLE = "outputs/sweeps/2026-11-21/12-00-00"
COST = {"rasterio": 2.1e-3, "skimage": 1.6e-3, "tifffile": 0.9e-3, "native": 0.16e-3, "packed": 0.08e-3}  # s an image
SHAPES: dict[int, dict[str, Sequence[Any]]] = {
    2: {"loader": ["rasterio", "native"]},
    24: {
        "loader": ["rasterio", "skimage", "native"],
        "data.batch_size": [32, 64, 128, 512],
        "engine.num_workers": [0, 2],
    },
    200: {
        "loader": list(COST),
        "data.batch_size": [16, 32, 64, 128, 512],
        "engine.num_workers": [0, 1, 2, 4],
        "trainer": ["cpu", "gpu"],
    },
}
ERROR = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.\nGPU 0 has 1.2 GiB free & <no> more."


@cache
def _gathered(cells: int, repeats: int, failing: int, single: int) -> dict[str, Any]:
    chance, shape, made = random.Random(0), SHAPES[cells], []
    for number, values in enumerate(itertools.product(*shape.values())):
        overrides = {key: str(value) for key, value in zip(shape, values, strict=True)}
        runs: list[Any] = [_run(chance, number, overrides) for _ in range(repeats)]
        if cells > 2 and number % failing == failing - 1:
            runs = [ERROR] * repeats
        one = cells > 2 and number % single == single - 1
        made.append((" ".join(f"{key}={value}" for key, value in overrides.items()), runs[:1] if one else runs))
    with tempfile.TemporaryDirectory() as folder:
        sweep = write_sweep(Path(folder, "sweep"), made)
        record = gather(Request([sweep], sweep, f"strobe compare {TITLE}"))
    names = ["aten::convolution_backward", "aten::mkldnn_convolution", "enumerate(DataLoader)#next", "x::y"]
    rows = []
    for name in [*names, *(f"aten::operator_{number}" for number in range(31))]:
        before, after = (chance.uniform(0, 900) for _ in range(2))
        rows.append({"name": name, "before_us": before, "after_us": after, "change_us": after - before})
    rows.sort(key=lambda row: -abs(row["change_us"]))
    best = record["cells"][0]["name"]
    operators = {"before": record["baseline"], "after": best, "rows": rows, "device": "cpu"}
    return record | {"made": "2026-11-21T12:34:56", "title": TITLE, "operators": operators}


def comparison(cells: int = 24, *, repeats: int = 2, failing: int = 11, single: int = 7) -> dict[str, Any]:
    """What is gathered of a sweep; every so manieth cell failed, has one run only, or lacks what a run may lack."""
    return copy.deepcopy(_gathered(cells, repeats, failing, single))


def _run(chance: random.Random, number: int, overrides: dict[str, str]) -> dict[str, Any]:
    """How a run's record differs from that of ``write_run``."""
    gpu = overrides.get("trainer") == "gpu"
    batch, workers = int(overrides.get("data.batch_size", 32)), int(overrides.get("engine.num_workers", 0))
    load = COST[overrides["loader"]] / (workers or 1) * (1 + 2 / batch)
    model = (0.04e-3 if gpu else 1.4e-3) * (1 + 6 / batch)
    wait = max(0.02e-3, load - model) if workers else load
    parts = (wait, 0.01e-3 * gpu, 0.0, model / 3, model / 2, model / 6, 0.02e-3, 0.01e-3)
    step = {name: value * batch for name, value in zip(PHASES, parts, strict=True)}
    peak = 0.4e9 + 2.1e6 * batch if gpu else None
    return {
        "rate": math.exp(chance.gauss(0, 0.01)) / sum(parts),
        "accelerator": "cuda" if gpu else "cpu",
        "gpu": "NVIDIA H200" if gpu else None,
        "step_seconds": step | {"total": sum(step.values())},
        "between_seconds": {"validation": 0.02e-3 * batch},
        "ceilings": {"loader": 1.05 / load, "model": 1.02 / model, "joint": None},
        "efficiency": None if number % 5 == 4 else 0.83,
        "memory": {"rss_peak_bytes": 0.9e9 + 1e6 * batch * (1 + workers), "device_peak_bytes": peak},
        "metrics": {} if number % 3 else {"val/accuracy": 0.41 + 0.001 * number},
    }


def hostile(cells: int = 24) -> dict[str, Any]:
    """A record in which every text is markup, quotes and 300 letters."""

    def spoilt(node: Any, key: str = "") -> Any:
        if isinstance(node, dict):
            return {name: spoilt(value, name) for name, value in node.items()}
        if isinstance(node, list):
            return [spoilt(value) for value in node]
        known = key in {"verdict", "of", "accelerator"}
        return node if not isinstance(node, str) or known else f"{node}{HOSTILE}"

    record: dict[str, Any] = spoilt(comparison(cells))
    keys = {key: key if "." in key else f"{key}{HOSTILE}" for key in SHAPES[cells]}
    record["keys"] = list(keys.values())
    for cell in record["cells"]:
        cell["overrides"] = {keys[key]: value for key, value in cell["overrides"].items()}
    return record


def without(record: dict[str, Any], *path: str) -> dict[str, Any]:
    """The record with this key null in each of its cells."""
    changed = copy.deepcopy(record)
    for cell in changed["cells"]:
        node = cell
        for key in path[:-1]:
            node = node[key] or {}
        node[path[-1]] = None
    return changed
