"""Comparison records as ``comparison.json`` holds them: plausible, seeded, of 2, 24 and 200 cells, and hostile ones."""

import copy
import itertools
import math
import random
from collections.abc import Sequence
from typing import Any

HOSTILE = "<script>alert(1)</script>&\"'" + "x" * 300
PHASES = ("data_wait", "transfer", "forward", "backward", "optimizer", "callbacks", "other")
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


def comparison(
    cells: int = 24, *, seed: int = 0, repeats: int = 5, failing: int = 11, single: int = 7
) -> dict[str, Any]:
    """A record; every so manieth cell failed, has one run only, or lacks what a run may lack."""
    chance, shape = random.Random(seed), SHAPES[cells]
    found = []
    for number, values in enumerate(itertools.product(*shape.values())):
        overrides = {key: str(value) for key, value in zip(shape, values, strict=True)}
        failed = cells > 2 and number % failing == failing - 1
        runs = 1 if cells > 2 and number % single == single - 1 else repeats
        found.append(_cell(chance, number, overrides, runs, failed=failed))
    baseline = found[0]
    for cell in found:
        _judge(cell, baseline)
    measured = sorted((cell for cell in found if cell["images_per_second"]), key=lambda cell: -_median(cell))
    measured[0]["best"] = True
    failed_cells = [cell for cell in found if not cell["images_per_second"]]
    return {
        "schema": 1,
        "made": "2026-11-21T12:34:56",
        "command": "python -m strobe.compare outputs/sweeps/2026-11-21/12-00-00",
        "title": "outputs/sweeps/2026-11-21/12-00-00",
        "baseline": baseline["name"],
        "keys": list(shape),
        "cells": [*measured, *failed_cells],
        "unlike": ["Page cache: between 0% and 100% of the training files lay in memory."] if cells > 2 else [],
        "knees": _knees(measured),
        "operators": _operators(chance, baseline, measured[0]),
        "regression": None,
        "environment": {
            "host": "box",
            "cpu": "AMD EPYC 7B13",
            "usable_cores": 8,
            "memory_bytes": 64e9,
            "git_commit": "0123456789abcdef0123456789abcdef01234567",
            "page_cache": 0.98,
            "versions": {"torch": "2.11.0", "lightning": "2.6.1"},
        },
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


def _cell(chance: random.Random, number: int, overrides: dict[str, str], runs: int, *, failed: bool) -> dict[str, Any]:
    loader, gpu = overrides["loader"], overrides.get("trainer") == "gpu"
    batch, workers = int(overrides.get("data.batch_size", 32)), int(overrides.get("engine.num_workers", 0))
    load = COST[loader] / (workers or 1) * (1 + 2 / batch)
    model = (0.04e-3 if gpu else 1.4e-3) * (1 + 12 / batch)
    wait = max(0.02e-3, load - model) if workers else load
    parts = (wait, 0.01e-3 * gpu, model / 3, model / 2, model / 6, 0.02e-3, 0.01e-3)
    step = {name: value * batch for name, value in zip(PHASES, parts, strict=True)}
    rate = 1 / sum(parts)
    rates = [rate * math.exp(chance.gauss(0, 0.02)) for _ in range(runs)]
    directory = f"{number}-{','.join(f'{key}={value}' for key, value in overrides.items())}"
    low, high = (min(rates), max(rates)) if runs > 1 else (0.97 * rates[0], 1.03 * rates[0])
    return {
        "name": " ".join(f"{key}={value}" for key, value in overrides.items()),
        "overrides": overrides,
        "values": {
            "batch_size": batch,
            "num_workers": workers,
            "loader": loader,
            "engine": "torch",
            "trainer": overrides.get("trainer", "cpu"),
            "accelerator": "cuda" if gpu else "cpu",
            "precision": None,
            "world_size": 1,
        },
        "status": "failed" if failed else "completed",
        "error": ERROR if failed else None,
        "runs": [
            {
                "directory": directory + f".{repeat + 1}" * (repeat > 0),
                "report": None if failed else f"{directory}{f'.{repeat + 1}' * (repeat > 0)}/report.html",
                "status": "failed" if failed else "completed",
                "images_per_second": None if failed else each,
                "error": ERROR if failed else None,
                "tensorboard": not failed,
                "seconds": 31.5,
            }
            for repeat, each in enumerate(rates)
        ],
        "images_per_second": None
        if failed
        else {"median": sorted(rates)[runs // 2], "low": low, "high": high, "of": "runs" if runs > 1 else "steps"},
        "speedup": None,
        "verdict": "not measured",
        "step_seconds": None if failed else step | {"total": sum(step.values())},
        "images_per_step": None if failed else float(batch),
        "between_seconds": None if failed else 0.02e-3 * batch,
        "ceilings": {"loader": 1.05 / load, "model": 1.02 / model, "joint": None},
        "efficiency": None if number % 5 == 4 else 0.83,
        "memory": {
            "rss_peak_bytes": 0.9e9 + 1e6 * batch * (1 + workers),
            "device_peak_bytes": 0.4e9 + 2.1e6 * batch if gpu else None,
        },
        "gpu": "NVIDIA H200" if gpu else None,
        "accuracy": None if failed or number % 3 else {"test/accuracy": None, "val/accuracy": 0.41 + 0.001 * number},
        "best": False,
    }


def _median(cell: dict[str, Any]) -> float:
    return float(cell["images_per_second"]["median"])


def _judge(cell: dict[str, Any], baseline: dict[str, Any]) -> None:
    if not cell["images_per_second"]:
        return
    ratio, few = _median(cell) / _median(baseline), len(cell["runs"]) < 2 or len(baseline["runs"]) < 2
    low, high = ratio * 0.96, ratio * 1.05
    cell["speedup"] = {"median": ratio, "low": None if few else low, "high": None if few else high}
    decided = "faster" if low > 1 else "slower" if high < 1 else "no difference"
    cell["verdict"] = "baseline" if cell is baseline else "too few runs" if few else decided


def _knees(measured: list[dict[str, Any]]) -> list[dict[str, Any]]:
    groups: dict[str, list[dict[str, Any]]] = {}
    for cell in measured:
        others = [f"{key}={value}" for key, value in cell["overrides"].items() if key != "data.batch_size"]
        groups.setdefault(", ".join(others), []).append(cell)
    found = []
    for where, cells in groups.items():
        near = [cell for cell in cells if _median(cell) >= 0.95 * _median(cells[0])]
        knee = min(near, key=lambda cell: cell["values"]["batch_size"])
        if len(cells) > 1:
            found.append(
                {
                    "where": where,
                    "batch_size": knee["values"]["batch_size"],
                    "images_per_second": _median(knee),
                    "best_batch_size": cells[0]["values"]["batch_size"],
                }
            )
    return found


def _operators(chance: random.Random, before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    names = [
        "aten::convolution_backward",
        "aten::mkldnn_convolution",
        "aten::add_",
        "enumerate(DataLoader)#next",
        "x::y",
    ]
    rows = []
    for name in [*names, *(f"aten::operator_{number}" for number in range(30))]:
        earlier, later = (chance.uniform(0, 900) for _ in range(2))
        rows.append({"name": name, "before_us": earlier, "after_us": later, "change_us": later - earlier})
    rows.sort(key=lambda row: -abs(row["change_us"]))
    return {"before": before["name"], "after": after["name"], "rows": rows, "device": "cpu"}
