"""What of a step's operations is for nothing: the same again, results that nobody uses, products with zeros."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot
from torch.optim import Adam
from torch.utils.checkpoint import checkpoint

from strobe.callbacks.calls import Operation
from strobe.callbacks.dataflow import STEPS, Dataflow
from strobe.callbacks.wasted import needed_of, wasted, with_zeros
from support.followed import Networks, found, kinds


@pytest.fixture
def networks() -> Networks:
    return Networks()


# --- what is computed again


def test_a_network_that_is_called_twice_is_told_with_the_second_line(networks: Networks) -> None:
    def step() -> None:
        images = networks.images
        first = networks.net(images)
        second = networks.net(images)
        networks.train(first.sum() + second.square().sum())

    told = found(step)["repeated"]
    assert told is not None
    assert (told["calls"], told["function"]) == (2, "step")
    assert told["line"] == step.__code__.co_firstlineno + 3
    assert {"forward", "backward"} <= told.keys()


def test_what_is_learned_from_once_has_no_share_of_the_backward_pass(networks: Networks) -> None:
    def step() -> None:
        images = networks.images
        with torch.no_grad():
            assert networks.net(images).isfinite().all()
        networks.train(networks.net(images).sum())

    told = found(step)["repeated"]
    assert told is not None
    assert "forward" in told
    assert "backward" not in told


def test_what_trains_nothing_has_no_share_of_the_backward_pass(networks: Networks) -> None:
    def step() -> None:
        images = networks.images
        networks.train(networks.net(images).sum())
        for _ in range(3):
            with torch.no_grad():
                float((networks.other(images) > 0).float().mean())

    told = found(step)["repeated"]
    assert told is not None
    assert told["calls"] == 3
    assert "backward" not in told


def changed_between(networks: Networks, images: Tensor) -> Tensor:
    first = networks.net(images).sum()
    with torch.no_grad():
        networks.net[0].weight.mul_(0.5)
    return first.detach() + networks.net(images).sum()


def changed_images(networks: Networks, images: Tensor) -> Tensor:
    first = networks.net(images).sum().detach()
    return first + networks.net(images.add_(1.0)).sum()


def filled_by_numpy(networks: Networks, images: Tensor) -> Tensor:
    own = images.numpy().copy()
    shared = torch.from_numpy(own)
    first = networks.net(shared).sum().detach()
    own += 1
    return first + networks.net(shared).sum()


def recomputed(networks: Networks, images: Tensor) -> Tensor:
    loss: Tensor = checkpoint(networks.net, images.requires_grad_(), use_reentrant=False).sum()
    return loss


def other_numbers(networks: Networks, images: Tensor) -> Tensor:
    return networks.net(images * 2).sum() + networks.net(images * 2.5).sum()  # type: ignore[no-any-return]


@pytest.mark.parametrize("loss", [changed_between, changed_images, filled_by_numpy, recomputed, other_numbers])
def test_what_is_not_the_same_is_not_told(networks: Networks, loss: Callable[[Networks, Tensor], Tensor]) -> None:
    assert "repeated" not in kinds(found(lambda: networks.train(loss(networks, networks.images))))


def test_dropout_differs_from_call_to_call() -> None:
    networks = Networks(dropout=0.5)

    def step() -> None:
        images = networks.images
        networks.train(networks.net[2:](images).sum() + networks.net[2:](images).sum())

    networks.net[3] = nn.Linear(4, 2)
    networks.both[0] = networks.optimizer(networks.net)
    assert "repeated" not in kinds(found(step))


def test_what_no_step_changes_is_told_with_the_function_that_computes_it(networks: Networks) -> None:
    size = torch.tensor(4.0)

    def window() -> Tensor:
        return torch.linspace(0, 1, 4).sin() * size

    told = found(lambda: networks.train(networks.net(networks.images * window()).sum()))
    constant = told["constant"]
    assert constant is not None
    assert constant["function"] == "window"
    assert constant["functions"] == [{"file": __file__, "function": "window"}]
    assert told["repeated"] is None


@pytest.mark.parametrize("changes", ["random", "batch", "weights", "memory"])
def test_what_changes_is_not_constant(networks: Networks, changes: str) -> None:
    data = torch.randn(64, 4)
    given = torch.zeros(8, 4)
    shared, number = given.numpy(), iter(range(100))

    def step() -> None:
        now = next(number)
        if changes == "random":
            images = torch.rand(8, 4) * 2
        elif changes == "batch":
            images = data[now * 8 : now * 8 + 8] * 2
        elif changes == "weights":
            images = networks.images * networks.net[0].weight.square().mean()
        else:
            shared[:] = now
            images = given * 2
        networks.train(networks.net(images).sum())

    assert "constant" not in kinds(found(step))


def test_gradients_that_are_set_to_zero_are_not_constant(networks: Networks) -> None:
    def step() -> None:
        networks.both[0].zero_grad(set_to_none=False)
        networks.net(networks.images).sum().backward()
        networks.both[0].step()

    assert not kinds(found(step))


# --- what nothing uses


def test_of_a_layer_at_all_positions_most_is_for_nothing(networks: Networks) -> None:
    def step() -> None:
        positions = networks.net(torch.randn(100, 4))
        networks.train(positions.relu()[:5].sum())

    told = found(step)["unused"]
    assert told is not None
    assert told["line"] == step.__code__.co_firstlineno + 1
    assert {"forward", "backward"} <= told.keys()


def test_positions_whose_labels_the_loss_ignores_are_told_also_before_the_last_layer(networks: Networks) -> None:
    layers = nn.Sequential(nn.Linear(4, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))
    networks.both[0] = networks.optimizer(layers)
    labels = torch.full((100,), -100)
    labels[:10] = 1
    ran: list[Operation] = []

    def step() -> None:
        networks.train(cross_entropy(layers(torch.randn(100, 4)), labels))

    unused = found(step, ran=ran)["unused"]
    assert unused is not None
    assert {"forward", "backward"} <= unused.keys()
    needed = needed_of(ran)
    products = [needed[one] for one in ran if one.name == "addmm" and not one.step]
    assert products == pytest.approx([0.1, 0.1], abs=0.02)


def test_a_number_of_each_row_needs_the_whole_row(networks: Networks) -> None:
    """As of a softmax: what a loss picks of it depends on all of its inputs."""

    def step() -> None:
        scores = networks.net(networks.images).log_softmax(1)
        networks.train(-scores.gather(1, torch.zeros(8, 1, dtype=torch.long)).mean())

    ran: list[Operation] = []
    found(step, ran=ran)
    needed = needed_of(ran)
    assert [needed[one] for one in ran if one.name == "addmm" and not one.step] == [1.0, 1.0]


def test_a_head_whose_output_no_loss_reads_is_told(networks: Networks) -> None:
    def step() -> None:
        images = networks.images
        networks.other(images)
        networks.train(networks.net(images).sum())

    told = found(step)["unused"]
    assert told is not None
    assert told["line"] == step.__code__.co_firstlineno + 2


class Keeping:
    """Uses of a network's output beside the loss."""

    def __init__(self) -> None:
        self.kept: Any = None
        self.sums = torch.zeros(1)

    def numpy(self, output: Tensor) -> None:
        self.kept = float(output.detach().numpy().sum())

    def numpy_of_classes(self, output: Tensor) -> None:
        self.kept = output.argmax(1).numpy().sum()

    def item(self, output: Tensor) -> None:
        self.kept = output.mean().item()

    def list(self, output: Tensor) -> None:
        self.kept = [*(self.kept or ()), output]

    def running_sum(self, output: Tensor) -> None:
        with torch.no_grad():
            self.sums.add_(output.sum())


