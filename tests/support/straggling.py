"""Rows of several ranks whose truth is known: who is slow, when and in which phase, on a machine that is not calm."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from strobe.callbacks.columns import PHASES
from strobe.records.ranks import summarised
from support.pages import table_of

WORK = {"data_wait": 2e-3, "transfer": 2e-4, "forward": 1e-2, "backward": 2e-2, "optimizer": 3e-3}  # seconds of a step
WORK |= {"callbacks": 3e-4, "other": 5e-4}
BASE = sum(WORK.values())
EXCHANGE = 1e-3  # which no rank is spared

Rows = dict[int, dict[int, dict[str, float]]]
Extra = Callable[[int, int], float]  # seconds of a rank's step


@dataclass(frozen=True)
class Case:
    """Rows, and the slow-down in them if there were no noise."""

    rows: Rows
    slowdown: float
    without: float  # how many times as fast training would be without the extra work


def case(
    extra: Extra = lambda rank, step: 0.0,
    *,
    phase: str = "data_wait",
    ranks: int = 2,
    steps: int = 120,
    noise: float = 0.1,
    seed: int = 0,
    elements: Callable[[int, int], float] | None = None,
) -> Case:
    """Steps of ``BASE`` seconds and `extra`; ``elements`` stretch a batch's computing, 1.0 being a usual one.

    The noise of a phase is lognormal; one step in 50 is kept from its core for some 10 ms times ``noise``; a drift that
    both ranks share moves by a tenth.
    """
    random = np.random.default_rng(seed)
    drift = np.exp(0.1 * np.sin(np.arange(steps) / 15 + random.uniform(0, 6)))
    more = np.array([[extra(rank, step) for step in range(steps)] for rank in range(ranks)])
    size = np.array([[elements(rank, step) if elements else 1.0 for step in range(steps)] for rank in range(ranks)])
    phases = {
        name: seconds * drift * np.exp(noise * random.standard_normal((ranks, steps))) for name, seconds in WORK.items()
    }
    for name in ("forward", "backward"):
        phases[name] = phases[name] * size
    phases["backward"] = phases["backward"] + (random.random((ranks, steps)) < 0.02) * random.exponential(
        0.1 * noise, (ranks, steps)
    )
    phases[phase] = phases[phase] + more
    own = sum(phases.values())
    wait = own.max(axis=0) - own + EXCHANGE
    alone = own - more + (phases["forward"] + phases["backward"]) * (size.mean(axis=0) / size - 1)  # all alike
    phases["backward"] = phases["backward"] + wait
    rows: Rows = {}
    for rank in range(ranks):
        rows[rank] = {}
        for step in range(steps):
            each = dict.fromkeys(PHASES, 0.0) | {name: float(values[rank, step]) for name, values in phases.items()}
            row: dict[str, Any] = {"step": step, "epoch": 0, "images": 32.0 * ranks, "profiled": 0, **each}
            row |= {"total": sum(each.values()), "exposed_wait": float(wait[rank, step])}
            row |= {f"wait_{name}": float(wait[rank, step]) * (name == "backward") for name in PHASES}
            rows[rank][step] = row | {"elements": 3072 * size[rank, step], "callbacks/Slow": each["callbacks"]}
    slow = BASE + (size - 1) * (WORK["forward"] + WORK["backward"]) + more
    return Case(rows, slow.max(axis=0).mean() / slow.mean(), _pace(own) / _pace(alone))


def _pace(own: Any) -> float:
    return float(own.max(axis=0).mean()) + EXCHANGE


def told(rows: Rows, world: int | None = None) -> dict[str, Any]:
    """The ``ranks`` of a record, of a training on these rows."""
    return summarised({rank: table_of([*found.values()]) for rank, found in rows.items()}, world or len(rows))
