"""What an operation takes on other operands: run again, without what makes it slow."""

import math
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map, tree_map_only

from .calls import Call, Slower, is_random
from .contents import digest, has_denormals, without_denormals

VARIANTS = ("denormal", "dtype", "length", "causal", "layout", "variance")
RUNS, LONG = 2, 0.05  # of each variant: the quicker one counts; seconds of one that needs no other
AGAIN = 2  # times an operation runs again, at least
COLD = 1e-3  # seconds: what takes longer in a step than here waits for new memory, of which float32 needs less
ENOUGH = 2  # operations of one name, type and shapes, after which others are taken to be like them
MOST = 5.0  # seconds, or as many as a step has
_COPIED = 2**27  # bytes of operands and results, at most
_MANY = 256  # numbers: with fewer, hardly anything can be gained
_SINGLE = {
    torch.float64: torch.float32,
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.complex128: torch.complex64,
}
_QUICK = (2, 3, 5, 7)  # factors of a length whose Fourier transform is quick
_TRANSFORMS = {"_fft_r2c", "_fft_c2r", "_fft_c2c"}
_FUSED = "_scaled_dot_product_flash_attention_for_cpu"
_ATTENTION = {_FUSED: 4, f"{_FUSED}_backward": 7}  # the place of ``is_causal``; on a CPU it draws no random numbers
_HIDDEN = -1e4  # a mask's numbers below this hide a position
_VARIANCES = ("var", "std", "var_mean", "std_mean")
_SPARSE_PRODUCTS = ("mm", "addmm", "_sparse_addmm")  # torch.sparse.mm is the last one

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


class Variants:
    """Runs operations of a step again, as they are and with other operands.

    Only operations of torch's own that change nothing but the numbers of followed tensors, on copies. Once that has
    taken ``MOST`` seconds, or as long as a step, others are taken to gain in float32 what those of their name did, and
    so are operations whose like has been run ``ENOUGH`` times: a network has many layers of one shape.
    """

    def __init__(self) -> None:
        self._spent = 0.0
        self._tried = defaultdict[tuple[Any, ...], list[tuple[float, float]]](list)  # seconds that it saved, and took
        self._matrices = set[tuple[int, ...]]()  # sparse ones, of the step before

    def slower(self, call: Call, seconds: float, step: Mapping[str, float] | None) -> dict[str, Slower]:
        """What an operation takes longer than its variants, by kind; empty where it has none.

        - ``denormal``: with zeros in place of denormal numbers, with which processors are slow.
        - ``dtype``: in float32 in place of this ``dtype``, which may have twice the bytes, or be emulated.
        - ``length``: a Fourier transform of the next length with small prime factors; ``shape`` has both lengths.
        - ``causal``: attention that knows by ``is_causal`` what this mask of ``shape`` hides, and does not compute it.
        - ``layout``: a product with a sparse matrix of ``shape`` that is the same in each step, with its numbers stored
          by rows in place of by coordinates; of a backward pass, which transposes it, those of the transposed one.

        - ``variance``: a variance by two passes, for the mean and for squares, where torch makes one.

        What one variant saves, the next ones do not save again.

        Args:
            seconds: Of the operation, just now.
            step: The seconds of the last step's phases; None in the first step, whose sparse matrices are remembered.
        """
        if (matrix := _by_coordinates(call)) is not None:
            same = matrix._nnz(), digest(matrix._indices()), digest(matrix._values())
            if step is None:
                self._matrices.add(same)
            elif same in self._matrices and self._spent + AGAIN * seconds <= max(MOST, sum(step.values())):
                return self._by_rows(call, matrix)
            return {}
        if step is None or not _can_run_again(call):
            return {}
        dtype, shapes = _replaced(call), tuple(one.shape for one in (*call.read, *call.made))
        alike = self._tried[call.name, dtype, shapes, call.backward]
        if self._spent + AGAIN * seconds > max(MOST, sum(step.values())) or not _can_be_copied(call):
            return _estimated(alike or self._tried[call.name, dtype], seconds, dtype)
        began, slower, left = time.perf_counter(), dict[str, Slower](), math.inf
        variants = list(_variants(call, dtype))
        if len(alike) >= ENOUGH and [kind for kind, *_ in variants] == ["dtype"]:
            return _estimated(alike, seconds, dtype)
        for kind, now, then, details in variants:
            other = call._replace(func=_two_passes) if kind == "variance" else call
            before, after = _seconds(call, now), _seconds(other, then)
            if before is not None and after is not None:
                left = min(left, before)
                saved = min(before - after, left)
                left -= max(0.0, saved)
                if kind == "dtype" and dtype in (torch.float64, torch.complex128) and before > COLD:
                    saved *= max(1.0, seconds / before)
                slower[kind] = Slower(saved, details)  # negative by noise, or with a type that is slower here
                if kind == "dtype":
                    alike.append((saved, seconds))
                    self._tried[call.name, dtype].append((saved, seconds))
        self._spent += time.perf_counter() - began
        return slower

    def _by_rows(self, call: Call, matrix: Tensor) -> dict[str, Slower]:
        began, product = time.perf_counter(), call._replace(func=torch.ops.aten.mm.default)
        with warnings.catch_warnings(action="ignore", category=UserWarning):  # that it is in beta state
            stored = matrix.detach().to_sparse_csr()
        before = _seconds(call, lambda: (call.args, dict(call.kwargs)))
        after = _seconds(product, lambda: ((stored, call.read[-1].detach()), {}))
        self._spent += time.perf_counter() - began
        if before is None or after is None:
            return {}
        return {"layout": Slower(before - after, {"shape": list(matrix.shape)})}