@pytest.mark.parametrize("use", ["numpy", "numpy_of_classes", "item", "list", "running_sum"])
def test_what_is_used_beside_the_loss_is_not_told(networks: Networks, use: str) -> None:
    keeping = Keeping()

    def step() -> None:
        images = networks.images
        getattr(keeping, use)(networks.other(images))
        networks.train(networks.net(images).sum())

    assert not kinds(found(step))


def test_gradients_for_another_network_are_told_and_not_with_detach(networks: Networks) -> None:
    def play(images: Callable[[Tensor], Tensor]) -> None:
        fake = networks.net(networks.images)
        networks.train(networks.other(images(fake)).square().mean(), 1)
        networks.train(networks.net(networks.images).mean())

    told = found(lambda: play(lambda fake: fake))["unused_backward"]
    assert told is not None
    assert told["backward"]
    assert not kinds(found(lambda: play(torch.detach)))


@pytest.mark.parametrize("frozen", [False, True])
def test_gradients_of_weights_that_no_optimizer_has_are_told(networks: Networks, frozen: bool) -> None:
    """As of a network that compares images, whose weights nobody trains."""
    networks.other.requires_grad_(not frozen)
    told = found(lambda: networks.train(networks.other(networks.net(networks.images)).square().mean()))
    assert (told["unused_backward"] is None) == frozen


