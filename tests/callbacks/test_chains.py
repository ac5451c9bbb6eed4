"""Products of thin matrices that another order of multiplying would not need."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.parametrizations import weight_norm

from strobe.callbacks.calls import Operation
from strobe.callbacks.patterns import avoidable
from support.followed import found


def made(*shape: int, learns: bool = True) -> Tensor:
    return torch.randn(*shape, requires_grad=learns)


def saved(step: Callable[[], Tensor]) -> list[tuple[str, bool]]:
    """The operations that another order saves, and whether each is of the backward pass."""
    ran = list[Operation]()
    found(lambda: step().sum().backward(), ran=ran)
    last = [one for one in ran if one.step == 1]
    shares = avoidable(last)
    assert all(0.5 < share <= 1 for share in shares.values())
    return [(one.name, one.backward) for one in last if one in shares]


@pytest.mark.parametrize("learns", [True, False])
def test_a_merged_adapter_is_told_with_the_gradient_of_the_whole(learns: bool) -> None:
    base, up, down, values = made(256, 256, learns=learns), made(256, 8), made(8, 256), made(100, 256)
    told = saved(lambda: functional.linear(values * 1.0, base + 2 * (up @ down)))
    assert told[:3] == [("mm", False), ("mul", False), ("add", False)]
    products = told.count(("mm", True))
    assert products == (2 if learns else 3)  # of the factors; the whole's own, which weights that learn need, too


def test_attention_without_a_softmax_is_told_with_what_multiplies_by_it() -> None:
    queries, keys, values = made(4, 256, 16), made(4, 256, 16), made(4, 256, 16)
    told = saved(lambda: queries @ keys.transpose(1, 2) / 4 @ values)
    assert told[:3] == [("bmm", False), ("div", False), ("bmm", False)]
    assert told.count(("bmm", True)) == 4
    kind = found(lambda: queries @ keys.transpose(1, 2) @ values)["order"]
    assert kind is not None
    assert kind["shape"] == [4, 256, 256]


@pytest.mark.parametrize("sparse", [True, False])
def test_neighbours_are_gathered_after_a_layer_that_makes_features_few(sparse: bool) -> None:
    graph, features, layer = made(256, 256, learns=False), nn.Linear(64, 128), nn.Linear(128, 8, bias=False)
    nodes = made(256, 64, learns=False)
    graph = graph.relu().to_sparse() if sparse else graph
    products = [one for one in saved(lambda: layer(graph @ (graph @ features(nodes)))) if one[0] == "mm"]
    assert products == [("mm", False)] * 2 + [("mm", True)] * 2
    assert saved(lambda: graph @ (graph @ layer(features(nodes)))) == []


@pytest.mark.parametrize(
    "between",
    [
        lambda product: product.softmax(-1),
        lambda product: product.relu(),
        lambda product: product * torch.ones(256, 256).tril(),
        lambda product: (product, product.sum())[0] + product.max(),  # something else reads it
    ],
)
def test_what_needs_the_whole_product_is_left_alone(between: Callable[[Tensor], Tensor]) -> None:
    queries, keys, values = made(256, 16), made(256, 16), made(256, 16)
    assert saved(lambda: between(queries @ keys.T) @ values) == []


def test_ordinary_layers_are_left_alone() -> None:
    network = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 10))
    assert saved(lambda: network(made(512, 64))) == []
    narrowing = nn.Sequential(weight_norm(nn.Linear(64, 128, bias=False)), nn.Linear(128, 10))
    assert saved(lambda: narrowing(made(512, 64))) == []
    with torch.autocast("cpu", torch.bfloat16):
        assert saved(lambda: narrowing(made(512, 64))) == []


def test_pooling_before_a_layer_is_left_alone() -> None:
    """The layer would have all rows to compute with."""
    layer = nn.Linear(128, 8)
    assert saved(lambda: layer(made(16, 500, learns=False).softmax(1) @ made(500, 128).relu())) == []
