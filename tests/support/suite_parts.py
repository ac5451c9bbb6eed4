"""A suite of conf/ as it is declared, a small CIFAR-10 to train on, and a record of trials that never were."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from strobe.app.config.compose import CONF
from strobe.app.config.register import register
from strobe.bench.harness.declare import Input, Suite, Trial
from strobe.bench.harness.results import Results
from strobe.bench.harness.trial import Report
from strobe.process.fork import Failure
from support.cifar10_files import generated
from support.suite_records import HEADER

TRAINED = 180  # images, of 200


def bench_config(*overrides: str) -> DictConfig:
    """The configuration of ``python -m strobe.bench`` with these overrides."""
    register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        cfg = compose("bench", overrides=list(overrides), return_hydra_config=True)
    HydraConfig.instance().set_config(cfg)
    return cfg


def trial_of(folder: Path, number: int = 0, *overrides: str) -> Trial:
    """A trial to a cell of one thread that trains on a small CIFAR-10 below ``folder``; its place is there too."""
    root = folder / "data"
    if not root.is_dir():
        generated(root)
    given = ("data=cifar10", f"data.root={root}", "data.verify=false", "threads=1", *overrides)
    place = folder / "cells" / "one"
    place.mkdir(parents=True, exist_ok=True)
    return Trial(place, number, given, Input("a small set", generated=True, facts={"images": TRAINED}))


def recorded(suite: Suite, found: Mapping[str, Sequence[Report] | str]) -> dict[str, Any]:
    """The record of a suite whose cells, by name, found this or failed; the others wait."""
    results = Results(suite, HEADER | {"suite": suite.name, "title": suite.title})
    for cell in suite.cells:
        outcome = found.get(cell.name, [])
        reports = [Failure(outcome)] if isinstance(outcome, str) else outcome
        for number, report in enumerate(reports):
            results.add(cell, number, report)
    return results.record("completed")


def times_as_fast(sentence: str) -> float:
    """The ratio that a conclusion tells first."""
    return float(sentence.partition(": ")[2].split()[0])
