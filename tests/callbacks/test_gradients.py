"""What a backward pass computes after the last gradient that an update uses, of a loop's own and of Lightning's."""

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from types import SimpleNamespace

import pytest
import torch
from torch.nn import Linear, Module, Sequential
from torch.nn.functional import relu
from torch.optim import SGD, Optimizer

from strobe.callbacks import gradients
from strobe.callbacks.clock import Clock
from strobe.callbacks.gradients import HookedGradients
from strobe.callbacks.loop import LoopPhases

NOISE = torch.ones(2, 4)


@pytest.fixture(autouse=True)
def ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each event of a backward pass takes a second: its first gradient, each gradient, its end."""
    passed = count()
    monkeypatch.setattr(gradients, "time", SimpleNamespace(perf_counter=lambda: float(next(passed))))


class OfLoop:
    """As a loop of one's own is followed."""

    def __init__(self, _: Sequence[Optimizer]) -> None:
        self.phases = LoopPhases(Clock(), None, lambda _: True)
        self.phases.watch_updates()
        self.gradients = self.phases.gradients

    def end_step(self) -> None:
        self.phases.end_step()
        assert self.phases.failure is None

    def remove(self) -> None:
        self.phases.forget()


class OfTrainer:
    """As a Trainer's is."""

    def __init__(self, optimizers: Sequence[Optimizer]) -> None:
        self.gradients = HookedGradients(optimizers, Clock())

    def end_step(self) -> None:
        self.gradients.end_step()
        assert self.gradients.failure is None

    def remove(self) -> None:
        self.gradients.remove()


Unused = Callable[[Callable[[], None], Sequence[Optimizer]], float | None]


@pytest.fixture(params=[OfLoop, OfTrainer])
def unused(request: pytest.FixtureRequest) -> Iterator[Unused]:
    """The share of six such steps' backward passes, of which the first three are looked at."""
    followers: list[OfLoop | OfTrainer] = []

    def share(step: Callable[[], None], optimizers: Sequence[Optimizer]) -> float | None:
        followers.append(follower := request.param(optimizers))
        for _ in range(6):
            step()
            follower.end_step()
        found: float | None = follower.gradients.unused()
        return found

    yield share
    for follower in followers:
        follower.remove()


class Networks:
    """A generator of six parameters and a discriminator of two, with their optimizers."""

    def __init__(self) -> None:
        self.generator = Sequential(*[Linear(4, 4) for _ in range(3)])
        self.discriminator = Linear(4, 1)
        self.both = self.ours, self.theirs = self.optimizer(self.generator), self.optimizer(self.discriminator)

    @staticmethod
    def optimizer(module: Module) -> Optimizer:
        return SGD(module.parameters(), lr=0.1)

    def judged(self, images: torch.Tensor) -> torch.Tensor:
        return relu(self.discriminator(images)).mean()

    def play(self, images: Callable[[torch.Tensor], torch.Tensor]) -> None:
        fake = self.generator(NOISE)
        self.theirs.zero_grad()
        self.judged(images(fake)).backward(retain_graph=True)
        self.theirs.step()
        self.ours.zero_grad()
        self.generator(NOISE).mean().backward()
        self.ours.step()


def test_a_pass_that_goes_on_through_another_network_is_seen(unused: Unused) -> None:
    networks = Networks()
    assert unused(lambda: networks.play(lambda fake: fake), networks.both) == (6 + 2) / 16  # 6 gradients, and two ends


def test_where_all_are_used_nothing_is_left(unused: Unused) -> None:
    networks = Networks()
    assert unused(lambda: networks.play(torch.detach), networks.both) == 2 / 10  # two ends


def test_gradients_that_are_added_up_are_used(unused: Unused) -> None:
    network = Sequential(Linear(4, 4), Linear(4, 4), Linear(4, 4), Linear(4, 1))
    optimizer = Networks.optimizer(network)

    def step() -> None:
        optimizer.zero_grad()
        for _ in range(3):
            network(NOISE).mean().backward()
        optimizer.step()

    share = unused(step, [optimizer])
    assert share is not None
    assert share < 0.2


def test_one_pass_for_two_optimizers_is_used_by_both(unused: Unused) -> None:
    networks = Networks()

    def step() -> None:
        for one in networks.both:
            one.zero_grad()
        networks.judged(networks.generator(NOISE)).backward()
        networks.theirs.step()
        networks.ours.step()

    share = unused(step, networks.both)
    assert share is not None
    assert share < 0.2


def test_a_pass_for_something_else_is_not_counted(unused: Unused) -> None:
    """As for the gradients of images, of which others are made."""
    network = Sequential(Linear(4, 4), Linear(4, 4), Linear(4, 1))
    optimizer = Networks.optimizer(network)

    def step() -> None:
        images = NOISE.clone().requires_grad_()
        network(images).mean().backward()
        assert images.grad is not None
        optimizer.zero_grad()
        network(images.grad.sign()).mean().backward()
        optimizer.step()

    share = unused(step, [optimizer])
    assert share is not None
    assert share < 0.2
