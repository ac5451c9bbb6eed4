"""The typed schema of the configuration. Imports no torch.

Hydra rejects unknown keys and wrong types by these classes; ``strobe.checks`` holds the values
against the bounds given here.
"""

from dataclasses import dataclass, field
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, OmegaConf

from strobe.launch import run_name, start_time


def knob(default: Any, **rules: Any) -> Any:
    """A field whose values are bounded: ``min``, ``max`` (inclusive), ``above``, or ``choices``."""
    return field(default=default, metadata=rules)


@dataclass
class DataConfig:
    """What is trained on."""

    _target_: str = MISSING
    form: str = knob("tiles", choices=["tiles", "array"])  # what its loaders must be able to read
    root: str = MISSING  # folder of the data set
    batch_size: int = knob(32, min=1)  # images a step and device
    val_batch_size: int | None = knob(None, min=1)  # null: as batch_size
    seed: int = knob(42, min=0)  # of the split into training, validation and test
    augment: bool = True  # random flips, crops ... of training batches, on the device


@dataclass
class TilesConfig(DataConfig):
    """Class folders of GeoTIFF tiles."""

    bands: Any = "rgb"  # rgb | all | list of indices in file order, from 0
    train_fraction: float = knob(0.8, above=0, below=1)  # the rest is halved: validation and test
    full_scale: float = knob(4000.0, above=0)  # this value becomes 1.0; greater ones are clipped


@dataclass
class SampleConfig(TilesConfig):
    """The generated stand-in for EuroSAT."""

    tiles_per_class: int = knob(60, min=10)
    generator_seed: int = knob(42, min=0)


@dataclass
class EuroSATConfig(TilesConfig):
    """EuroSAT, multispectral."""

    download: bool = False  # fetch the archive (2.1 GB) when the folder has no tiles


@dataclass
class CIFAR10Config(DataConfig):
    """CIFAR-10, held in memory."""

    form: str = knob("array", choices=["tiles", "array"])
    val_fraction: float = knob(0.1, above=0, below=1)  # of the training images
    download: bool = False
    verify: bool = True  # false accepts a subset or an altered copy


@dataclass
class LoaderConfig:
    """How files become pixels."""

    _target_: str = MISSING
    reads: list[str] = MISSING  # the forms of data it reads
    scale: str = knob("device", choices=["device", "numpy", "torch"])  # where integers become [0, 1]


@dataclass
class MemoryConfig(LoaderConfig):
    """Images already in memory."""

    batched: bool = True  # one gather a batch, or one image at a time


@dataclass
class EngineConfig:
    """How loading overlaps training."""

    _target_: str = MISSING
    num_workers: int = knob(0, min=0)  # loader processes for each device
    prefetch_factor: int = knob(2, min=1)  # batches each worker keeps ready
    persistent_workers: bool = True  # keep workers between epochs
    pin_memory: bool | None = None  # null: when a GPU is used
    multiprocessing_context: str | None = knob(None, choices=["fork", "forkserver", "spawn"])


@dataclass
class ModelConfig:
    """The network, its optimizer and its schedule."""

    _target_: str = MISSING
    stem: str = knob("imagenet", choices=["imagenet", "cifar"])  # 7x7/2 + max-pool, or 3x3/1
    weights: str | None = None  # null | imagenet | a file
    channels_last: bool = False
    compile: bool = False
    label_smoothing: float = knob(0.0, min=0, below=1)
    optimizer: str = knob("adam", choices=["adam", "adamw", "sgd"])
    lr: float = knob(1e-3, above=0)
    weight_decay: float = knob(0.0, min=0)
    fused: bool | None = None  # the optimizer's update in one kernel; null: as torch chooses
    momentum: float = knob(0.9, min=0, below=1)  # sgd without a schedule; one_cycle moves it from 0.95 to 0.85 and back
    scheduler: str = knob("none", choices=["none", "one_cycle"])
    lr_scaling: str = knob("none", choices=["none", "linear"])
    lr_batch_size: int = knob(32, min=1)  # the batch size for which lr was chosen


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


@dataclass
class CheckpointConfig:
    """Which checkpoints are kept, beside the last one."""

    monitor: str = knob("val/accuracy", choices=["val/accuracy", "val/loss"])  # the best one by this
    every_n_epochs: int = knob(1, min=1)  # how often best.ckpt and last.ckpt are looked after; and when training ends
    every_n_steps: int | None = knob(None, min=1)  # renew last.ckpt also within an epoch


@dataclass
class Config:
    """Everything a run depends on."""

    data: DataConfig = MISSING
    loader: LoaderConfig = MISSING
    engine: EngineConfig = MISSING
    model: ModelConfig = MISSING
    trainer: dict[str, Any] = MISSING  # Lightning's own arguments
    profiler: ProfilerConfig = MISSING
    logger: dict[str, Any] = MISSING  # Lightning's own arguments
    callbacks: dict[str, Any] = field(default_factory=dict)  # more Lightning callbacks, each with its _target_
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    ckpt_path: str | None = None  # a file, or last: resume from it
    seed: int = knob(42, min=0, max=2**32 - 1)  # of weights, order and augmentation
    test: bool = True  # test after training
    threads: int | None = knob(
        None, min=1
    )  # on which one operator of the training process computes; null: as torch does
    ceilings: bool = True  # after training, measure loading and computing alone, and what would be faster
    ceilings_seconds: float = knob(5.0, above=0, max=3600)  # at most for each of these measurements


SCHEMAS = (
    Config,
    DataConfig,
    TilesConfig,
    SampleConfig,
    EuroSATConfig,
    CIFAR10Config,
    LoaderConfig,
    MemoryConfig,
    EngineConfig,
    ModelConfig,
    ProfilerConfig,
    TraceConfig,
    MemoryProfilerConfig,
    PythonProfilerConfig,
)


class _Shared(dict[str, Any]):
    """The store's content, shared where Hydra would copy it all, once for each group that it lists.

    That takes most of the time of ``--help``; ``ConfigStore.load`` copies the node that it gives out anyhow.
    """

    def __deepcopy__(self, memo: dict[int, Any]) -> "_Shared":
        return self


def register() -> None:
    """Make the schemas, by their class names, and the resolvers known to Hydra, which composes conf/ on them."""
    store = ConfigStore.instance()
    store.repo = _Shared(store.repo)
    for schema in SCHEMAS:
        store.store(name=schema.__name__, node=schema)
    OmegaConf.register_new_resolver("start_time", start_time, use_cache=True, replace=True)
    OmegaConf.register_new_resolver("run_name", run_name, replace=True)
