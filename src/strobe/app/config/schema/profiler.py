"""The schema of ``profiler``: what is recorded during training."""

from dataclasses import dataclass

from strobe.app.config.schema import knob


@dataclass
class ProfilerConfig:
    """What is recorded during training; null targets record nothing."""

    _target_: str | None = None
    directory: str = "tables"  # where its files go, below the run's directory


@dataclass
class TraceConfig(ProfilerConfig):
    """torch.profiler's schedule, in training steps, and its options."""

    directory: str = "tensorboard"
    tables: str | None = "tables"  # operator tables over all cycles; null: none
    skip_first: int = knob(0, min=0)
    skip_first_wait: int = knob(0, min=0)
    wait: int = knob(1, min=0)
    warmup: int = knob(1, min=0)
    active: int = knob(3, min=1)
    repeat: int = knob(2, min=0)  # 0: until the end
    record_shapes: bool = True
    profile_memory: bool = False
    with_stack: bool = False
    with_flops: bool = False
    max_mb: float | None = knob(None, above=0)  # of one trace file; records fewer steps, then without options
    keep: int | None = knob(None, min=1)  # newest traces of a rank; null: all
    stop_after: bool = False  # end training when the last cycle is recorded


@dataclass
class MemoryProfilerConfig(ProfilerConfig):
    """In which training steps allocations are recorded."""

    wait: int = knob(1, min=0)
    warmup: int = knob(1, min=0)
    active: int = knob(3, min=1)
    max_entries: int = knob(100_000, min=1)  # events that a snapshot of the GPU's memory goes back


@dataclass
class PythonProfilerConfig(ProfilerConfig):
    """How Python code is profiled, and in which training steps."""

    kind: str = knob("events", choices=["events", "sampling"])  # cProfile, or pyinstrument
    skip_first: int = knob(3, min=0)
    steps: int = knob(20, min=0)  # 0: until the end
    interval: float = knob(0.001, above=0)  # seconds between samples
