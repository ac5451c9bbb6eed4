"""A step's phases in its trace: named, side by side, in the right places, and as the callback measured them."""

import csv
import time
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback
from lightning.pytorch.plugins import MixedPrecision

from strobe.callbacks.columns import PHASES
from strobe.callbacks.steps import StepRecorder
from strobe.callbacks.trace import TraceProfiler
from strobe.callbacks.tracefile import read_trace
from support.fitting import SOME_VALIDATION, Model, Stream, fit
from support.readers import crossing
from support.traces import TWO, Event, ends, read

NAMES = ("fetch", "transfer", "forward", "backward", "optimizer", "callbacks")


class Manual(Model):
    """Two optimizers, stepped by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: list[torch.Tensor]) -> None:
        loss = super().training_step(batch)
        first, second = self.optimizers()
        first.zero_grad()
        self.manual_backward(loss)
        first.step()
        second.step()

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        return [torch.optim.SGD(self.layer.parameters(), lr=0.01), torch.optim.Adam(self.layer.parameters())]


class ByHand(Manual):
    """Steps its optimizers without Lightning's knowledge."""

    def optimizers(self, use_pl_optimizer: bool = False) -> Any:
        return super().optimizers(use_pl_optimizer=False)


class Busy(Callback):
    """Does something in hooks that Lightning calls within a phase."""

    def on_before_zero_grad(self, *_: Any) -> None:
        torch.ones(3)

    def on_after_backward(self, *_: Any) -> None:
        torch.ones(3)


def phases(path: Path) -> list[Event]:
    return sorted((event for event in read(path)[1] if event["name"] in NAMES), key=lambda event: event["ts"])


KINDS: dict[str, tuple[type[Model], dict[str, Any]]] = {
    "automatic": (Model, {}),
    "manual": (Manual, {}),
    "by hand": (ByHand, {}),
    "scaler": (Model, {}),
    "accumulation": (Model, {"accumulate_grad_batches": 2}),
    "clipping": (Model, {"gradient_clip_val": 0.5}),
    "validation": (Model, SOME_VALIDATION | {"max_epochs": 2}),
    "no length": (Model, {"data": Stream()}),
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], TraceProfiler]:
    """A recording of each kind of training, made when it is first asked for."""

    @cache
    def record(kind: str) -> TraceProfiler:
        model, settings = KINDS[kind]
        profiler = TraceProfiler(tmp_path_factory.mktemp("traces"), active=8 if kind == "validation" else 4)
        fit(profiler, Busy(), model=model(), **settings | scaled(kind == "scaler"))
        return profiler

    return record


