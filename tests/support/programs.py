"""The scripts of tests/attach/programs, run as they are in this process: Lightning finds Strobe by its entry points."""

import json
import os
import random
import re
import runpy
import threading
import time
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lightning.pytorch.callbacks
import numpy as np
import pytest
import torch

from strobe.attach import callback
from support.entry_points import groups, write
from support.places import ROOT

TIMER = "lightning.pytorch.callbacks.timer"
ALONE = {"own": 0.5, "others": 0.0, "stolen": 0.0, "idle": 0.5, "delayed": 0.0, "seconds": 1.0}
SLEEP = time.sleep
FOLDER = ROOT / "tests" / "attach" / "programs"


class Witness(lightning.pytorch.callbacks.Callback):
    """Keeps what each fit ends with."""

    states: list[Any] = []  # noqa: RUF012  # of one script, which makes its Trainers itself

    def on_exception(self, trainer: Any, module: Any, *_: Any, **__: Any) -> None:
        metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
        weights, optimizers = module.state_dict(), [one.state_dict() for one in trainer.optimizers]
        drawn = (torch.get_rng_state(), random.getstate(), np.random.get_state()[1:])
        self.states.append(deepcopy([trainer.global_step, weights, optimizers, drawn, metrics]))

    teardown = on_exception


def witnesses() -> list[Any]:
    """What Lightning asks for."""
    return [Witness()]


@dataclass(frozen=True)
class Script:
    """A script and how it is called; its first lines say what is slow in it, and what may be found first."""

    path: Path
    arguments: tuple[str, ...] = ()
    causes: tuple[tuple[str, str, str], ...] = field(default=())  # cause, subject, words of the verdict
    ends: str = ""  # with this error
    slow: bool = False

    def __str__(self) -> str:
        return " ".join([self.path.stem, *self.arguments[-1:]]) if len(self.arguments) == 1 else self.path.stem


def scripts() -> list[Script]:
    """All, with each line of arguments that they name."""
    found = []
    for path in sorted(FOLDER.glob("*.py")):
        lines = re.match(r"(?:#.*\n)+", path.read_text())
        said = re.sub(r"\n# ?", " ", lines[0] if lines else "") + " "
        named = re.search(r"Cause: ([^.]+)\.\s", said)
        assert named, f"{path.name} names no cause"
        causes = [re.fullmatch(r"(\w+)(?: (\w+))?(?: \((.*)\))?", one) for one in named[1].split(" or ")]
        ends, given = re.search(r"Ends with (\w+)\.", said), re.search(r"Arguments: (.*?)\.\s", said)
        for arguments in given[1].split(" | ") if given else [""]:
            told = tuple((one[1], one[2] or "", one[3] or "") for one in causes if one)
            found.append(Script(path, tuple(arguments.split()), told, ends[1] if ends else "", "Slow." in said))
    return found


def install(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This tree's entry points and those of the witness, as pip would write them."""
    write(site, "lightning_strobe", groups())
    write(site, "witness", {group: {"witness": f"{__name__}:witnesses"} for group in groups()})
    monkeypatch.syspath_prepend(site)


class OwnTime:
    """A clock of what this thread computes and sleeps, however busy the machine is; nobody waits for a sleep."""

    def __init__(self) -> None:
        self.slept = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def perf_counter_ns(self) -> int:
        return time.thread_time_ns() + self.slept

    def monotonic(self) -> float:
        return self.perf_counter_ns() / 1e9

    def sleep(self, seconds: float) -> None:
        if threading.current_thread() is threading.main_thread():
            self.slept += round(seconds * 1e9)
        else:
            SLEEP(seconds)


def run(script: Script, folder: Path, monkeypatch: pytest.MonkeyPatch, *, watched: bool) -> list[Any]:
    """What each fit ended with. A script with workers has the machine's time, others have their own."""
    folder.mkdir()
    clock, own = OwnTime(), "num_workers" not in script.path.read_text()
    with monkeypatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("STROBE", str(int(watched)))
        patch.setenv("STROBE_OUT", "here")
        patch.setattr("sys.argv", [script.path.name, *script.arguments])
        if own:
            patch.setattr(callback.contention, "between", lambda *_: dict(ALONE))
            patch.setattr(time, "sleep", clock.sleep)
            for module in ("strobe.callbacks.clock", "strobe.callbacks.rows", "strobe.callbacks.steps", TIMER):
                patch.setattr(f"{module}.time", clock)
        elif not watched:
            patch.setattr(time, "sleep", lambda _: None)
        Witness.states = []
        torch.manual_seed(7)
        random.seed(7)
        np.random.seed(7)
        threads = torch.get_num_threads()
        try:
            runpy.run_path(os.fspath(script.path), run_name="__main__")
            ended = ""
        except BaseException as error:
            ended = type(error).__name__
            if ended != script.ends:
                raise
        finally:
            torch.set_num_threads(threads)
        assert ended == script.ends
    return Witness.states


def records(folder: Path) -> list[dict[str, Any]]:
    """Those of each fit."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("here*/summary.json"))]
