"""Following the operations of a training: what that leaves as it is, and when it does not happen."""

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

from strobe.callbacks import dataflow, rows
from strobe.callbacks.dataflow import STEPS, Dataflow
from strobe.callbacks.steps import StepRecorder
from strobe.callbacks.wasted import KINDS, wasted
from support.fitting import Model, fit
from support.followed import Networks, found, kinds
from support.steps import recorder

__all__ = ["recorder"]


@pytest.fixture(autouse=True)
def no_mode_is_left() -> Iterator[None]:
    yield
    assert not _get_current_dispatch_mode_stack()


@pytest.fixture
def networks() -> Networks:
    return Networks()


def test_random_numbers_and_results_are_those_of_a_training_that_is_not_followed() -> None:
    def weights(steps: int) -> list[Tensor]:
        networks = Networks(dropout=0.5)

        def step() -> None:
            networks.train(networks.net(networks.images).sum())

        found(step, steps=steps)
        for _ in range(STEPS - steps):
            step()
        return [*networks.net.parameters(), torch.get_rng_state()]

    assert all(map(torch.equal, weights(0), weights(STEPS)))


def test_a_mode_that_a_script_enters_meanwhile_stays(networks: Networks) -> None:
    class Counting(TorchDispatchMode):
        count = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.count += 1
            return func(*args, **(kwargs or {}))

    flow, counting = Dataflow(lambda: "forward"), Counting()
    flow.begin()
    with counting:
        for _ in range(STEPS):
            networks.train(networks.net(networks.images).sum())
            flow.end_step({})
        before = len(flow.operations)
        networks.images.sum()
    assert counting.count >= before == len(flow.operations) > 0
    flow.remove()


def test_an_operation_that_fails_fails_as_without(networks: Networks) -> None:
    flow = Dataflow(lambda: "forward")
    flow.begin()
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        networks.net(torch.randn(3, 3))
    flow.remove()
    assert flow.failure is None


def test_an_own_error_is_kept_and_nothing_is_told(networks: Networks, monkeypatch: pytest.MonkeyPatch) -> None:
    flow = Dataflow(lambda: "forward")
    monkeypatch.setattr(flow, "_sources", lambda *_: 1 / 0)
    flow.begin()
    for _ in range(STEPS):
        networks.train(networks.net(networks.images).sum())
        flow.end_step({})
    flow.remove()
    assert isinstance(flow.failure, ZeroDivisionError)
    assert wasted(flow) == dict.fromkeys(KINDS)


class Twice(Model):
    def training_step(self, batch: list[Tensor]) -> Tensor:
        self.modes.append(len(_get_current_dispatch_mode_stack()))
        return super().training_step(batch) + super().training_step(batch)

    modes: list[int]


