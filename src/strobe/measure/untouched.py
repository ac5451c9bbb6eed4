"""Lets measurements leave no trace in this process."""

import gc
import random
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import torch

from strobe.callbacks.accelerators import in_use, module_of


def matmul_precision() -> str:
    """How torch multiplies float32 matrices, as ``torch.set_float32_matmul_precision`` names it.

    After ``torch.backends.cuda.matmul.fp32_precision`` was set (torch >= 2.9), torch's own getter may raise.
    """
    return _told() or ("high" if torch.backends.cuda.matmul.fp32_precision == "tf32" else "highest")


def _told() -> str | None:
    with suppress(RuntimeError):
        return torch.get_float32_matmul_precision()
    return None


def kernels_kept() -> Callable[[], None]:
    """Call what this returns to choose kernels as torch does now: cuDNN's flags, digits of float32 products."""
    cudnn = torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic
    both: list[Any] = [torch.backends.cuda.matmul, getattr(torch.backends.mkldnn, "matmul", None)]  # devices' products
    digits, matmuls = _told(), {one: one.fp32_precision for one in both if hasattr(one, "fp32_precision")}

    def restore() -> None:
        torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic = cudnn
        if digits is not None and _told() != digits:
            torch.set_float32_matmul_precision(digits)
        for one, value in matmuls.items():
            if one.fp32_precision != value:
                one.fp32_precision = value

    return restore


@contextmanager
def untouched(threads: int | None = None) -> Iterator[None]:
    """Restore random states (torch's, NumPy's, Python's), torch's threads and its flags, however the block ends.

    ``threads``: for each operator within the block; None: as many as before.
    """
    accelerator = in_use()
    devices = module_of(accelerator).get_rng_state_all() if accelerator else []
    states = torch.get_rng_state(), np.random.get_state(), random.getstate()
    before = torch.get_num_threads()
    restore_kernels = kernels_kept()
    strict = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    if threads is not None:
        torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(strict[0], warn_only=strict[1])
        restore_kernels()
        if torch.get_num_threads() != before:
            torch.set_num_threads(before)
        torch.set_rng_state(states[0])
        np.random.set_state(states[1])
        random.setstate(states[2])
        if accelerator:
            module_of(accelerator).set_rng_state_all(devices)


def let_go(error: BaseException) -> None:
    """Free what an exception's frames hold: loader processes, memory on the device."""
    link: BaseException | None = error
    while link is not None:
        traceback.clear_frames(link.__traceback__)
        link = link.__cause__ or link.__context__
    gc.collect()