def test_gradients_that_are_added_up_are_used(networks: Networks) -> None:
    def step() -> None:
        networks.both[0].zero_grad()
        for _ in range(3):
            networks.net(networks.images).mean().backward()
        networks.both[0].step()

    assert not kinds(found(step))


def test_gradients_that_a_later_step_uses_are_used(networks: Networks) -> None:
    flow = Dataflow(lambda: "backward")
    flow.begin()
    for _ in range(STEPS):
        networks.net(networks.images).mean().backward()
        flow.end_step({}, updated=False)
    assert flow.operations
    assert not kinds(wasted(flow))


def test_gradients_of_images_and_of_gradients_are_used(networks: Networks) -> None:
    optimizer = Adam(networks.net.parameters())

    def step() -> None:
        images = networks.images.requires_grad_()
        output = networks.net(images)
        (slope,) = torch.autograd.grad(output.square().sum(), images, create_graph=True)
        optimizer.zero_grad()
        ((slope.norm(dim=1) - 1) ** 2).mean().backward()
        optimizer.step()

    assert kinds(found(step)) <= {"unused_backward"}  # that of the images


@pytest.mark.parametrize("network", ["convolutions", "transformer", "recurrent"])
def test_of_a_common_training_only_its_loop_over_weights_is_told(network: str) -> None:
    torch.manual_seed(0)
    if network == "convolutions":
        layers: nn.Module = nn.Sequential(
            *(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Dropout(0.1), nn.LazyLinear(5)),
        )
        shape: tuple[int, ...] = (4, 3, 8, 8)
    elif network == "transformer":
        layers = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        shape = (4, 6, 8)
    else:
        layers = nn.LSTM(8, 8, batch_first=True)
        shape = (4, 6, 8)
    layers(torch.randn(shape))
    optimizer = torch.optim.AdamW(layers.parameters())
    average = [one.detach().clone() for one in layers.parameters()]

    def step() -> None:
        output = layers(torch.randn(shape))
        if isinstance(output, tuple):
            output, (state, cell) = output
            output = output + state[0][:, None] + cell[0][:, None]
        loss = cross_entropy(output.flatten(1), torch.zeros(4, dtype=torch.long))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(layers.parameters(), 1.0)
        optimizer.step()
        with torch.no_grad():
            for mine, theirs in zip(average, layers.parameters(), strict=True):
                mine.lerp_(theirs, 0.1)

    told = found(step)
    if network == "transformer":  # which has weights enough
        assert told["loop"] is not None
        assert told["loop"]["line"] == step.__code__.co_firstlineno + 12
    assert kinds(told) == ({"loop"} if network == "transformer" else set())


# --- products with zeros


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


def test_a_backward_pass_that_computes_what_another_one_has_is_told() -> None:
    net = Networks().net

    def each(values: Tensor, given: Tensor) -> Tensor:
        return torch.autograd.grad(values.sum(), given, create_graph=True)[0]

    def step(*, at_once: bool) -> None:
        given = [torch.randn(8, 1, requires_grad=True) for _ in range(4)]
        values = net(torch.cat(given, 1))
        slopes = (
            torch.autograd.grad(values.sum(), given, create_graph=True)
            if at_once
            else (each(values, given[0]), each(values, given[1]))
        )
        sum(slope.square().sum() for slope in slopes).backward()  # type: ignore[union-attr]

    told = found(lambda: step(at_once=False))["repeated"]
    assert told is not None
    assert (told["calls"], told["function"]) == (2, "step")
    assert found(lambda: step(at_once=True))["repeated"] is None


@pytest.mark.parametrize(
    ("find", "told"),
    [
        (lambda rows: rows.cumsum(0)[50], False),
        (lambda rows: rows.sort().values[:500].sum(), False),
        (lambda rows: rows.argsort()[:50].sum(), True),  # torch.topk selects them
        (lambda rows: rows.view(2, 500).sort().values[:, -100:].sum(), True),
        (lambda rows: rows.sort().values[400], False),
        (lambda rows: rows.view(500, 2).sort(0).values[:50].sum(), False),  # whose order is not that of memory
        (lambda rows: rows.quantile(torch.tensor([0.1, 0.5, 0.9])).sum(), False),
        (lambda rows: rows.exp()[50], True),
    ],
)
def test_a_part_of_what_only_comes_as_a_whole_is_no_waste(find: Callable[[Tensor], Tensor], told: bool) -> None:
    seen = found(lambda: find(torch.randn(1000)).item())["unused"]
    assert (seen is not None) == told


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
