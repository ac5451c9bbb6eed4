"""The accelerator that is trained on: CUDA (also AMD's), XPU or MPS, whose modules of torch have much in common.

``torch.accelerator`` says less of each, and only from torch 2.6 on.
"""

from typing import Any

import torch
from torch.profiler import ProfilerActivity

PINNING = ("cuda", "xpu")  # to which copies from pinned memory are faster


def module_of(device: torch.device) -> Any:
    """``torch.cuda``, ``torch.xpu`` or ``torch.mps``; also ``torch.cpu``, which has little of theirs."""
    return getattr(torch, device.type, None)


def is_accelerator(device: torch.device) -> bool:
    """Whether work given to the device is done later, and events tell when."""
    return device.type != "cpu" and hasattr(module_of(device), "Event")


def in_use() -> torch.device | None:
    """The accelerator that this process has begun to use; asking begins nothing. Of MPS it is not known."""
    for kind in PINNING:
        module = getattr(torch, kind, None)
        if module is not None and module.is_initialized():
            return torch.device(kind, module.current_device())
    return None


def is_capturing() -> bool:
    """Whether a CUDA graph is being captured now in the current stream: to ask for an event would break it."""
    used = in_use()
    return used is not None and bool(getattr(module_of(used), "is_current_stream_capturing", bool)())


def is_filled(device: torch.device) -> bool:
    """Whether torch keeps tensors on an accelerator that is in use; True where its allocator does not tell."""
    try:
        return bool(module_of(device).memory_allocated(device))
    except RuntimeError:
        return True


def synchronize(device: torch.device) -> None:
    """Wait for all work that the device was given; a CPU has none."""
    if is_accelerator(device):
        module_of(device).synchronize(*[device] * (device.type in PINNING))


def empty_cache(device: torch.device) -> None:
    """Give memory back that torch keeps for later."""
    if is_accelerator(device):
        module_of(device).empty_cache()


def activities(device: torch.device) -> list[ProfilerActivity]:
    """What torch.profiler can record of work on the device."""
    kinds = ["CPU", *[device.type.upper()] * (device.type in PINNING)]
    return [getattr(ProfilerActivity, kind) for kind in kinds]
