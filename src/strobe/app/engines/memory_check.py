"""Whether whole splits fit into the memory of a device."""

from collections.abc import Mapping
from pathlib import Path

import torch

from strobe.errors import ConfigError


def require_memory(splits: Mapping[str, int], batches: int, device: torch.device) -> None:
    """Raise a :class:`ConfigError` when splits, and batches of them, do not fit into the memory of the device.

    Args:
        splits: the bytes of each.
        batches: bytes.
        device: where they go to.
    """
    free = free_memory(device)
    needed = sum(splits.values()) + batches
    if free is not None and needed > free:
        parts = ", ".join(f"{split} {in_words(size)}" for split, size in splits.items())
        raise ConfigError(
            f"engine=resident does not fit: the images take {in_words(needed)} ({parts}, batches {in_words(batches)}), "
            f"and {in_words(free)} are free on {device}; set engine=torch, or load fewer bands or smaller images"
        )


def free_memory(
    device: torch.device, *, meminfo: Path = Path("/proc/meminfo"), cgroup: Path = Path("/sys/fs/cgroup")
) -> int | None:
    """Bytes that can still be allocated: on a GPU, or in this container (cgroup v2); None where nothing tells."""
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + unused
    found: list[int] = []
    try:
        lines = (line.partition(":") for line in meminfo.read_text().splitlines())
        found += [int(value.split()[0]) * 1024 for name, _, value in lines if name == "MemAvailable"]
    except OSError:
        pass
    try:
        limit, used = ((cgroup / f"memory.{name}").read_text().strip() for name in ("max", "current"))
        statistics = dict(line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
        cached = int(statistics.get("inactive_file", 0))  # given back when it is needed
        found += [] if limit == "max" else [max(0, int(limit) - int(used) + cached)]
    except (OSError, ValueError):
        pass
    return min(found, default=None)


def in_words(count: int) -> str:
    """Bytes as GB, MB or kB."""
    unit, name = next((pair for pair in ((1e9, "GB"), (1e6, "MB")) if count >= pair[0]), (1e3, "kB"))
    return f"{count / unit:,.1f} {name}"
