"""The schema of ``loader``: how files become pixels."""

from dataclasses import dataclass

from omegaconf import MISSING

from strobe.app.config.schema import knob


@dataclass
class LoaderConfig:
    """How files become pixels."""

    _target_: str = MISSING
    reads: list[str] = MISSING  # the forms of data it reads
    copies: bool = False  # whether its first use writes a copy of the set; findings do not try such a one
    scale: str = knob("device", choices=["device", "numpy", "torch"])  # where integers become [0, 1]


@dataclass
class MemoryConfig(LoaderConfig):
    """Images already in memory."""

    batched: bool = True  # one gather a batch, or one image at a time


@dataclass
class NativeConfig(LoaderConfig):
    """The project's own operators."""

    threads: int | None = knob(None, min=1)  # that read one batch; null: as torch computes on, one in a worker
    dct_scaling: bool = True  # shrink photos while they are decoded


@dataclass
class PackedConfig(LoaderConfig):
    """Images from one memory-mapped file, which is made of the set on first use."""

    directory: str = "data/packed"  # where packs are kept, each as large as its set's pixels
    verify: bool = False  # hold a pack's pixels against their checksum before they are used
