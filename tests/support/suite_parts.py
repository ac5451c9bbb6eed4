"""Suites as they are declared and measured in this process, and a small CIFAR-10 to train on."""

from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import mkdtemp

from strobe.bench import command
from strobe.bench.harness.declare import Input, Suite, Trial
from support.cifar10_files import generated
from support.composing import bench_config

TRAINED = 180  # images, of 200
NETWORK = "model._target_=strobe.validation.injected_faults.SmallClassifier"


def declared(suite: str, *overrides: str) -> Suite:
    """A suite as these overrides make it."""
    return command.declared(bench_config(f"suite={suite}", *overrides))


def measured_here(folder: Path, *overrides: str) -> tuple[int, str]:
    """``strobe.bench`` without its start: the exit code, and what is said; each cell is a process all the same."""
    cfg = bench_config(*overrides, f"hydra.runtime.output_dir={folder}")
    folder.mkdir(parents=True, exist_ok=True)
    with redirect_stdout(StringIO()) as said:
        code = command.run(cfg)
    return code, said.getvalue()


def trial_of(folder: Path, number: int = 0, *overrides: str) -> Trial:
    """A trial of a cell of one thread that trains a tiny network on a small CIFAR-10, all of it below ``folder``."""
    root = folder / "data"
    if not root.is_dir():
        generated(root)
    given = ("data=cifar10", f"data.root={root}", "data.verify=false", "threads=1", NETWORK, *overrides)
    place = folder / "cells" / "one"
    place.mkdir(parents=True, exist_ok=True)
    found = Input("a small set", generated=True, facts={"images": TRAINED})
    return Trial(place, number, given, found, Path(mkdtemp(dir=folder)))


def times_as_fast(sentence: str) -> float:
    """The ratio that a conclusion tells first."""
    return float(sentence.partition(": ")[2].split()[0])
