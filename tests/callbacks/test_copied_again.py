"""Copies of earlier copies: of queues that step by step take in a little, and of tensors that grow in a loop."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from support.followed import Networks, found, kinds

ROWS, WIDTH, NEW = 2048, 16, 8


class Kept:
    """The latest rows, kept in several ways."""

    def __init__(self) -> None:
        self.rows, self.at = torch.zeros(ROWS, WIDTH), 0

    def joined(self, new: Tensor) -> None:
        self.rows = torch.cat([self.rows[len(new) :], new])

    def rolled(self, new: Tensor) -> None:
        self.rows = torch.roll(self.rows, -len(new), 0)
        self.rows[-len(new) :] = new

    def moved(self, new: Tensor) -> None:
        self.rows[: -len(new)] = self.rows[len(new) :].clone()
        self.rows[-len(new) :] = new

    def into_place(self, new: Tensor) -> None:
        self.rows.copy_(torch.cat([self.rows[len(new) :], new]))

    def ring(self, new: Tensor) -> None:
        self.rows[self.at : self.at + len(new)] = new
        self.at = (self.at + len(new)) % ROWS

    def snapshot(self, new: Tensor) -> None:
        self.ring(new)
        self.seen = self.rows.clone()


Keeping = Callable[[Kept, Tensor], None]


def stepping(keeping: Keeping) -> Callable[[], None]:
    networks, kept = Networks(), Kept()

    def step() -> None:
        made = networks.net(torch.randn(NEW, 4))
        networks.train((made.repeat(1, 4) @ kept.rows.T).square().mean())
        keeping(kept, made.detach().repeat(1, 4))

    return step


@pytest.mark.parametrize("keeping", [Kept.joined, Kept.rolled, Kept.moved, Kept.into_place])
def test_a_queue_that_is_copied_for_what_is_new(keeping: Keeping) -> None:
    told = found(stepping(keeping))["carried"]
    assert told is not None
    first = keeping.__code__.co_firstlineno
    assert (told["function"], told["line"]) == (keeping.__name__, first + 1)
    assert {"file": __file__, "line": first + 1} in told["lines"]
    assert told["bytes"] >= (ROWS - NEW) * WIDTH * 4


@pytest.mark.parametrize("keeping", [Kept.ring, Kept.snapshot])
def test_what_is_written_in_place_is_copied_for_its_own_sake(keeping: Keeping) -> None:
    assert found(stepping(keeping))["carried"] is None


def test_a_tensor_that_grows_in_a_loop() -> None:
    networks = Networks()

    def step() -> None:
        made = networks.net(torch.randn(64, 4))
        for _ in range(9):
            made = torch.cat([made, networks.net(torch.randn(64, 4))])
        networks.train(made.square().mean())

    told = found(step)["carried"]
    assert told is not None
    assert told["line"] == step.__code__.co_firstlineno + 3


@pytest.mark.parametrize("learns", [True, False])
def test_what_gradients_need_of_each_round_has_to_be_copied(*, learns: bool) -> None:
    """As in a dense network, each of whose layers reads all earlier ones."""
    networks = Networks()

    def grown() -> Tensor:
        made = networks.net(torch.randn(64, 4))
        for _ in range(9):
            made = torch.cat([made, networks.net(made[-64:] + made.tanh().mean())])
        return made

    def step() -> None:
        with torch.set_grad_enabled(learns):
            made = grown().mean()
        networks.train(networks.net(torch.randn(8, 4)).mean() + made)

    assert ("carried" in kinds(found(step))) is not learns


def unrolled(*, rounds: int = 6, joined: bool = False) -> Tensor:
    weight, out, parts = torch.randn(8, 8, requires_grad=True), torch.zeros(rounds, 4, 8), []
    for place in range(rounds):
        if joined:
            parts.append(torch.randn(4, 8) @ weight)
        else:
            out[place] = torch.randn(4, 8) @ weight
    return torch.stack(parts) if joined else out


@pytest.mark.parametrize(("how", "told"), [({}, True), ({"rounds": 3}, False), ({"joined": True}, False)])
def test_gradients_that_are_copied_for_each_write_into_a_part_are_told(how: dict[str, Any], told: bool) -> None:
    kind = found(lambda: unrolled(**how).square().sum().backward())["sliced"]
    assert (kind is not None) == told
    if kind is not None:
        assert (kind["function"], kind["code"]) == ("unrolled", "out[place] = torch.randn(4, 8) @ weight")
        assert kind["bytes"] == 6 * 4 * 8 * 4
        assert kind.keys() >= {"backward"}
