"""Scripts that train, as somebody else has written them; a duel's command in this process; made-up trainings."""

import math
import os
import runpy
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any, Self

import numpy as np
import pytest

from strobe.duel import turning
from strobe.duel.__main__ import main
from strobe.duel.foreign import OUTPUT, Foreign
from strobe.duel.program import Program
from strobe.measure.timing import Block
from strobe.probe.changes import ASKED
from strobe.process.fork import Failure, print_into
from support.refusals import ended

# Whatever a script may have that writes, validates or ends training: ``train.py PACKAGE SECONDS``.
TRAINER = """
import sys, time
from importlib import import_module
import torch

name, pause = sys.argv[1], float(sys.argv[2])
lightning = import_module(name)
callbacks = import_module(name + ".callbacks")

class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        for _ in range(5):
            time.sleep(pause)
            yield torch.ones(4, 8)

class Model(lightning.LightningModule):
    def __init__(self, manual):
        super().__init__()
        self.layer = torch.nn.Linear(8, 2)
        self.automatic_optimization = not manual
    def training_step(self, batch, index):
        loss = self.layer(batch).square().mean()
        self.log("loss", loss)
        if not self.automatic_optimization:
            optimizer = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()
        return loss
    def on_train_batch_end(self, *_):
        self.logger.experiment.config.update(anything=1)
        self.trainer.save_checkpoint("last.ckpt")
        self.trainer.should_stop = True
    def validation_step(self, batch, _):
        raise RuntimeError("a turn is of training only")
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

if __name__ == "__main__":
    loader = torch.utils.data.DataLoader(Stream(), batch_size=None)
    ending = [callbacks.EarlyStopping("loss", patience=1), callbacks.ModelCheckpoint(every_n_train_steps=1)]
    trainer = lightning.Trainer(max_epochs=1, max_steps=2, max_time={"seconds": 1}, accelerator="cpu", callbacks=ending)
    trainer.logger.log_hyperparams({"pause": pause})
    trainer.logger.save()
    trainer.fit(Model(name == "pytorch_lightning"), loader, loader)
    raise RuntimeError("the first fit is the only one")
"""

# A loop of its own over watched batches, with an evaluation first and after each epoch: ``loop.py SECONDS``.
LOOP = """#!/usr/bin/env python3
import sys, time
import torch
import strobe

pause = float(sys.argv[1])
model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader(torch.ones(24, 8), batch_size=4)

def evaluate():
    for batch in strobe.watch(loader):
        with torch.no_grad():
            model(batch)

evaluate()
for epoch in range(2):
    for batch in strobe.watch(loader, optimizer=optimizer, directory="record"):
        optimizer.zero_grad()
        time.sleep(pause)
        model(batch).square().mean().backward()
        optimizer.step()
    evaluate()
"""

OF_A_STRANGER = (
    LOOP.replace("import strobe\n", "")
    .replace('strobe.watch(loader, optimizer=optimizer, directory="record")', "loader")
    .replace("strobe.watch(loader)", "loader")
)


class Made:
    """A training that is as fast as its command says: ``rate=1.5``, and whatever else it says of itself."""

    def __init__(self, command: Sequence[str], folder: Path, **_: Any) -> None:
        told = dict(word.split("=") for word in command if "=" in word)
        self.rate = float(told["rate"])
        self.random = Random(told["rate"])
        self.sized, self.in_steps = "unsized" not in command, False
        self.sources: list[Path] = []
        self.step_images = 8 if self.sized else None
        self.step_phases = {"forward": 0.001 / self.rate, "data_wait": 0.004} if "timed" in command else {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def start(self) -> Block | Failure:
        return Failure("there is no such rate") if self.rate < 0 else Block(8, 0.1, 1)

    def turn(self, seconds: float) -> Block | Failure:
        images = round(1e6 * self.rate * self.random.gauss(1, 0.02))
        return Block(images, 1.0, 10) if self.rate else Failure("it ended")


class Turns:
    """Turns of 1 s with normal noise, of which neighbours resemble each other."""

    def __init__(self, random: np.random.Generator, noise: float, correlated: float) -> None:
        self.random, self.noise, self.correlated = random, noise, correlated
        self.away = random.standard_normal()

    def turn(self, seconds: float) -> Block:
        fresh = math.sqrt(1 - self.correlated**2) * self.random.standard_normal()
        self.away = self.correlated * self.away + fresh
        return Block(round(1e6 * math.exp(self.noise * self.away)), 1.0, 10)


def become(pipe: Connection, program: Program, place: str, folder: str) -> None:
    """In the place of ``foreign._become``: the program runs in this process, which has imported torch and Lightning.

    What its training is taken over by, it imports anew.
    """
    print_into(Path(folder, OUTPUT))
    os.chdir(place)
    os.environ.update(program.variables)
    for name in ("lightning.pytorch", "pytorch_lightning", "strobe", *ASKED):
        sys.modules.pop(name, None)
    sys.path.insert(0, "")  # for the folder of the program
    sys.argv = [turning.__file__, str(pipe.fileno()), folder, *program.words]
    runpy.run_path(turning.__file__, run_name="__main__")


def said(capsys: pytest.CaptureFixture[str], *arguments: str, begin: Any = Foreign) -> tuple[int, str]:
    """The exit code of ``strobe duel ARGUMENTS``, and what it prints."""
    return ended(lambda: main(arguments, begin), capsys)


def files(folder: Path) -> list[str]:
    """What lies in a folder, without what Python caches."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if "__pycache__" not in path.parts)
