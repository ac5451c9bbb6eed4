"""Loops for ``strobe.watch``: a small model whose steps take known times, and the records that are left."""

import csv
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from strobe.attach import loops, place, tracking, training
from support.fitting import Standstill
from support.foreign import SLOW, STEP, Items, first, loaded

ALONE = {"own": 0.5, "others": 0.0, "stolen": 0.0, "idle": 0.5, "delayed": 0.0, "seconds": 1.0}
STEPS = 12


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, standstill: Standstill) -> Iterator[None]:
    """A machine on which nothing else runs, an empty working directory, and no record that stays open."""
    monkeypatch.setattr(training.contention, "between", lambda *_: dict(ALONE))
    monkeypatch.setattr(tracking, "time", standstill)
    monkeypatch.setattr(place, "_stopped", False)
    monkeypatch.chdir(tmp_path)
    yield
    loops.close()


def record(name: str = "here") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(name, "summary.json").read_text())
    return found


def rows(name: str = "here") -> list[dict[str, str]]:
    with Path(name, "steps.csv").open(newline="") as file:
        return list(csv.DictReader(file))


class Loop:
    """A model and its optimizers; a step computes for 1 ms, and `slow` is 4 ms slower."""

    def __init__(self, clock: Standstill, slow: str = "", seed: int = 7) -> None:
        torch.manual_seed(seed)
        self.clock, self.slow = clock, slow
        self.model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 1))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)
        self.optimizer.register_step_pre_hook(lambda *_: self.nap("optimizer"))

    def nap(self, what: str) -> None:
        if what in ("step", self.slow):
            self.clock.nap(STEP if what == "step" else SLOW)

    def loader(self, kind: Callable[[Items], Any] = loaded, **form: Any) -> Any:
        return kind(Items(lambda: self.nap("data"), **form))

    def loss(self, batch: Any) -> torch.Tensor:
        self.nap("before")
        self.nap("step")
        loss: torch.Tensor = self.model(first(batch)).square().mean()
        return loss

    def step(self, batch: Any) -> None:
        self.optimizer.zero_grad()
        self.loss(batch).backward()
        self.optimizer.step()
        self.nap("after")

    def train(self, watched: Any, epochs: int = 1) -> None:
        for _ in range(epochs):
            for batch in watched:
                self.step(batch)

    def accumulate(self, watched: Any) -> None:
        for number, batch in enumerate(watched, 1):
            self.loss(batch).backward()
            if number % 3 == 0:
                self.optimizer.step()
                self.optimizer.zero_grad()
            self.nap("after")

    def two(self, watched: Any) -> None:
        other = torch.optim.SGD(self.model.parameters(), lr=0.01)
        for batch in watched:
            for optimizer in (self.optimizer, other):
                optimizer.zero_grad()
                self.loss(batch).backward()
                optimizer.step()
            self.nap("after")

    def closure(self, watched: Any) -> None:
        optimizer = torch.optim.LBFGS(self.model.parameters(), max_iter=2)
        for batch in watched:

            def compute(batch: Any = batch) -> torch.Tensor:
                optimizer.zero_grad()
                loss = self.loss(batch)
                loss.backward()
                return loss

            optimizer.step(compute)

    def unseen(self, watched: Any) -> None:
        """Gradients that autograd gives to nobody's parameter."""
        for batch in watched:
            parameters = list(self.model.parameters())
            for parameter, gradient in zip(parameters, torch.autograd.grad(self.loss(batch), parameters), strict=True):
                parameter.grad = gradient
            self.optimizer.step()
