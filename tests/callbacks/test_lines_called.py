"""What a line of the user's own code calls: a library, part of a network, or Python alone."""

import copy
import io
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchmetrics
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Sampler, TensorDataset

from strobe.callbacks import frames, lines
from strobe.callbacks.columns import (
    BETWEEN,
    CALLING_BACKWARD,
    COLLATING,
    ENDING_WORKERS,
    JACOBIANS,
    LOGGING,
    PARAMETRIZING,
    RECOMPUTING,
    SAMPLING,
    SAVING,
)
from strobe.callbacks.lines import Lines
from strobe.callbacks.steps import StepRecorder
from support.fitting import SAMPLES, Model, fit, trainer_with
from support.looks import Records, Until, often
from support.steps import recorder

__all__ = ["often", "recorder"]

SELDOM = 0.02  # seconds between looks; shorter ones leave no time to wait for Python's lock as code does


def pause() -> None:
    time.sleep(0.02)


class Choosy(Sampler[int]):
    """Draws for far longer than its batch takes to make, by code that keeps Python's lock."""

    def __len__(self) -> int:
        return 640

    def __iter__(self) -> Iterator[int]:
        for number in range(len(self)):
            sorted(range(8000), key=lambda one: -one)
            yield number


def test_the_time_of_a_sampler_is_seen_in_it_and_told_from_making_batches(
    recorder: StepRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "EVERY", SELDOM)
    data = TensorDataset(torch.zeros(640, 4), torch.zeros(640, dtype=torch.long))
    trainer_with(recorder).fit(Model(), DataLoader(data, 4, sampler=Choosy()), DataLoader(data, 4))
    assert recorder.step_log is not None
    waits = [one for one in recorder.step_log.threads.lines() if one["phase"] == "data_wait"]
    assert waits[0]["library"] == SAMPLING, waits
    assert waits[0]["function"] in ("__iter__", "<lambda>")


def test_the_time_in_which_samples_become_a_batch_is_seen(recorder: StepRecorder) -> None:
    data = [([0.5] * 2000, 0) for _ in range(40)]  # each number of which becomes a tensor
    trainer = trainer_with(recorder, limit_train_batches=9)
    trainer.fit(Listening(), DataLoader(data, 4), DataLoader(data, 4))  # type: ignore[arg-type]
    assert recorder.step_log is not None
    waits = [one for one in recorder.step_log.threads.lines() if one["phase"] == "data_wait"]
    assert waits[0]["library"] == COLLATING


class Listening(Model):
    """Takes batches of lists."""

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        return super().training_step([torch.ones(4, 4), batch[1]])

    validation_step = training_step  # type: ignore[assignment]