def _by_coordinates(call: Call) -> Tensor | None:
    """The sparse matrix that a dense one is multiplied by."""
    if call.name not in _SPARSE_PRODUCTS or not call.unfollowed or not call.made or call.escapes:
        return None
    tensors = [one for one in call.arguments if isinstance(one, Tensor)]
    sparse = [one for one in tensors if one.layout is torch.sparse_coo and one.ndim == 2 and not one.dense_dim()]
    return sparse[0] if len(sparse) == 1 and tensors[-1] is not sparse[0] else None


def _estimated(tried: Sequence[tuple[float, float]], seconds: float, dtype: torch.dtype | None) -> dict[str, Slower]:
    """What an operation of so many seconds takes longer than in float32, by others that were tried."""
    saved, took = (sum(one) for one in zip(*tried, strict=True)) if tried else (0.0, 0.0)
    return {"dtype": Slower(seconds * saved / took, _named(dtype))} if took else {}


def _variants(
    call: Call, dtype: torch.dtype | None
) -> Iterator[tuple[str, Callable[[], Arguments], Callable[[], Arguments], Mapping[str, Any]]]:
    """Kinds, the arguments as they are and those of the variant, and its details; ``dtype``: what float32 replaces."""
    large = [one for one in (*call.read, *call.made) if one.numel() >= _MANY]
    as_it_is = partial(_copied, call, Tensor.clone)
    if any(has_denormals(one) for one in call.read if one.numel() >= _MANY):
        yield "denormal", as_it_is, partial(_copied, call, without_denormals), {}
    if dtype is not None:
        yield "dtype", as_it_is, partial(_in_single, call), _named(dtype)
    if large and call.name in _TRANSFORMS and not call.changed:
        lengths = _lengths(call)
        if slow := [one for one, quick in lengths.items() if one != quick]:
            shape = [max(slow), lengths[max(slow)]]
            yield "length", partial(_resized, call, {}), partial(_resized, call, lengths), {"shape": shape}
    if large and call.name in _VARIANCES:
        yield "variance", as_it_is, as_it_is, {}
    mask = call.kwargs.get("attn_mask") if call.name in _ATTENTION else None
    if mask is not None and _is_causal(mask):
        yield "causal", as_it_is, partial(_causal, call), {"shape": list(mask.shape[-2:])}


def _can_run_again(call: Call) -> bool:
    random = is_random(call.func) and call.name not in _ATTENTION
    if call.func.namespace != "aten" or call.escapes or call.unfollowed or random:
        return False
    large = any(one.numel() >= _MANY for one in (*call.read, *call.made))
    return large and torch.Tag.inplace_view not in call.func.tags


def _can_be_copied(call: Call) -> bool:
    tensors = *call.read, *call.made
    return (
        sum(one.numel() * max(one.itemsize, _SINGLE.get(one.dtype, one.dtype).itemsize) for one in tensors) <= _COPIED
    )


