"""Which modules a step calls again with the same input, and with mostly zeros."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from strobe.callbacks.gradients import LEARN
from strobe.callbacks.steps import StepRecorder
from support.fitting import Model, fit
from support.steps import recorder

__all__ = ["recorder"]


class Scaling(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, images: Tensor, by: float = 1.0) -> Tensor:
        return images * self.weight * by


class Calling(Model):
    """Its step is another function, of the module and its images."""

    def __init__(self, step: Callable[[Any, Tensor], Tensor], *, dropout: float = 0.0) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Dropout(dropout), nn.Linear(64, 2))
        self.scaling = Scaling()
        self.other = nn.ModuleDict({"head": nn.Linear(4, 2)})
        self.step = step

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.net(images)
        return logits

    def training_step(self, batch: list[Tensor]) -> Tensor:
        return self.step(self, batch[0])


def found(recorder: StepRecorder, step: Callable[[Any, Tensor], Tensor], **given: Any) -> dict[str, Any] | None:
    model = Calling(step, **given)
    fit(recorder, model=model, max_epochs=1)
    hooks = [hook for one in model.modules() for hook in (*one._forward_hooks, *one._forward_pre_hooks)]
    assert not hooks, "hooks are left"
    assert recorder.step_log is not None
    told: dict[str, Any] | None = recorder.step_log.meanwhile()["repeated"]
    return told


class Propagating(Model):
    def __init__(self, adjacency: Tensor) -> None:
        super().__init__()
        self.adjacency, self.scaling = adjacency, Scaling()

    def training_step(self, batch: list[Tensor]) -> Tensor:
        return super().training_step(batch) + 0 * self.scaling(self.adjacency).sum()


SPARSE = torch.eye(400)


@pytest.mark.parametrize(
    ("adjacency", "told"),
    [
        (SPARSE, {"name": "Scaling", "shape": [400, 400], "share": 1 - 1 / 400}),
        (
            torch.eye(4000)[:, :500],
            {"name": "Scaling", "shape": [4000, 500], "share": 1 - 250 / 1e6},
        ),  # of every other row
        (torch.rand(400, 400).relu(), None),
        (SPARSE.to_sparse().coalesce(), None),
        (torch.eye(100), None),  # too small to cost anything
    ],
)
def test_a_large_input_of_mostly_zeros_is_told(
    adjacency: Tensor, told: dict[str, Any] | None, recorder: StepRecorder
) -> None:
    model = Propagating(adjacency)
    fit(recorder, model=model, max_epochs=1)
    assert recorder.step_log is not None
    found = recorder.step_log.meanwhile()["sparse"]
    assert (found and {**found, "share": pytest.approx(found["share"])}) == told
    assert not model.scaling._forward_pre_hooks


def twice(model: Any, images: Tensor) -> Tensor:
    return (model(images).sum() + model(images).square().sum()) / 2


def for_a_metric(model: Any, images: Tensor) -> Tensor:
    loss: Tensor = model.net(images).sum()
    with torch.no_grad():
        model.accuracy = (model.net(images) > 0).float().mean()
    return loss


def of_views(model: Any, images: Tensor) -> Tensor:
    loss: Tensor = model.other["head"](images).sum() + model.other["head"](images.detach()[:]).square().sum()
    return loss


def test_a_module_that_is_called_twice_is_told_once_though_it_calls_another(recorder: StepRecorder) -> None:
    told = found(recorder, twice)
    assert told is not None
    assert (told["name"], told["calls"]) == ("Calling", 2)
    assert 0 < told["forward"] < 1
    assert 0 < told["backward"] < 1


def test_a_call_that_trains_nothing_has_no_share_of_the_backward_pass(recorder: StepRecorder) -> None:
    told = found(recorder, for_a_metric)
    assert told is not None
    assert (told["name"], told["calls"], told["backward"]) == ("Sequential", 2, 0.0)
    assert 0 < told["forward"] < 1


def test_views_of_one_memory_are_one_input_and_modules_in_a_dictionary_are_seen(recorder: StepRecorder) -> None:
    told = found(recorder, of_views)
    assert told is not None
    assert told["name"] == "Linear"


def changed_between(model: Any, images: Tensor) -> Tensor:
    first = model.net(images).sum()
    with torch.no_grad():
        model.net[0].weight.mul_(1.0)
    loss: Tensor = model.net(images).sum() + first.detach()
    return loss


def in_place(model: Any, images: Tensor) -> Tensor:
    first = model.net(images).sum().detach()
    loss: Tensor = model.net(images.clone().add_(1.0)).sum() + first
    return loss


def other_mode(model: Any, images: Tensor) -> Tensor:
    model.net.eval()
    with torch.no_grad():
        wanted = model.net(images)
    model.net.train()
    loss: Tensor = (model.net(images) - wanted).square().sum()
    return loss


def other_arguments(model: Any, images: Tensor) -> Tensor:
    loss: Tensor = model.scaling(images, by=1.0).sum() + model.scaling(images, by=2.0).sum()
    return loss + model.scaling(images, 3.0).sum() + model.scaling(images, 4.0).sum()


def again_in_the_backward_pass(model: Any, images: Tensor) -> Tensor:
    loss: Tensor = checkpoint(model.net, images.requires_grad_(), use_reentrant=False).sum()
    return loss


@pytest.mark.parametrize("step", [changed_between, in_place, other_mode, other_arguments, again_in_the_backward_pass])
def test_what_is_not_the_same_is_not_told(recorder: StepRecorder, step: Callable[[Any, Tensor], Tensor]) -> None:
    assert found(recorder, step) is None


def named(model: Any, images: Tensor) -> Tensor:
    loss: Tensor = model.scaling(images=images, by=2.0).sum() + model.scaling(images=images, by=2.0).square().sum()
    return loss


def test_arguments_by_name_count(recorder: StepRecorder) -> None:
    told = found(recorder, named)
    assert told is not None
    assert told["name"] == "Scaling"


def beside_dropout(model: Any, images: Tensor) -> Tensor:
    loss: Tensor = model(images).sum() + model.scaling(images).sum() + model.scaling(images).sum()
    return loss + model(images).sum()


def test_what_draws_nothing_is_told_beside_dropout(recorder: StepRecorder) -> None:
    told = found(recorder, beside_dropout, dropout=0.5)
    assert told is not None
    assert (told["name"], told["calls"]) == ("Scaling", 2)


def test_dropout_differs_from_call_to_call(recorder: StepRecorder) -> None:
    assert found(recorder, lambda model, images: model.net(images).sum() + model.net(images).sum(), dropout=0.5) is None


def test_only_the_first_steps_are_looked_at(recorder: StepRecorder) -> None:
    hooked: list[int] = []

    def step(model: Any, images: Tensor) -> Tensor:
        hooked.append(len(model.net._forward_hooks))
        return model.net(images).sum()  # type: ignore[no-any-return]

    found(recorder, step)
    assert hooked == [1] * LEARN + [0] * (len(hooked) - LEARN)
    assert len(hooked) > LEARN
