"""Rows that a gate or a mask sets to zero: what is computed for them is for nothing."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from strobe.callbacks.calls import Operation
from strobe.callbacks.wasted import needed_of
from support.followed import Networks, found

ROWS, WIDTH, EXPERTS = 64, 32, 4

Mixing = Callable[[Tensor, list[Tensor]], Tensor]


class Experts(nn.Module):
    """Two layers each, of which each row is for one, and a router that weights them."""

    def __init__(self, mixing: Mixing) -> None:
        super().__init__()
        torch.manual_seed(0)
        layers = [nn.Sequential(nn.Linear(WIDTH, 48), nn.GELU(), nn.Linear(48, WIDTH)) for _ in range(EXPERTS)]
        self.experts, self.router, self.mixing = nn.ModuleList(layers), nn.Linear(WIDTH, EXPERTS), mixing

    def forward(self, rows: Tensor) -> Tensor:
        chosen = (torch.arange(len(rows)) % EXPERTS)[:, None]
        gates = torch.zeros(len(rows), EXPERTS).scatter(1, chosen, self.router(rows).softmax(1).gather(1, chosen))
        return self.mixing(gates, [expert(rows) for expert in self.experts])


def stacked(gates: Tensor, made: list[Tensor]) -> Tensor:
    return (gates[:, :, None] * torch.stack(made, 1)).sum(1)


def in_turn(gates: Tensor, made: list[Tensor]) -> Tensor:
    return torch.stack([gates[:, place, None] * one for place, one in enumerate(made)]).sum(0)


def weighted(gates: Tensor, made: list[Tensor]) -> Tensor:
    return torch.bmm(gates[:, None], torch.stack(made, 1)).squeeze(1)


def masked(gates: Tensor, made: list[Tensor]) -> Tensor:
    return torch.stack([one.masked_fill(gates[:, [place]] == 0, 0.0) for place, one in enumerate(made)]).sum(0)


@pytest.mark.parametrize("mixing", [stacked, in_turn, weighted, masked])
def test_of_experts_that_compute_all_rows_those_that_a_gate_closes_are_for_nothing(mixing: Mixing) -> None:
    net, ran = Experts(mixing), list[Operation]()
    networks = Networks()
    networks.both[0] = networks.optimizer(net)
    told = found(lambda: networks.train(net(torch.randn(ROWS, WIDTH)).square().sum()), ran=ran)["unused"]
    assert told is not None
    assert told["function"] == "Experts.forward"
    assert {"forward", "backward"} <= told.keys()
    needed = needed_of(ran)
    shares = [needed[one] for one in ran if one.name == "addmm" and one.size.shape[1] == 48 and not one.step]
    assert len(shares) == EXPERTS
    assert sum(shares) == pytest.approx(1.0, abs=0.01)  # each row is needed of one expert


def of_the_rows(rows: Tensor) -> Tensor:
    return rows * (rows.sum(1, keepdim=True) > rows.sum(1).mean())


def mostly_open(rows: Tensor) -> Tensor:
    return rows * (torch.arange(len(rows)) % 4 > 0)[:, None]


def number_by_number(rows: Tensor) -> Tensor:
    return rows * (torch.rand(rows.shape) > 0.7)


def of_columns(rows: Tensor) -> Tensor:
    return rows * (torch.arange(WIDTH) % 4 == 0)


def not_yet(rows: Tensor) -> Tensor:
    return rows * torch.zeros(len(rows), 1)


@pytest.mark.parametrize("gate", [of_the_rows, mostly_open, number_by_number, of_columns, not_yet])
def test_what_else_is_multiplied_is_needed(gate: Callable[[Tensor], Tensor]) -> None:
    """Such as rows of which the gate itself is made, and what dropout leaves of each row."""
    net, ran = nn.Linear(WIDTH, WIDTH), list[Operation]()
    networks = Networks()
    networks.both[0] = networks.optimizer(net)
    found(lambda: networks.train(gate(net(torch.randn(ROWS, WIDTH))).square().sum()), ran=ran)
    needed = needed_of(ran)
    assert [needed[one] for one in ran if one.name == "addmm" and not one.step] == [1.0]