class Orthogonal(Model):
    """Computes its weight anew whenever it is used."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = parametrizations.orthogonal(torch.nn.Linear(96, 96, bias=False))

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        turned = torch.ones(96)
        for _ in range(40):
            turned = self.turn(turned)
        return turned.sum()


def test_weights_that_are_computed_from_others_are_told_from_what_the_network_computes(recorder: StepRecorder) -> None:
    fit(recorder, model=Orthogonal(), max_epochs=8)
    assert recorder.step_log is not None
    forward = [one for one in recorder.step_log.threads.lines() if one["phase"] == "forward"]
    assert forward[0]["library"] == PARAMETRIZING


class Tangent(Model):
    """Computes a whole Jacobian for one product with it."""

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        images, weight = torch.ones(64, 96), torch.ones(96, 96, requires_grad=True)

        def turned(image: torch.Tensor) -> torch.Tensor:
            return (weight @ image).tanh()

        rows = torch.func.vmap(torch.func.jacrev(turned))(images).mean()
        rows = torch.func.vmap(torch.func.jacfwd(turned))(images).mean() + rows
        rows = torch.autograd.functional.jacobian(turned, images[0]).mean() + rows
        torch.func.vjp(turned, images[0])
        return super().training_step(batch) + rows


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # by torch, which vmap() imports more of
def test_whole_jacobians_are_told_from_what_the_network_computes(recorder: StepRecorder) -> None:
    functions = ("torch.func.vmap(torch.func.jacrev", "torch.func.vmap(torch.func.jacfwd")
    whole = {f"rows = {name}" for name in (*functions, "torch.autograd.functional.jacobian")}

    def told(records: Records) -> set[str]:
        jacobians = [one for one in records if one["library"] == JACOBIANS and one["function"] == "training_step"]
        return {str(one["code"]).partition("(turned")[0] for one in jacobians}

    fit(recorder, Until(recorder, lambda records: told(records) >= whole), model=Tangent(), max_epochs=200)
    assert recorder.step_log is not None
    assert told(recorder.step_log.threads.lines()) == whole


class Logging(Model):
    """Logs far more than it computes."""

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        for number in range(100):
            self.log(f"value {number}", torch.tensor(1.0), on_epoch=True)
        return super().training_step(batch)


def test_logging_is_told_from_computing_whatever_it_calls(recorder: StepRecorder) -> None:
    fit(recorder, model=Logging(), max_epochs=4)
    assert recorder.step_log is not None
    forward = [one for one in recorder.step_log.threads.lines() if one["phase"] == "forward"]
    source = Path(__file__).read_text().splitlines()
    logs = [one["library"] for one in forward if "self.log(" in source[one["line"] - 1]]
    assert LOGGING in logs
    assert "torchmetrics" not in logs  # which it uses


class Measuring(Model):
    """Calls what is no part of a network, and what is."""

    def __init__(self) -> None:
        super().__init__()
        self.score = torchmetrics.MeanMetric()
        self.wide = torch.nn.Linear(500, 500)
        self.kept: object = None

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        for _ in range(200):  # for longer than a thread may keep Python's lock
            self.score(torch.ones(9))
        for _ in range(100):
            self.kept = copy.deepcopy(dict(self.wide.named_parameters()))
        for _ in range(20):
            torch.save(self.wide.state_dict(), io.BytesIO())
        for _ in range(30):
            torch.nn.functional.dropout(self.wide(torch.ones(200, 500)), 0.1)
        return super().training_step(batch)


BESIDE = {"self.score": "torchmetrics", "self.kept = copy.deepcopy": "copy", "torch.save": SAVING}


def test_the_library_that_a_line_calls_is_told_if_it_is_no_part_of_the_network(recorder: StepRecorder) -> None:
    def all_seen(records: Records) -> bool:
        seen = {(str(one["code"]).partition("(")[0], one["library"]) for one in records}
        return {*BESIDE.items(), ("torch.nn.functional.dropout", "")} <= seen

    fit(recorder, Until(recorder, all_seen), model=Measuring(), max_epochs=200)
    assert recorder.step_log is not None
    source = Path(__file__).read_text().splitlines()
    called = {
        source[one["line"] - 1].strip().partition("(")[0]: one["library"]
        for one in recorder.step_log.threads.lines()
        if (one["phase"], one["function"]) == ("forward", "training_step") and one["library"]
    }
    assert called == BESIDE
    own = [one for one in recorder.step_log.threads.lines() if one["line"]]  # a batch that is put together has none
    networks = [one for one in own if "self.wide(" in source[one["line"] - 1]]
    assert networks
    assert {one["library"] for one in networks} == {""}


class Counting(Model):
    """Computes as much in Python as in torch."""

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        until = time.thread_time() + 0.05
        while time.thread_time() < until:
            self.counted = sum(number % 7 for number in range(1000))
        until = time.thread_time() + 0.05
        while time.thread_time() < until:
            self.product = torch.ones(300, 300) @ torch.ones(300, 300)
        return super().training_step(batch)


def told_apart(recorder: StepRecorder) -> float:
    """How many times as often Python's lock is held in the line of Python as in that of torch."""
    fit(recorder, model=Counting(), max_epochs=4)
    assert recorder.step_log is not None
    source = Path(__file__).read_text().splitlines()
    parts = dict.fromkeys(("self.counted", "self.product"), (0.0, 0.0))
    for one in recorder.step_log.threads.lines():
        if one["line"] and (name := source[one["line"] - 1].strip().partition(" ")[0]) in parts:
            share, python = parts[name]
            parts[name] = share + one["share"], python + one["python"]
    (own, locked), (torchs, unlocked) = parts.values()
    assert min(own, torchs) > 0.05, parts  # ten looks at least, on a machine that is busy, too
    return locked / own / max(unlocked / torchs, 1e-3)