def _replaced(call: Call) -> torch.dtype | None:
    """The type that float32 can replace; None where a library lays out memory for it, which may be too small."""
    if call.name.startswith("mkldnn_") or any(one.dtype == torch.uint8 for one in call.read):
        return None
    tensors = *call.read, *call.made
    return next((one.dtype for one in tensors if one.numel() >= _MANY and one.dtype in _SINGLE), None)


def _named(dtype: torch.dtype | None) -> Mapping[str, Any]:
    return {"dtype": str(dtype).removeprefix("torch.")}


def _seconds(call: Call, arguments: Callable[[], Arguments]) -> float | None:
    """The seconds of the operation on these arguments, made anew for each run, as it may change them.

    None where it does not take them.
    """
    times = list[float]()
    while len(times) < RUNS and max(times, default=0.0) < LONG:
        if (seconds := _once(call, *arguments())) is None:
            return None
        times.append(seconds)
    return min(times)


def _once(call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> float | None:
    began = time.perf_counter()
    with suppress(RuntimeError):
        call.func(*args, **kwargs)
        return time.perf_counter() - began
    return None


def _copied(call: Call, copy: Callable[[Tensor], Tensor]) -> Arguments:
    args, kwargs = tree_map_only(Tensor, copy, (call.args, dict(call.kwargs)))
    return args, kwargs


def _in_single(call: Call) -> Arguments:
    def single(one: Any) -> Any:
        if isinstance(one, torch.dtype):
            return _SINGLE.get(one, one)
        if isinstance(one, Tensor):
            return one.detach().clone() if one.dtype not in _SINGLE else one.detach().to(_SINGLE[one.dtype])
        return one

    args, kwargs = tree_map(single, (call.args, dict(call.kwargs)))
    return args, kwargs


def _lengths(call: Call) -> dict[int, int]:
    """The lengths of a Fourier transform, and for each the next quick one."""
    values, dimensions, _, last = call.args
    lengths = [values.shape[one] for one in dimensions]
    if call.name == "_fft_c2r":
        lengths[-1] = last
    return {length: next(one for one in count(length) if _is_quick(one)) for length in lengths}


def _is_quick(length: int) -> bool:
    for factor in _QUICK:
        while length and length % factor == 0:
            length //= factor
    return length <= 1


def _resized(call: Call, lengths: Mapping[int, int]) -> Arguments:
    """The transform of zeros appended to its values, up to these lengths; of all others as they are."""
    values, dimensions, normalisation, last = call.args
    shape = list(values.shape)
    for one in dimensions:
        shape[one] = lengths.get(shape[one], shape[one])
    if call.name == "_fft_c2r":  # of half the frequencies
        last = lengths.get(last, last)
        shape[dimensions[-1]] = last // 2 + 1
    longer = values.new_zeros(shape)
    longer[tuple(slice(size) for size in values.shape)] = values
    return (longer, dimensions, normalisation, last), dict(call.kwargs)


def _two_passes(
    values: Tensor, dims: list[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> Tensor:
    """The variance; what else is made of it takes next to no time."""
    mean = values.mean(dims, keepdim=True)
    count = values.numel() / max(1, mean.numel()) - (1 if correction is None else correction)
    return (values - mean).square().sum(dims, keepdim=keepdim) / max(0.0, count)


def _is_causal(mask: Tensor) -> bool:
    """Whether a mask that is added to attention's scores hides from each position what comes after it, and no more."""
    leading = zip(mask.shape[:-2], mask.stride()[:-2], strict=True)
    square = mask[tuple(0 if size == 1 or step == 0 else slice(None) for size, step in leading)]
    if square.ndim != 2 or square.shape[0] != square.shape[1]:
        return False
    return torch.equal(square < _HIDDEN, torch.ones_like(square, dtype=torch.bool).triu(1)) and not square.tril().any()


def _causal(call: Call) -> Arguments:
    args, kwargs = _copied(call, Tensor.clone)
    dropout = args[3 : _ATTENTION[call.name]] or (0.0,)  # and of a backward pass what comes before
    return (*args[:3], *dropout, True), kwargs | {"attn_mask": None}
