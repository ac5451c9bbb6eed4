"""Operations that are slow because of their operands: denormal numbers, large types, awkward lengths, masks."""

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from strobe.callbacks import variants
from strobe.callbacks.calls import Call, Operation
from support.followed import found


def fading(type_: torch.dtype) -> Tensor:
    return torch.randn(200, 500, dtype=type_) * 2 * torch.finfo(type_).smallest_normal * torch.rand(500, dtype=type_)


def convolved(signal: Tensor, length: int) -> Tensor:
    kernel = torch.linspace(-9, 0, 16_000).exp()
    return torch.fft.irfft(torch.fft.rfft(signal, n=length) * torch.fft.rfft(kernel, n=length), n=length)


def circled(signal: Tensor, length: int) -> Tensor:
    return torch.fft.fft2(signal, s=(4, length)).abs()


def seconds(values: Tensor) -> float:
    began = time.perf_counter()
    torch.mm(values, torch.ones(500, 50, dtype=values.dtype))
    return time.perf_counter() - began


@pytest.mark.parametrize("type_", [torch.float32, torch.float64])
def test_numbers_that_processors_are_slow_with_are_told(type_: torch.dtype) -> None:
    torch.manual_seed(0)
    layer, signal = nn.Linear(500, 50, dtype=type_), fading(type_)
    if min(seconds(signal) for _ in range(5)) < 3 * min(seconds(signal * 0) for _ in range(5)):
        pytest.skip("intended: this processor is as fast with denormal numbers")
    before = signal.clone()
    told = found(lambda: layer(signal).square().sum().backward())["denormal"]
    assert told is not None
    assert {"forward", "backward"} <= told.keys()
    assert told["function"].endswith("_are_told")
    assert torch.equal(signal, before)


@pytest.mark.parametrize("type_", [torch.float32, torch.float64])
def test_what_runs_again_changes_nothing_else(type_: torch.dtype) -> None:
    mean, same = torch.full((2000,), 2e-38, dtype=type_), torch.full((2000,), 2e-38, dtype=type_)
    found(lambda: mean.mul_(0.6))  # three steps
    for _ in range(3):
        same.mul_(0.6)
    assert 0 < mean[0] < torch.finfo(torch.float32).smallest_normal
    assert torch.equal(mean, same)


@pytest.mark.parametrize("transform", [convolved, circled])
@pytest.mark.parametrize(("length", "told"), [(47_999, [47_999, 48_000]), (48_000, None)])
def test_fourier_transforms_of_awkward_lengths_are_told(
    transform: Callable[[Tensor, int], Tensor], length: int, told: list[int] | None
) -> None:
    signal = torch.randn(4, 32_000, requires_grad=True)
    kind = found(lambda: transform(signal, length).square().sum().backward())["length"]
    assert (kind and kind["shape"]) == told
    if kind:
        assert {"forward", "backward"} <= kind.keys()
        assert kind["function"] == transform.__name__


def test_what_changes_its_shape_or_a_given_tensor_is_not_run_again() -> None:
    signal, spectrum = torch.randn(4099, dtype=torch.float64), torch.empty(2050, dtype=torch.complex128)

    def step() -> None:
        torch.fft.rfft(signal, out=spectrum)
        signal.clone().unsqueeze_(0).squeeze_(0)

    assert found(step)["length"] is None
    assert torch.equal(spectrum, torch.fft.rfft(signal))


