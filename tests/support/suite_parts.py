"""Suites from the command line, a small CIFAR-10 to train on, and a record of trials that never were."""

from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from strobe.bench.command import run
from strobe.bench.harness.declare import Input, Suite, Trial
from strobe.bench.harness.results import Results
from strobe.bench.harness.trial import Report
from strobe.process.fork import Failure
from support.cifar10_files import generated
from support.composing import bench_config
from support.suite_records import HEADER

TRAINED = 180  # images, of 200
NETWORK = "model._target_=strobe.validation.injected_faults.SmallClassifier"


def measured_here(folder: Path, *overrides: str) -> tuple[int, str]:
    """``strobe.bench`` without its start: the exit code, and what is said; each cell is a process all the same."""
    cfg = bench_config(*overrides, f"hydra.runtime.output_dir={folder}")
    folder.mkdir(parents=True, exist_ok=True)
    with redirect_stdout(StringIO()) as said:
        code = run(cfg)
    return code, said.getvalue()


def trial_of(folder: Path, number: int = 0, *overrides: str) -> Trial:
    """A trial of a cell of one thread that trains a tiny network on a small CIFAR-10, all of it below ``folder``."""
    root = folder / "data"
    if not root.is_dir():
        generated(root)
    given = ("data=cifar10", f"data.root={root}", "data.verify=false", "threads=1", NETWORK, *overrides)
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
