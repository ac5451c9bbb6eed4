"""The schema of ``engine``: how loading overlaps training."""

from dataclasses import dataclass

from omegaconf import MISSING

from strobe.app.config.schema import knob


@dataclass
class EngineConfig:
    """How loading overlaps training."""

    _target_: str = MISSING
    num_workers: int = knob(0, min=0)  # processes or threads that load, for each device


@dataclass
class TorchConfig(EngineConfig):
    """Worker processes of torch's DataLoader."""

    prefetch_factor: int = knob(2, min=1)  # batches each worker keeps ready
    persistent_workers: bool = True  # keep workers between epochs
    pin_memory: bool | None = None  # null: when a GPU is used
    multiprocessing_context: str | None = knob(None, choices=["fork", "forkserver", "spawn"])


@dataclass
class SpdlConfig(EngineConfig):
    """Threads of the training process."""

    num_workers: int = knob(1, min=0)
    prefetch_factor: int = knob(2, min=1)  # batches each thread keeps ready
    pin_memory: bool | None = None  # null: when a GPU is used
    ordered: bool = True  # false: batches come as they are done, in another order each time


@dataclass
class ResidentConfig(EngineConfig):
    """The whole split on the training device; ``num_workers`` processes load it, once, and none loads later."""
