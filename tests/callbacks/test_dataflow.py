"""What of a step's operations is for nothing: the same again, results that nobody uses, products with zeros."""

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot
from torch.optim import SGD, Adam, Optimizer
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack
from torch.utils.checkpoint import checkpoint

from strobe.callbacks import dataflow, rows
from strobe.callbacks.dataflow import STEPS, Dataflow
from strobe.callbacks.steps import StepRecorder
from strobe.callbacks.wasted import KINDS, wasted
from support.fitting import Model, fit
from support.steps import recorder

__all__ = ["recorder"]

Found = dict[str, dict[str, Any] | None]


@pytest.fixture(autouse=True)
def no_mode_is_left() -> Iterator[None]:
    yield
    assert not _get_current_dispatch_mode_stack()


def found(step: Callable[[], Any], *, steps: int = STEPS) -> Found:
    """What of a step is wasted, of the second one on; each kind has all of the phase, as if nothing else ran there."""
    flow = Dataflow(lambda: "backward" if torch._C._current_graph_task_id() != -1 else "forward")
    step()
    flow.begin()
    for _ in range(steps):
        step()
        flow.end_step({})
    flow.remove()
    assert flow.failure is None
    return wasted(flow)


def kinds(told: Found) -> set[str]:
    return {name for name, one in told.items() if one is not None}


class Networks:
    """One to be trained on random numbers, another one, and optimizers of both."""

    def __init__(self, *, dropout: float = 0.0) -> None:
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Dropout(dropout), nn.Linear(16, 4))
        self.other = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
        self.both = [self.optimizer(self.net), self.optimizer(self.other)]

    @staticmethod
    def optimizer(module: nn.Module) -> Optimizer:
        return SGD(module.parameters(), lr=0.1)

    def train(self, loss: Tensor, optimizer: int = 0) -> None:
        self.both[optimizer].zero_grad()
        loss.backward()
        self.both[optimizer].step()

    @property
    def images(self) -> Tensor:
        return torch.randn(8, 4)


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
def test_nothing_is_told_of_a_common_training(network: str) -> None:
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

    assert not kinds(found(step))


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


# --- beside a training


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
    monkeypatch.setattr(flow, "_sources", lambda _: 1 / 0)
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
    monkeypatch.setattr(rows, "wasted", lambda _: 1 / 0)
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


def test_a_trainer_shows_the_second_and_third_step(recorder: StepRecorder) -> None:
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

    assert not kinds(found(step)) - {"unused_backward"}
