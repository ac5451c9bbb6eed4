"""Products that a step could leave out, or do otherwise: with matrices of mostly zeros, and those of attention."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from strobe.callbacks.calls import Operation
from strobe.callbacks.patterns import with_zeros
from support.followed import Networks, found, kinds


@pytest.fixture
def networks() -> Networks:
    return Networks()


# --- matrices of mostly zeros


@pytest.mark.parametrize(
    ("factor", "told"),
    [
        (torch.eye(400), [400, 400]),
        (torch.eye(4000)[:1000].T.contiguous(), [4000, 1000]),
        (one_hot(torch.arange(400) % 7, 400).float(), [400, 400]),
        (torch.rand(400, 400).relu(), None),
        (torch.zeros(400, 400), None),  # as weights begin
        (torch.eye(400).to_sparse().coalesce(), None),
        (torch.eye(100), None),  # too small to cost anything
    ],
)
def test_a_large_factor_of_mostly_zeros_is_told(factor: Tensor, told: list[int] | None, networks: Networks) -> None:
    net = nn.Linear(4, 4)

    def step() -> None:
        networks.train(torch.mm(factor, net(torch.randn(factor.shape[1], 4))).sum())

    networks.both[0] = networks.optimizer(net)
    sparse = found(step)["sparse"]
    assert (sparse and sorted(sparse["shape"], reverse=True)) == told
    if sparse:
        assert sparse["share"] == pytest.approx(1 - float((factor != 0).float().mean()), abs=0.001)
        assert {"forward", "backward"} <= sparse.keys()


@pytest.mark.parametrize(("diagonal", "told"), [(True, [10, 128, 128]), (False, None)])
def test_a_decomposition_of_mostly_zeros_is_told(diagonal: bool, told: list[int] | None) -> None:
    def step() -> None:
        values = torch.rand(10, 128, requires_grad=True) + 1
        matrices = torch.diag_embed(values) if diagonal else values[..., None] @ values[:, None] + torch.eye(128) * 99
        torch.linalg.cholesky(matrices).sum().backward()

    sparse = found(step)["sparse"]
    assert (sparse and sparse["shape"]) == told
    assert sparse is None or {"forward", "backward"} <= sparse.keys()


def test_an_inverse_is_no_product_with_zeros() -> None:
    def step() -> None:
        matrix = torch.rand(320, 320) + 320 * torch.eye(320)
        torch.linalg.solve(matrix, torch.eye(320)).sum().item()
        torch.cholesky_solve(torch.eye(320), torch.rand(320, 320).tril() + torch.eye(320)).sum().item()

    assert found(step)["sparse"] is None


def test_what_only_makes_a_factor_of_zeros_counts_with_the_product() -> None:
    def step() -> None:
        vectors = one_hot(torch.randint(400, (400,)), 400).float()
        (vectors @ torch.randn(400, 4).exp()).sum().item()
        (vectors.square() @ vectors.cumsum(1)).sum().item()

    ran: list[Operation] = []
    found(step, ran=ran)
    first = next(one for one in ran if one.name == "mm")
    alone = [one for one in ran[: ran.index(first) + 1] if one.step == 0]
    assert {one.name for one in with_zeros(alone, lambda one: one is first)} == {"zeros", "scatter_", "_to_copy", "mm"}
    both = [one for one in ran if one.step == 0]
    assert {one.name for one in with_zeros(both, lambda one: one is first)} == {"mm"}


# --- attention


def attended(scores: Tensor, values: Tensor, _: nn.Embedding) -> Tensor:
    return (scores / 3.0).softmax(-1) @ values


def masked(scores: Tensor, values: Tensor, _: nn.Embedding) -> Tensor:
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return (scores * 0.3).masked_fill(hidden, float("-inf")).softmax(-1) @ values


def with_biases_that_learn(scores: Tensor, values: Tensor, biases: nn.Embedding) -> Tensor:
    return (scores * 0.3 + biases(torch.arange(scores.shape[-1]))[:, 0]).softmax(-1) @ values


def with_weights_that_learn(scores: Tensor, values: Tensor, biases: nn.Embedding) -> Tensor:
    return (scores * 0.3 + biases.weight.T).softmax(-1) @ values


def over_queries(scores: Tensor, values: Tensor, _: nn.Embedding) -> Tensor:
    return (scores * 0.3).softmax(1) @ values


def of_a_codebook(_: Tensor, values: Tensor, biases: nn.Embedding) -> Tensor:
    return nn.functional.linear(values, values[0].detach(), biases.weight[:, 0]).softmax(-1) @ values


def whose_weights_are_shown(scores: Tensor, values: Tensor, _: nn.Embedding) -> Tensor:
    weights = (scores * 0.3).softmax(-1)
    return weights @ values * float(weights.detach().numpy().max())


def with_dropout(scores: Tensor, values: Tensor, _: nn.Embedding) -> Tensor:
    return nn.functional.dropout((scores * 0.3).softmax(-1), 0.1) @ values


def whose_weights_are_used(scores: Tensor, values: Tensor, _: nn.Embedding) -> Tensor:
    weights = (scores * 0.3).softmax(-1)
    return weights @ values + weights.amax()


def capped(scores: Tensor, values: Tensor, _: nn.Embedding) -> Tensor:
    return (scores * 0.3).tanh().softmax(-1) @ values


def attended_at_once(scores: Tensor, values: Tensor, _: nn.Embedding) -> Tensor:
    return nn.functional.scaled_dot_product_attention(values, values, values) + scores.mean()


@pytest.mark.parametrize(
    ("attend", "positions", "width", "told"),
    [
        *((attended, 64, 16, True), (masked, 64, 16, True), (attended, 48, 16, False), (attended, 64, 8, False)),
        *((with_biases_that_learn, 64, 16, False), (with_dropout, 64, 16, False), (capped, 64, 16, False)),
        *((whose_weights_are_used, 64, 16, False), (attended_at_once, 64, 16, False)),
        *((with_weights_that_learn, 64, 16, False), (over_queries, 64, 16, False), (of_a_codebook, 64, 16, False)),
        (whose_weights_are_shown, 64, 16, False),
    ],
)
def test_attention_of_several_operations_is_told(
    attend: Callable[..., Tensor], positions: int, width: int, told: bool, networks: Networks
) -> None:
    biases, layer = nn.Embedding(positions, 1), nn.Linear(6, width)
    networks.both[0] = networks.optimizer(nn.ModuleList([biases, layer]))

    def step() -> None:
        values = layer(torch.randn(2, positions, 6))
        networks.train(attend(values @ values.transpose(1, 2), values, biases).square().sum())

    seen = found(step)["attention"]
    assert (seen and seen["shape"]) == ([2, positions, positions] if told else None)
    if seen:
        assert {"forward", "backward"} <= seen.keys()
        assert seen["function"] == attend.__name__


@pytest.mark.parametrize("weights", [True, False])
def test_a_layer_whose_attention_weights_nobody_needs_is_told(weights: bool, networks: Networks) -> None:
    layer = nn.MultiheadAttention(32, 2, batch_first=True)
    networks.both[0] = networks.optimizer(layer)

    def step() -> None:
        images = torch.randn(2, 64, 32)
        networks.train(layer(images, images, images, need_weights=weights)[0].square().sum())

    assert (found(step)["attention"] is not None) == weights


@pytest.mark.parametrize(
    ("pool", "told"),
    [
        (lambda points: points.amax(1), False),
        (lambda points: points.max(1).values, False),
        (lambda points: nn.functional.adaptive_max_pool2d(points.permute(0, 2, 1)[..., None], 1), False),
        (lambda points: points[:, 7], True),  # to be selected before the layer
    ],
)
def test_zeros_in_the_gradients_of_a_maximum_are_not_told(
    pool: Callable[[Tensor], Tensor], told: bool, networks: Networks
) -> None:
    net = nn.Linear(4, 32)
    networks.both[0] = networks.optimizer(net)
    wasted = kinds(found(lambda: networks.train(pool(net(torch.randn(8, 512, 4)).relu()).square().sum())))
    assert bool(wasted & {"sparse", "unused"}) == told
