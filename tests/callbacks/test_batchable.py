"""Loops whose rounds could be computed at once, and such whose rounds need each other; equal rows."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from strobe.callbacks.calls import Operation
from strobe.callbacks.patterns import together
from support.followed import Networks, found

COUNT = 8  # rounds


@pytest.fixture
def networks() -> Networks:
    return Networks()


def listed(networks: Networks, images: Tensor) -> Tensor:
    return torch.stack([networks.net(image).square() for image in images])


def put_in_place(networks: Networks, images: Tensor) -> Tensor:
    results = torch.empty(COUNT)
    for place, image in enumerate(images):
        results[place] = networks.net(image).square().sum()
    return results


def changed_in_place(networks: Networks, images: Tensor) -> Tensor:
    for place in range(COUNT):
        images[place] = images[place].flip(-1)
    return networks.net(images)  # type: ignore[no-any-return]


def added_up(networks: Networks, images: Tensor) -> Tensor:
    total = torch.zeros(())
    for image in images.split(1):
        ordered = networks.net(image).sort().values.sort(descending=True).values
        total = total + ordered.square().sum()
    return total


def logged(networks: Networks, images: Tensor) -> Tensor:
    norms = [networks.net(image).norm().item() for image in images]
    return networks.net(images) * sum(norms)  # type: ignore[no-any-return]


def per_weight(networks: Networks, images: Tensor) -> Tensor:
    with torch.no_grad():
        for weight in [*networks.other.parameters(), *networks.net.parameters()]:
            weight.mul_(0.999)
    return networks.net(images)  # type: ignore[no-any-return]


def with_passes_of_their_own(networks: Networks, images: Tensor) -> Tensor:
    gradients = [torch.autograd.grad(networks.net(image).sum(), networks.net[0].weight)[0].norm() for image in images]
    return networks.net(images) * sum(gradients)  # type: ignore[no-any-return]


def jacobian(networks: Networks, images: Tensor) -> Tensor:
    points = images.reshape(COUNT // 2, COUNT).requires_grad_()
    values = points.reshape_as(images).cumsum(0).sin().T.reshape(COUNT, COUNT // 2)
    rows = [torch.autograd.grad(value.sum(), points, create_graph=True)[0] for value in values]
    return torch.stack(rows).square() + networks.net(images).sum()


@pytest.mark.parametrize(
    "loss",
    [
        *(listed, put_in_place, changed_in_place, added_up, logged, per_weight),
        *(with_passes_of_their_own, jacobian),
    ],
)
def test_rounds_that_need_nothing_of_each_other_are_told(
    loss: Callable[[Networks, Tensor], Tensor], networks: Networks
) -> None:
    told = found(lambda: networks.train(loss(networks, networks.images).sum()))["loop"]
    assert told is not None
    assert told["rounds"] == COUNT
    assert told["function"] == loss.__name__


def layers(networks: Networks, images: Tensor) -> Tensor:
    for _ in range(COUNT):
        images = networks.net(images)
    return images


def recurrent(networks: Networks, images: Tensor) -> Tensor:
    state = torch.zeros(4)
    for image in images:
        state = networks.net(state + image).tanh()
    return state


def recurrent_in_a_line(networks: Networks, images: Tensor) -> Tensor:
    state, own, given = torch.zeros(4), networks.net[0].weight[:4], networks.net[3].weight[:, :4]
    for image in images:
        state = torch.tanh(own @ state + given @ image)
    return state


def of_sparse_tensors(networks: Networks, images: Tensor) -> Tensor:
    seen = torch.eye(4)
    with torch.no_grad():
        for _ in range(COUNT):
            seen = torch.sparse.mm(seen.to_sparse(), images[:4])
    return networks.net(images @ seen)  # type: ignore[no-any-return]


def normalised(networks: Networks, images: Tensor) -> Tensor:
    layer = nn.BatchNorm1d(4)
    return torch.stack([layer(part) for part in images.split(2)])


def parts_that_save_memory(networks: Networks, images: Tensor) -> Tensor:
    large = torch.randn(100_000, 4)
    for _ in images:
        networks.net(large).sum().backward()
    return networks.net(images)  # type: ignore[no-any-return]


def slopes_that_take_memory(networks: Networks, images: Tensor) -> Tensor:
    points = torch.randn(2_100_000, requires_grad=True)
    values = points.square()
    for place in range(COUNT):
        torch.autograd.grad(values[place], points, retain_graph=True)
    return networks.net(images)  # type: ignore[no-any-return]


def two_losses(networks: Networks, images: Tensor) -> Tensor:
    both = networks.net(images) * networks.net[3].bias
    for loss in (both.sum(), both.square().sum()):
        torch.autograd.grad(loss, networks.net[0].weight, retain_graph=True)
    return both


def updated_between_passes(networks: Networks, images: Tensor) -> Tensor:
    for image in images:
        networks.train(networks.net(image).square().sum())
    return networks.net(images)  # type: ignore[no-any-return]


def changed_by_numpy(networks: Networks, images: Tensor) -> Tensor:
    seen = torch.from_numpy(np.zeros(4, np.float32))
    with torch.no_grad():
        for _ in range(COUNT):
            seen.numpy()[:] += networks.net(seen).sum().numpy()
    return networks.net(images)  # type: ignore[no-any-return]


def chosen(networks: Networks, images: Tensor) -> Tensor:
    place = 0
    with torch.no_grad():
        for _ in range(COUNT):
            place = int(networks.net(images[place]).argmax())
    return networks.net(images)  # type: ignore[no-any-return]


def one_line(networks: Networks, images: Tensor) -> Tensor:
    a, b, c, d = images.split(2)
    return networks.net(torch.stack([a * b, b * c, c * d, d * a]))  # type: ignore[no-any-return]


def simulated(networks: Networks, images: Tensor) -> Tensor:
    seen, rewards = images[0].numpy(), []
    for _ in range(COUNT):
        with torch.no_grad():
            action = networks.net(torch.from_numpy(seen * 1.0))
        seen = seen + action.numpy()
        rewards.append(float(seen.sum()))
    return networks.net(images) * sum(rewards)  # type: ignore[no-any-return]


def numbers_of_python(networks: Networks, images: Tensor) -> Tensor:
    value = 1.0
    for _ in range(COUNT):
        value = networks.net(torch.full((4,), value)).mean().item()
    return networks.net(images) * value  # type: ignore[no-any-return]


def in_turn(networks: Networks, images: Tensor) -> Tensor:
    buffer = torch.empty(4)
    for image in images:
        buffer.copy_(image).add_(buffer.mean())
    return networks.net(buffer)  # type: ignore[no-any-return]


def few_of_other_shapes(networks: Networks, images: Tensor) -> Tensor:
    parts = [images[: place + 1].square().sum() for place in range(COUNT - 1)]
    return networks.net(images) * sum(parts)  # type: ignore[no-any-return]


def once(networks: Networks, images: Tensor) -> Tensor:
    return networks.net(images)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "loss",
    [
        *(layers, recurrent, of_sparse_tensors, normalised, parts_that_save_memory),
        *(updated_between_passes, changed_by_numpy, chosen, one_line, simulated, numbers_of_python),
        *(in_turn, few_of_other_shapes, once, two_losses),
        slopes_that_take_memory,
    ],
)
def test_rounds_that_need_each_other_are_not_told(
    loss: Callable[[Networks, Tensor], Tensor], networks: Networks
) -> None:
    assert found(lambda: networks.train(loss(networks, networks.images).sum()))["loop"] is None


def test_of_a_recurrent_line_only_what_needs_no_state_is_told(networks: Networks) -> None:
    ran: list[Operation] = []
    found(lambda: networks.train(recurrent_in_a_line(networks, networks.images).sum()), ran=ran)
    looped = [one for one in together([one for one in ran if one.step == 0]) if not one.backward]
    assert [one.name for one in looped] == ["mv"] * COUNT


def test_an_optimizer_that_goes_through_its_weights_is_no_loop_of_computing() -> None:
    net = nn.Sequential(*[nn.Linear(4, 4) for _ in range(COUNT)])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, foreach=False)

    def step() -> None:
        optimizer.zero_grad()
        net(torch.randn(8, 4)).sum().backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()

    assert found(step)["loop"] is None


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (lambda: torch.randn(1, 500).expand(1000, 500), 0.999),
        (lambda: torch.randn(50, 500)[torch.randint(50, (1000,))], 0.95),
        (lambda: torch.randn(1000, 500), None),
        (lambda: torch.randn(500, 500).repeat(2, 1), None),
        (lambda: torch.zeros(1000, 500), None),
        (lambda: nn.Embedding(50, 500)(torch.randint(50, (1000,))), None),
        (lambda: torch.eye(1000, 500), None),
        (lambda: nn.functional.layer_norm(nn.Embedding(50, 500)(torch.randint(50, (1000,))) * 2, (500,)), None),
        (lambda: nn.functional.pad(torch.randint(2, (4000, 64)).float(), (0, 436)), None),
    ],
)
def test_rows_that_are_mostly_equal_are_told(rows: Callable[[], Tensor], told: float | None) -> None:
    torch.manual_seed(0)
    layer = nn.Linear(500, 4)
    seen = found(lambda: layer(rows()).square().sum().backward())["alike"]
    assert (seen and seen["share"]) == (told and pytest.approx(told, abs=0.005))
    assert seen is None or {"forward", "backward"} <= seen.keys()


def squared(points: Tensor, centres: Tensor) -> Tensor:
    return (points[:, None] - centres).square().sum(2).argmin(1)


def expanded(points: Tensor, centres: Tensor) -> Tensor:
    shape = len(points), len(centres), points.shape[1]
    return (points[:, None].expand(shape) != centres.expand(shape)).float().mean(2).argmin(1)


def by_product(points: Tensor, centres: Tensor) -> Tensor:
    both = points.square().sum(1, keepdim=True) - 2 * points @ centres.T
    return (both + centres.square().sum(1)).argmin(1)


def summed(points: Tensor, centres: Tensor) -> Tensor:
    both = points.square().sum(1, keepdim=True) + centres.square().sum(1)
    return (both - 2 * points @ centres.T).argmin(1)


def kept(points: Tensor, centres: Tensor) -> Tensor:
    return (points[:, None] - centres).exp()


@pytest.mark.parametrize("distances", [squared, expanded, by_product, summed, kept])
def test_a_large_tensor_of_small_ones_that_is_reduced_at_once_is_told(
    distances: Callable[[Tensor, Tensor], Tensor],
) -> None:
    points, centres = torch.randn(2000, 16), torch.randn(1200, 16, requires_grad=True)
    seen = found(lambda: distances(points, centres))
    if distances in (squared, expanded):
        assert seen["broadcast"] is not None
        assert seen["broadcast"]["shape"] == [2000, 1200, 16]
        assert seen["broadcast"]["function"] == distances.__name__
    else:
        assert seen["broadcast"] is None


def test_images_that_are_repeated_before_a_convolution_are_told() -> None:
    layer, image = nn.Conv2d(3, 4, 3), torch.randn(1, 3, 64, 64)
    seen = found(lambda: layer(image.repeat(10, 1, 1, 1)).square().sum().backward())["alike"]
    assert seen is not None
    assert seen["share"] == pytest.approx(0.9)