def test_python_code_is_told_from_operations_of_torch(recorder: StepRecorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "EVERY", SELDOM)
    # 2 to 4 times: a few lines of a product are Python, too. A thread that lacks a core while it holds the lock hides
    # that, so a moment is waited for in which none does.
    assert any(told_apart(recorder) > 1.5 for _ in range(4))


class Sparing(Model):
    """Keeps no activations of a block of its own, nor of one that a library made."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = torch.nn.Sequential(torch.nn.Linear(9, 900), torch.nn.ReLU(), torch.nn.Linear(900, 9))

    def again(self, batch: torch.Tensor) -> torch.Tensor:
        return self.wide(batch)

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        rows = torch.ones(900, 9)
        both = [checkpoint(block, rows, use_reentrant=False).mean() for block in (self.again, self.wide) * 9]
        return super().training_step(batch) + sum(both)


class SlowGradient(torch.autograd.Function):
    @staticmethod
    def forward(_: Any, given: torch.Tensor) -> torch.Tensor:
        return given.clone()

    @staticmethod
    def backward(_: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        pause()
        return gradient


def test_a_line_that_only_begins_the_backward_pass_is_told_from_what_runs_in_it() -> None:
    def loop() -> None:
        weights, wide = torch.ones(3, requires_grad=True), torch.rand(900, 900, requires_grad=True)
        for _ in range(20):
            SlowGradient.apply(weights).sum().backward()
            (wide @ wide @ wide).sum().backward()

    seen = Lines(lambda: "backward")
    loop()
    seen.end()
    found = {(one["function"], one["library"]) for one in seen.looks.records()}
    assert {("pause", ""), ("loop", CALLING_BACKWARD)} <= found


def test_computing_activations_again_is_told_from_the_backward_pass(recorder: StepRecorder) -> None:
    both = {("backward", "again"), ("backward", None)}

    def told(records: Records) -> set[tuple[str, str]]:
        return {(one["phase"], one["function"]) for one in records if one["library"] == RECOMPUTING}

    fit(recorder, Until(recorder, lambda records: told(records) >= both), model=Sparing(), min_epochs=3, max_epochs=60)
    assert recorder.step_log is not None
    found = [one for one in recorder.step_log.threads.lines() if one["library"] == RECOMPUTING]
    assert told(found) == both
    assert 0.05 < sum(one["share"] for one in found) < 1


def test_a_librarys_function_that_has_no_frame_is_told_by_the_name_that_calls_it() -> None:
    numbers, values = deque(range(20000)), torch.rand(500, 500)

    def draw() -> None:
        for _ in range(20):
            np.array(
                numbers,
            )
        for _ in range(20):
            torch.mm(values, values)
        for _ in range(60):  # each is quick
            sorted(numbers)

    seen = Lines(lambda: "forward")
    for _ in range(8):
        draw()
    seen.end()
    called = {(one["code"], one["library"]) for one in seen.looks.records() if one["function"] == "draw"}
    assert {("np.array(", "numpy"), ("torch.mm(values, values)", ""), ("sorted(numbers)", "")} <= called
    assert {library for _, library in called} == {"numpy", ""}


def test_a_line_of_a_library_is_told_without_its_text() -> None:
    """It is the first one of a function, and may be that of a decorator."""
    file = str(np.__file__)
    assert frames.located((file, 1, "svd")) == {"file": file, "line": 1, "function": "svd", "code": None}
    assert frames.located((__file__, 1, "here"))["code"] == str(__doc__).join(['"""'] * 2)


def test_the_time_in_which_a_loader_ends_its_workers_is_told_from_waiting_for_them() -> None:
    seen = Lines(lambda: "data_wait")
    for _ in range(6):
        for _ in DataLoader(SAMPLES, 4, num_workers=1):
            pass
    seen.end()
    ended = [one for one in seen.looks.records() if one["library"] == ENDING_WORKERS]
    assert {one["phase"] for one in ended} == {BETWEEN}
    assert any(one["phase"] == "data_wait" for one in seen.looks.records())