def test_an_error_of_the_conclusions_is_kept_from_the_training(
    recorder: StepRecorder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(rows, "wasted", lambda *_: 1 / 0)
    fit(recorder, max_epochs=1)
    assert recorder.step_log is not None
    assert recorder.step_log.meanwhile()["constant"] is None
    assert "No operations were followed" in caplog.text


def test_too_many_operations_are_followed_no_longer(recorder: StepRecorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataflow, "MOST", 5)
    model = Twice()
    model.modes = []
    fit(recorder, model=model, max_epochs=1)
    assert model.modes[:3] == [0, 1, 0]
    assert not any(model.modes[3:])


def _modes(found: Any) -> None:
    found.put(len(_get_current_dispatch_mode_stack()))


def test_a_process_that_is_forked_meanwhile_is_not_followed() -> None:
    context = multiprocessing.get_context("fork")
    flow, told = Dataflow(lambda: "forward"), context.SimpleQueue()
    flow.begin()
    child = context.Process(target=_modes, args=(told,))
    child.start()
    child.join()
    flow.remove()
    assert told.get() == 0


def test_a_line_that_only_makes_a_view_calls_an_operation() -> None:
    flow, values = Dataflow(lambda: "forward"), torch.zeros(4)
    flow.begin()
    values.view(2, 2)
    flow.remove()
    assert {Path(file).read_text().splitlines()[line - 1].strip() for file, line in flow.lines} == {"values.view(2, 2)"}
    assert not flow.operations


def test_a_trainer_shows_the_second_and_third_step(recorder: StepRecorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strobe.callbacks.wasted.LEAST", 0.0)  # beside others, code between is far longer
    model = Twice()
    model.modes = []
    fit(recorder, model=model, max_epochs=1)
    assert model.modes[:4] == [0, 1, 1, 0]
    assert not any(model.modes[4:])
    assert recorder.step_log is not None
    told = recorder.step_log.meanwhile()["repeated"]
    assert told["calls"] == 2
    assert 0 < told["forward"] <= 1


@pytest.mark.parametrize("records", [False, True])
def test_what_a_profiler_of_torchs_is_for_is_not_followed(recorder: StepRecorder, records: bool) -> None:
    """Also where its steps are still to come: it would show what follows them."""
    model = Twice()
    model.modes = []
    profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
    with profiler if records else nullcontext():
        fit(recorder, model=model, max_epochs=1)
    assert model.modes
    assert not any(model.modes)


def test_what_is_compiled_is_not_followed(recorder: StepRecorder) -> None:
    class Compiled(Twice):
        def training_step(self, batch: list[Tensor]) -> Tensor:
            self.modes.append(len(_get_current_dispatch_mode_stack()))
            loss: Tensor = self.compiled(batch)
            return loss

    model = Compiled()
    model.modes = []
    model.compiled = torch.compile(lambda batch: Model.training_step(model, batch), backend="eager")
    fit(recorder, model=model, max_epochs=1)
    assert model.modes
    assert not any(model.modes)
    assert recorder.step_log is not None
    assert recorder.step_log.meanwhile()["repeated"] is None


def of_embeddings() -> tuple[nn.Module, Callable[[nn.Module], Tensor]]:
    return nn.Embedding(50, 4, sparse=True), lambda net: net(torch.randint(0, 50, (9,)))


def of_nested() -> tuple[nn.Module, Callable[[nn.Module], Tensor]]:
    def output(net: nn.Module) -> Tensor:
        nested = torch.nested.nested_tensor([torch.randn(2, 4), torch.randn(3, 4)], layout=torch.jagged)
        values: Tensor = net(nested).values()
        return values

    return nn.Linear(4, 4), output


def of_inner_gradients() -> tuple[nn.Module, Callable[[nn.Module], Tensor]]:
    def output(net: nn.Module) -> Tensor:
        images, weights = torch.randn(8, 4), dict(net.named_parameters())

        def loss(given: dict[str, Tensor]) -> Tensor:
            inner: Tensor = torch.func.functional_call(net, given, (images,)).square().mean()
            return inner

        steps = torch.func.grad(loss)(weights)
        return loss({name: one - 0.1 * steps[name] for name, one in weights.items()})

    return nn.Linear(4, 4), output


def of_meta() -> tuple[nn.Module, Callable[[nn.Module], Tensor]]:
    empty = torch.empty(3, device="meta")
    return nn.Linear(4, 4), lambda net: net(torch.randn(2, 4)) + 0 * (empty + 1).numel()


@pytest.mark.parametrize("made", [of_embeddings, of_nested, of_inner_gradients, of_meta])
def test_tensors_of_other_kinds_are_passed_on(made: Callable[[], Any]) -> None:
    net, output = made()
    optimizer = SGD(net.parameters(), lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        output(net).square().mean().backward()
        optimizer.step()

    assert not kinds(found(step)) - {"unused_backward", "constant"}  # the places in a nested tensor do not change


def test_the_costliest_operations_of_each_phase_are_told() -> None:
    phase, values = ["forward"], torch.randn(500, 500)
    flow = Dataflow(lambda: phase[0])
    flow.begin()
    for _ in range(STEPS):
        phase[0] = "forward"
        _ = (values @ values).abs()
        phase[0] = "callbacks/Mine"
        values.exp()
        flow.end_step({"forward": 1.0, "callbacks/Mine": 1.0})
    told = flow.costliest()
    assert [(name, list(operations)) for name, operations in told.items()] == [("forward", ["mm", "abs"])]
    assert 0 < sum(told["forward"].values()) < 1
