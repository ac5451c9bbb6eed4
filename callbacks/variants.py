"""What an operation takes on other operands: run again, without what makes it slow."""

import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map, tree_map_only

from .calls import Call, Slower, is_random
from .contents import has_denormals, without_denormals

VARIANTS = ("denormal", "dtype", "length")
RUNS, LONG = 2, 0.05  # of each variant: the quicker one counts; seconds of one that needs no other
_COPIED = 2**28  # bytes of operands and results, at most
_MANY = 256  # numbers: with fewer, hardly anything can be gained
_SINGLE = {
    torch.float64: torch.float32,
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.complex128: torch.complex64,
}
_QUICK = (2, 3, 5, 7)  # factors of a length whose Fourier transform is quick
_TRANSFORMS = {"_fft_r2c", "_fft_c2r", "_fft_c2c"}

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def slower_than_variants(call: Call) -> dict[str, Slower]:
    """What an operation takes longer than its variants, by kind; empty where it has none.

    - ``denormal``: with zeros in place of denormal numbers, with which processors are slow.
    - ``dtype``: in float32 in place of this ``dtype``, which may have twice the bytes, or be emulated.
    - ``length``: a Fourier transform of the next length with small prime factors only; ``shape`` has both lengths.

    It runs again for that, on copies; only an operation of torch's own that changes nothing but the numbers of followed
    tensors. What one variant saves, the next ones do not save again.
    """
    if call.func.namespace != "aten" or call.escapes or call.unfollowed or not _can_run_again(call):
        return {}
    read, made = ([one for one in tensors if one.numel() >= _MANY] for tensors in (call.read, call.made))
    if not (read or made) or sum(one.nbytes for one in (*call.read, *call.made)) > _COPIED:
        return {}
    as_it_is = partial(_copied, call, Tensor.clone)
    variants = dict[str, tuple[Callable[[], Arguments], Callable[[], Arguments], Mapping[str, Any]]]()
    if any(has_denormals(one) for one in read):
        variants["denormal"] = as_it_is, partial(_copied, call, without_denormals), {}
    other = next((one.dtype for one in (*read, *made) if one.dtype in _SINGLE), None)
    if other is not None:
        variants["dtype"] = as_it_is, partial(_in_single, call), {"dtype": str(other).removeprefix("torch.")}
    if call.name in _TRANSFORMS and not call.changed:
        lengths = _lengths(call)
        if slow := [one for one, quick in lengths.items() if one != quick]:
            shape = [max(slow), lengths[max(slow)]]
            variants["length"] = partial(_resized, call, {}), partial(_resized, call, lengths), {"shape": shape}
    slower, left = {}, math.inf
    for kind, (now, then, details) in variants.items():
        with suppress(RuntimeError):  # of an operation that takes no other operands
            seconds = _seconds(call, now)
            left = min(left, seconds)
            saved = min(seconds - _seconds(call, then), left)
            left -= max(0.0, saved)
            # The type is changed for all operations alike, also for those that it makes slower.
            slower[kind] = Slower(saved if kind == "dtype" else max(0.0, saved), details)
    return slower


def _can_run_again(call: Call) -> bool:
    return not is_random(call.func) and torch.Tag.inplace_view not in call.func.tags


def _seconds(call: Call, arguments: Callable[[], Arguments]) -> float:
    """The seconds of the operation on these arguments, made anew for each run, as it may change them."""
    times = list[float]()
    while len(times) < RUNS and max(times, default=0.0) < LONG:
        args, kwargs = arguments()
        began = time.perf_counter()
        call.func(*args, **kwargs)
        times.append(time.perf_counter() - began)
    return min(times)


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