def scaled(wanted: bool) -> dict[str, Any]:
    return {"plugins": MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu"))} if wanted else {}


@pytest.mark.parametrize("kind", KINDS)
def test_phases_lie_side_by_side_within_their_steps(recorded: Callable[[str], TraceProfiler], kind: str) -> None:
    (path,) = recorded(kind).traces
    steps, _ = read(path)
    found = phases(path)
    assert all(before["ts"] + before["dur"] <= after["ts"] for before, after in pairwise(found))
    assert {event["tid"] for event in found} == {steps[0]["tid"]}
    for step in steps:
        inside = {event["name"] for event in found if step["ts"] <= event["ts"] and ends(event) <= ends(step)}
        assert set(NAMES) - ({"optimizer"} if kind == "accumulation" else set()) <= inside
    assert not crossing(read_trace(path)["traceEvents"])


class Slow(Callback):
    """Naps in a hook that Lightning calls between the backward pass and the update."""

    def on_before_optimizer_step(self, *_: Any) -> None:
        time.sleep(0.02)


class SlowModel(Model):
    def on_before_optimizer_step(self, *_: Any) -> None:
        time.sleep(0.03)

    def configure_gradient_clipping(self, *_: Any, **__: Any) -> None:
        time.sleep(0.04)


@pytest.mark.parametrize("scaler", [False, True])
def test_what_comes_before_an_update_is_charged_as_in_steps_csv(tmp_path: Path, scaler: bool) -> None:
    profiler, recorder = TraceProfiler(tmp_path / "traces", **TWO), StepRecorder(tmp_path / "steps.csv")
    fit(profiler, Slow(), recorder, model=SlowModel(), **scaled(scaler))
    with recorder.path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    apart: list[dict[str, float]] = []
    for step in profiler.steps:
        measured = dict.fromkeys(PHASES, 0.0)
        for phase in step.phases:
            measured[phase.name] += (phase.end - phase.start) / 1e9
        assert measured["callbacks"] >= 0.09
        apart.append({name: abs(float(rows[step.number][name]) - measured[name]) for name in PHASES})
    for name in ("optimizer", "forward", "backward", "data_wait"):  # callbacks: the profiler itself is one
        assert min(each[name] for each in apart) < 0.012  # a nap, which is in each step, is 0.03 at least


@pytest.mark.parametrize("kind", ["automatic", "manual", "by hand"])
def test_what_a_phase_does_lies_in_it(recorded: Callable[[str], TraceProfiler], kind: str) -> None:
    (path,) = recorded(kind).traces
    found, ranges = phases(path), read(path)[1]

    def around(pattern: str) -> set[str]:
        inner = [event for event in ranges if event["name"].startswith(pattern)]
        assert inner
        return {
            (["other"] + [p["name"] for p in found if p["ts"] <= event["ts"] and ends(event) <= ends(p)])[-1]
            for event in inner
        }

    assert around("enumerate(DataLoader)") == {"fetch"}
    assert around("Optimizer.step#") <= {"optimizer", "other"}
    if kind == "automatic":
        assert around("batch ") == {"forward"}
        assert around("aten::linear") == {"forward"}
    steps = [event for event in ranges if event["name"].startswith("Optimizer.step#")]
    backward = [event for event in ranges if "autograd::engine::evaluate_function" in event["name"]]
    assert backward
    for step in steps:
        assert not [event for event in backward if step["ts"] <= event["ts"] < ends(step)]
        assert not [event for event in found if event["name"] == "forward" and step["ts"] <= event["ts"] < ends(step)]


def test_validation_lies_between_steps(recorded: Callable[[str], TraceProfiler]) -> None:
    steps, ranges = read(recorded("validation").traces[0])
    validations = [event for event in ranges if event["name"] == "validation"]
    assert len(validations) == 4
    for event in validations:
        assert not [step for step in steps if step["ts"] < ends(event) and event["ts"] < ends(step)]


def test_the_callback_measures_what_the_trace_shows(recorded: Callable[[str], TraceProfiler]) -> None:
    profiler = recorded("validation")
    steps, _ = read(profiler.traces[0])
    shown = phases(profiler.traces[0])
    assert [step.number for step in profiler.steps] == list(range(2, 10))
    both = list(zip(profiler.steps, steps, strict=True))
    apart = [abs((step.end - step.start) / 1e3 - event["dur"]) for step, event in both]
    assert median(apart) < 500  # microseconds; the median, as a busy machine may stop between two clocks
    for step, event in both:
        assert {interval.name for interval in step.phases} <= set(PHASES)
        in_trace = [e["name"] for e in shown if event["ts"] <= e["ts"] and ends(e) <= ends(event)]
        assert [i.name.replace("data_wait", "fetch") for i in step.phases] == in_trace


def test_a_phase_that_fails_ends(tmp_path: Path) -> None:
    profiler = TraceProfiler(tmp_path, active=9)
    with pytest.raises(ArithmeticError):
        fit(profiler, model=Model(3))
    steps, _ = read(profiler.traces[0])
    forward = [event for event in phases(profiler.traces[0]) if event["name"] == "forward"]
    assert len(forward) == len(steps) == 2
    assert ends(forward[-1]) <= ends(steps[-1])


def test_nothing_is_left_installed(tmp_path: Path) -> None:
    from torch.optim import optimizer

    profiler = TraceProfiler(tmp_path, **TWO)
    before = dict(optimizer._global_optimizer_pre_hooks)
    trainer = fit(profiler)
    assert type(trainer.profiler).__name__ == "PassThroughProfiler"
    assert dict(optimizer._global_optimizer_pre_hooks) == before
