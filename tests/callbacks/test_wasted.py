"""What of a step's operations is for nothing: the same again, and results that nobody uses."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, nll_loss
from torch.optim import Adam
from torch.utils.checkpoint import checkpoint

from strobe.callbacks.calls import Operation
from strobe.callbacks.dataflow import STEPS, Dataflow
from strobe.callbacks.wasted import ADDING, added, needed_of, wasted, where
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


@pytest.mark.parametrize("normalises", [True, False])
def test_a_batch_norm_that_is_called_twice_computes_the_same_twice(normalises: bool) -> None:
    """Its running statistics change with each call, but are no part of what it returns."""
    norm = nn.BatchNorm1d(4).train(normalises)
    net = nn.Sequential(nn.Linear(4, 4), norm, nn.Linear(4, 1))

    def step() -> None:
        images = torch.randn(8, 4)
        with torch.no_grad():
            net(images).isfinite().all()
        norm.running_mean.mul_(0.9)  # type: ignore[union-attr]  # on which its results depend in evaluation
        net(images).sum().backward()

    ran: list[Operation] = []
    told = found(step, ran=ran)["repeated"]
    again = [one.signature for one in ran if one.name == "native_batch_norm" and one.step == 1]
    assert told is not None
    assert (again[0] == again[1]) == normalises


def test_adding_the_gradients_of_what_is_computed_again_is_part_of_that(networks: Networks) -> None:
    ran: list[Operation] = []

    def step() -> None:
        images = networks.images
        networks.train(sum(networks.net(images).pow(number).sum() for number in range(2, 5)))  # type: ignore[arg-type]

    assert found(step, ran=ran)["repeated"] is not None
    adding = [one for one in ran if one.backward and one.forward is None and one.name in ADDING]
    assert {added(one).name for one in adding} == {"mm"}  # of weights, through views


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


def test_where_a_library_alone_computes_most_no_line_is_named() -> None:
    own = [("train.py", 3, "main"), ("net.py", 9, "forward")]
    assert where([(1.0, own), (0.9, [])]) == own[-1]
    assert where([(1.0, own), (1.1, [])]) is None


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


def test_a_backward_pass_that_computes_what_another_one_has_is_told() -> None:
    net = nn.Sequential(nn.Linear(4, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 4))

    def each(values: Tensor, given: Tensor) -> Tensor:
        return torch.autograd.grad(values.sum(), given, create_graph=True)[0]

    def step(*, at_once: bool) -> None:
        given = [torch.randn(64, 1, requires_grad=True) for _ in range(4)]
        values = net(torch.cat(given, 1))
        slopes = (
            torch.autograd.grad(values.sum(), given, create_graph=True)
            if at_once
            else (each(values, given[0]), each(values, given[1]))
        )
        sum(slope.square().sum() for slope in slopes).backward()  # type: ignore[union-attr]

    told = found(lambda: step(at_once=False))["repeated"]
    assert told is not None
    assert (told["calls"], told["function"]) == (2, "each")  # also of what the pass behind it repeats
    assert found(lambda: step(at_once=True))["repeated"] is None


# --- what nothing uses


def test_of_a_layer_at_all_positions_most_is_for_nothing(networks: Networks) -> None:
    def step() -> None:
        positions = networks.net(torch.randn(100, 4))
        networks.train(positions.relu()[:5].sum())

    told = found(step)["unused"]
    assert told is not None
    assert told["line"] == step.__code__.co_firstlineno + 1
    assert {"forward", "backward"} <= told.keys()


@pytest.mark.parametrize(("first", "needed"), [(0, 0.1), (10, 0.2)])
def test_what_is_read_twice_is_needed_once(networks: Networks, first: int, needed: float) -> None:
    """As of scores by a loss and by a metric: ten of a hundred, or ten others."""

    def step() -> None:
        positions = networks.net(torch.randn(100, 4)).relu()
        positions[first : first + 10].argmax(1).tolist()
        networks.train(positions[:10].sum())

    ran: list[Operation] = []
    found(step, ran=ran)
    shares = needed_of(ran)
    (product, *_) = (one for one in ran if one.name == "addmm")
    assert shares[product] == pytest.approx(needed)


@pytest.mark.parametrize("shape", [(100,), (20, 5)], ids=["positions", "sequences"])
def test_positions_whose_labels_the_loss_ignores_are_told_also_before_the_last_layer(
    networks: Networks, shape: tuple[int, ...]
) -> None:
    layers = nn.Sequential(nn.Linear(4, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4), nn.LogSoftmax(-1))
    networks.both[0] = networks.optimizer(layers)
    labels = torch.full(shape, -100)
    labels.view(-1)[:10] = 1
    ran: list[Operation] = []

    def step() -> None:
        scores = layers(torch.randn(*shape, 4))
        networks.train(nll_loss(scores if len(shape) == 1 else scores.transpose(1, 2), labels))

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

    def data(self, output: Tensor) -> None:
        self.kept = output.data.numpy().sum()

    def tolist(self, output: Tensor) -> None:
        self.kept = output.tolist()

    def numpy_of_classes(self, output: Tensor) -> None:
        self.kept = output.argmax(1).numpy().sum()

    def item(self, output: Tensor) -> None:
        self.kept = output.mean().item()

    def list(self, output: Tensor) -> None:
        self.kept = [*(self.kept or ()), output]

    def running_sum(self, output: Tensor) -> None:
        with torch.no_grad():
            self.sums.add_(output.sum())


@pytest.mark.parametrize("use", ["numpy", "data", "tolist", "numpy_of_classes", "item", "list", "running_sum"])
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
