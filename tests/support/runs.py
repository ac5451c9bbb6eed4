"""Runs of the application in the test's own process."""

import contextlib
import gc
import logging
import os
import re
import runpy
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import pytest
from hydra._internal.hydra import Hydra

from strobe.errors import DataError
from strobe.records.run import read_summary
from support.interruptions import before_each_step, own_signals, raising
from support.places import ROOT

SHORT = (
    "trainer.accelerator=cpu",
    "trainer.max_epochs=1",
    "trainer.limit_train_batches=4",
    "trainer.limit_val_batches=1",
    "trainer.limit_test_batches=1",
    "trainer.num_sanity_val_steps=0",
    "trainer.enable_progress_bar=false",
    "data.batch_size=4",
    "profiler=none",
    "ceilings=false",
)
QUICK = (  # a tiny network besides, and nothing kept of it
    *SHORT,
    "model._target_=strobe.validation.injected_faults.SmallClassifier",
    "trainer.enable_checkpointing=false",
    "test=false",
)
CHECKPOINTS = "trainer.enable_checkpointing=true"
ALL = "checkpoint.save=resume"  # of them is kept, however short a run is


@dataclass(frozen=True)
class Ended:
    """How a run of the application ended."""

    code: int
    output: str  # standard output and error
    directory: Path

    @property
    def summary(self) -> dict[str, Any]:
        return read_summary(self.directory / "summary.json")


Train = Callable[..., Ended]


def trained(directory: Path, *overrides: str, defaults: Sequence[str] = (), data_root: Path) -> Ended:
    """Run ``train.py``, on the ten tiles a class below ``data_root`` unless overrides name other data."""
    flags = [override for override in overrides if override.startswith("-")]
    keys = {override.partition("=")[0] for override in overrides}
    given = [*flags, *(default for default in defaults if default.partition("=")[0] not in keys)]
    given += [f"hydra.run.dir={directory}", *(override for override in overrides if override not in flags)]
    if not any(override.startswith(("data=", "experiment=")) for override in overrides):
        given += [f"data.root={data_root}", "data.tiles_per_class=10"]
    return Ended(*run_here("train.py", *given), directory)


def broken_off(train: Train, monkeypatch: pytest.MonkeyPatch, *overrides: str, then: Sequence[str] = ()) -> Ended:
    """A run of three batches an epoch that failed within its second epoch, and was resumed to its end."""
    with monkeypatch.context() as patch:
        before_each_step(patch, lambda model, _: model.trainer.global_step == 4 and raising(DataError("the end")))
        half = train(*overrides, name="half")
    assert half.code == 1, half.output
    gc.collect()  # what the error's frames held
    rest = train(*overrides, *then, f"ckpt_path={half.directory}/checkpoints/last.ckpt", name="rest")
    assert rest.code == 0, rest.output
    return rest


def weights(directory: Path) -> dict[str, Any]:
    """What a run ended with."""
    import torch

    state: dict[str, Any] = torch.load(directory / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
    return state


def run_here(script: str, *arguments: str) -> tuple[int, str]:
    """Run a script of the repository in this process: its exit code, and what it and its children say.

    Hydra composes the configuration once, not also to learn its ``hydra.mode``, which only the command line gives here.
    """
    with (
        own_signals(),
        pytest.MonkeyPatch.context() as patch,
        tempfile.TemporaryFile("w+", buffering=1) as output,
        _into(output),
    ):
        patch.setattr(sys, "argv", [script, *arguments])
        patch.setattr(Hydra, "get_mode", lambda *_, **__: None)
        code = 0
        root = logging.getLogger()
        handlers, level = root.handlers[:], root.level
        try:
            runpy.run_path(str(ROOT / script), run_name="__main__")
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 1
            if isinstance(stop.code, str):
                print(stop.code, file=sys.stderr)
        finally:  # Hydra's handlers write to what is read here
            root.handlers[:] = handlers
            root.setLevel(level)
        output.seek(0)
        said = output.read()
    return code, re.sub(r"\x1b\[[0-9;]*m", "", said)


@contextlib.contextmanager
def _into(file: TextIO) -> Iterator[None]:
    """Let what this process and its children say go into a file."""
    kept = [os.dup(number) for number in (1, 2)]
    with contextlib.redirect_stdout(file), contextlib.redirect_stderr(file):
        for number in (1, 2):
            os.dup2(file.fileno(), number)
        try:
            yield
        finally:
            for number, own in zip((1, 2), kept, strict=True):
                os.dup2(own, number)
                os.close(own)
