"""The knee: the smallest batch whose throughput is within 5% of the best."""

from collections.abc import Mapping, Sequence
from typing import Any

NEAR = 0.05
BATCH = "data.batch_size"
LEARNING_RATE = frozenset({"model.lr", "model.lr_scaling", "model.lr_batch_size"})  # follow the batch size
ALONE = "all else alike"


def knees(cells: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One for each group of completed cells that are alike in all but their batch size, of two sizes at least.

    There is none where only the fastest batch itself is within 5% of the best.
    """
    groups: dict[tuple[str, ...], dict[int, float]] = {}
    for cell in cells:
        size, rate = cell["values"]["batch_size"], cell["images_per_second"]
        if isinstance(size, int) and rate is not None and cell["status"] == "completed":
            others = tuple(f"{key}={value}" for key, value in _others(cell) if value)
            rates = groups.setdefault(others, {})
            rates[size] = max(rates.get(size, 0.0), rate["median"])
    found = [_knee(others, rates) for others, rates in groups.items() if len(rates) > 1]
    return [knee for knee in found if knee["batch_size"] != knee["best_batch_size"]]


def _others(cell: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(key, value) for key, value in cell["overrides"].items() if key != BATCH and key not in LEARNING_RATE]


def _knee(others: Sequence[str], rates: Mapping[int, float]) -> dict[str, Any]:
    best = max(rates, key=lambda size: (rates[size], -size))
    size = min(size for size, rate in rates.items() if rate >= (1 - NEAR) * rates[best])
    return {
        "where": ", ".join(others) or ALONE,
        "batch_size": size,
        "images_per_second": rates[size],
        "best_batch_size": best,
    }