@pytest.mark.parametrize("type_", [torch.float64, torch.float32])
def test_operations_on_numbers_of_twice_the_bytes_are_told(type_: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    def by_bytes(_: object, arguments: Callable[[], variants.Arguments]) -> float:
        return sum(one.nbytes for one in tree_leaves(arguments()) if isinstance(one, Tensor)) / 1e9

    monkeypatch.setattr(variants, "_seconds", by_bytes)  # whatever else the machine does
    weights, values = torch.randn(500, 500, requires_grad=True), torch.randn(2000, 500)

    def step() -> None:
        (values.to(type_) @ weights.to(type_)).tanh().square().sum().backward()

    kind = found(step)["dtype"]
    if type_ is torch.float32:
        assert kind is None
    else:
        assert kind is not None
        assert {"forward", "backward"} <= kind.keys()
        assert (kind["dtype"], kind["function"]) == ("float64", "step")


@pytest.mark.parametrize("times", [1.2, 3.0])
def test_a_type_that_is_faster_in_another_phase_is_judged_by_both(
    times: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    def faster_forward(call: Call, arguments: Callable[[], variants.Arguments]) -> float:
        doubles = any(one.dtype == torch.float64 for one in tree_leaves(arguments()) if isinstance(one, Tensor))
        return 1e-6 * ((2.0 if doubles else 1.0) if not call.backward else (1.0 if doubles else times))

    monkeypatch.setattr(variants, "_seconds", faster_forward)
    weights, values = (torch.randn(500, 500, dtype=torch.float64, requires_grad=True) for _ in range(2))
    kind = found(lambda: (values @ weights).backward(torch.ones_like(values)))["dtype"]  # one operation, and then two
    assert kind is not None
    assert ("forward" in kind) == (times < 2)
    assert "backward" not in kind


def test_little_time_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    values = torch.randn(500, 500, dtype=torch.float64)
    assert found(lambda: values @ values)["dtype"] is not None
    monkeypatch.setattr(variants, "MOST", 0.0)
    assert found(lambda: values @ values)["dtype"] is None


def test_layers_of_one_shape_are_told_by_the_first_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """And once there is no time left, others of that name."""
    values, wide, runs = torch.randn(300, 300, dtype=torch.float64), torch.randn(300, 600, dtype=torch.float64), [0]

    def half(_: object, arguments: Callable[[], variants.Arguments]) -> float:
        runs[0] += 1
        return sum(one.nbytes for one in tree_leaves(arguments()) if isinstance(one, Tensor)) / 1e12

    monkeypatch.setattr(variants, "_seconds", half)
    ran = list[Operation]()
    found(lambda: [values @ values for _ in range(6)], ran=ran)
    assert ["dtype" in one.slower for one in ran if one.name == "mm"][-6:] == [True] * 6
    assert runs == [2 * variants.ENOUGH]
    monkeypatch.setattr(variants, "_COPIED", 2 * wide.nbytes)  # too large to be run again
    ran.clear()
    found(lambda: [values @ values, values @ wide], ran=ran)
    small, large = [one for one in ran if one.name == "mm"][-2:]
    shares = [one.slower["dtype"].seconds / one.seconds for one in (small, large)]
    assert shares[0] == pytest.approx(shares[1])


def test_what_a_library_lays_out_for_a_type_is_not_read_as_another() -> None:
    """The workspace of oneDNN's recurrent layers, which are compiled for 16 bits, too."""
    layer, ran = nn.LSTM(32, 32).to(torch.bfloat16), list[Operation]()
    values = torch.randn(20, 8, 32, dtype=torch.bfloat16)
    found(lambda: layer(values)[0].sum().backward(), ran=ran)
    recurrent = [one for one in ran if "rnn_layer" in one.name]
    if not recurrent:
        pytest.skip("intended: this processor has no such layers")
    assert not any("dtype" in one.slower for one in recurrent)


class Noting(TorchDispatchMode):
    """Somebody else's."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def test_somebody_elses_mode_sees_the_training_alone() -> None:
    values = torch.randn(500, 500, dtype=torch.float64)
    with Noting() as around:
        found(lambda: values @ values)
    assert around.names == 3 * ["aten.mm.default"]
    inside = Noting()

    def step() -> Tensor:
        with inside:
            return values @ values

    assert found(step)["dtype"] is not None
    assert inside.names == 3 * ["aten.mm.default"]


def test_ordinary_numbers_are_no_denormal_ones() -> None:
    assert found(lambda: torch.randn(2000, 500).square())["denormal"] is None


SQUARE = nn.Transformer.generate_square_subsequent_mask(1024)
PADDED = SQUARE.clone()
PADDED[:, 0] = -torch.inf


@pytest.mark.parametrize(
    ("mask", "causal", "told"),
    [
        (SQUARE, False, [1024, 1024]),
        (SQUARE.expand(2, 1, -1, -1), False, [1024, 1024]),
        (SQUARE == 0, False, [1024, 1024]),
        (torch.stack([SQUARE, PADDED])[:, None], False, None),
        (PADDED, False, None),
        (torch.zeros(1024, 1024), False, None),
        (None, True, None),
        (None, False, None),
    ],
)
def test_attention_to_what_a_causal_mask_hides_is_told(
    mask: Tensor | None, causal: bool, told: list[int] | None
) -> None:
    torch.manual_seed(0)
    values = torch.randn(2, 2, 1024, 16, requires_grad=True)
    ran: list[Operation] = []

    def step() -> None:
        nn.functional.scaled_dot_product_attention(values, values, values, mask, is_causal=causal).sum().backward()

    found(step, ran=ran)
    tried = [(one.name.endswith("_backward"), one.slower["causal"]) for one in ran if "causal" in one.slower]
    assert [backward for backward, _ in tried] == ([False, True] if told else [])
    assert all(one.details == {"shape": told} for _, one in tried)


@pytest.mark.parametrize("given", [{"dim": 1}, {"dim": (0, 2), "correction": 0, "keepdim": True}, {}])
def test_variances_are_compared_with_two_passes_that_compute_the_same(given: dict[str, Any]) -> None:
    values, ran = torch.randn(8, 50, 40, requires_grad=True), list[Operation]()

    def step() -> None:
        (values.var(**given).sum() + values.std(**given).sum() + values.mean()).backward()

    found(step, ran=ran)
    assert [one.name for one in ran if "variance" in one.slower] == ["var", "std"]
    dims = given.get("dim")
    others = {key: value for key, value in given.items() if key != "dim"}
    two = variants._two_passes(values, None if dims is None else [dims] if isinstance(dims, int) else [*dims], **others)
    torch.testing.assert_close(two, values.var(**given))


@pytest.mark.parametrize("each_step", [False, True])
@pytest.mark.parametrize("multiply", [torch.sparse.mm, torch.mm])
@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
def test_products_with_a_matrix_by_coordinates_are_compared_with_those_by_rows(
    multiply: Callable[[Tensor, Tensor], Tensor], each_step: bool
) -> None:
    """Where it is the same in each step: to convert it takes longer than one product."""
    torch.manual_seed(0)
    weights, ran = torch.randn(500, 16, requires_grad=True), list[Operation]()

    places, same = torch.stack([torch.arange(5000) % 500, torch.arange(5000) % 400]), list[Tensor]()
    same.append(torch.sparse_coo_tensor(places, torch.rand(5000), (500, 400)).coalesce())

    def step() -> None:
        if each_step:
            same[0] = torch.sparse_coo_tensor(places, torch.rand(5000), (500, 400)).coalesce()
        multiply(same[0].t(), weights).square().sum().backward()

    found(step, ran=ran)
    tried = [(one.autograd.graph_task != -1, one.slower["layout"]) for one in ran if "layout" in one.slower]
    assert [backward for backward, _ in tried] == ([] if each_step else [False, True])
    assert [one.details["shape"] for _, one in tried] == ([] if each_step else [[400, 500], [500, 400]])
