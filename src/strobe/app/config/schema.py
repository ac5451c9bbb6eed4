"""The typed schema of the configuration, group by group. Imports no torch.

Hydra rejects unknown keys and wrong types by these classes; ``checks`` holds values against the bounds given here.
"""

from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING

from strobe.tune.dimensions import OVER

PUBLISHED = {  # of ``data``: its name, where it is fetched from, and how much that is
    "eurosat": ("EuroSAT", "https://zenodo.org/records/7711810/files/EuroSAT_MS.zip?download=1", "2.1 GB"),
    "cifar10": ("CIFAR-10", "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz", "170 MB"),
}


def knob(default: Any, **rules: Any) -> Any:
    """A field whose values are bounded: ``min``, ``max`` (inclusive), ``above``, ``below``, or ``choices``."""
    return field(default=default, metadata=rules)


@dataclass
class DataConfig:
    """What is trained on."""

    _target_: str = MISSING
    form: str = knob("tiles", choices=["tiles", "photos", "array"])  # what its loaders must be able to read
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

    tiles_per_class: int = knob(60, min=10)  # images of each of the ten classes
    generator_seed: int = knob(42, min=0)  # of the tiles


@dataclass
class EuroSATConfig(TilesConfig):
    """EuroSAT, multispectral."""

    download: bool = False  # fetch the archive (2.1 GB) when the folder has no tiles


@dataclass
class CIFAR10Config(DataConfig):
    """CIFAR-10, held in memory."""

    form: str = knob("array", choices=["tiles", "photos", "array"])
    val_fraction: float = knob(0.1, above=0, below=1)  # of the training images
    download: bool = False  # fetch the archive (170 MB) when the folder has no images
    verify: bool = True  # false accepts a subset or an altered copy


USUAL_FRAMING = "random_resized_crop"


@dataclass
class ImageFolderConfig(DataConfig):
    """Class folders of photos."""

    form: str = knob("photos", choices=["tiles", "photos", "array"])
    # the whole photo, or a random part of it in each epoch; null: random_resized_crop, or resize of photos below 224
    framing: str | None = knob(None, choices=["resize", "random_crop", USUAL_FRAMING])
    # side of the square that a photo becomes, in pixels; null: 224, or the shorter side of photos that are smaller
    size: int | None = knob(None, min=8, max=4096)
    train_fraction: float = knob(0.8, above=0, below=1)  # as of tiles; where train/ and val/ are given, not used


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
    # how workers start; null: as Linux does
    multiprocessing_context: str | None = knob(None, choices=["fork", "forkserver", "spawn"])


@dataclass
class SpdlConfig(EngineConfig):
    """Threads of the training process."""

    num_workers: int = knob(1, min=0)  # threads that load, for each device
    prefetch_factor: int = knob(2, min=1)  # batches each thread keeps ready
    pin_memory: bool | None = None  # null: when a GPU is used
    ordered: bool = True  # false: batches come as they are done, in another order each time


@dataclass
class ResidentConfig(EngineConfig):
    """The whole split on the training device; ``num_workers`` processes load it, once, and none loads later."""


@dataclass
class ModelConfig:
    """The network, its optimizer and its schedule."""

    _target_: str = MISSING
    stem: str = knob("imagenet", choices=["imagenet", "cifar"])  # 7x7/2 + max-pool, or 3x3/1
    weights: str | None = None  # null | imagenet | a file
    channels_last: bool = False  # memory layout of images and weights
    compile: bool = False  # torch.compile
    label_smoothing: float = knob(0.0, min=0, below=1)  # share of a label that is spread over all classes
    optimizer: str = knob("adam", choices=["adam", "adamw", "sgd"])  # of torch.optim
    lr: float = knob(1e-3, above=0)  # learning rate
    weight_decay: float = knob(0.0, min=0)  # of the optimizer
    fused: bool | None = None  # the optimizer's update in one kernel; null: as torch chooses
    momentum: float = knob(0.9, min=0, below=1)  # sgd without a schedule; one_cycle moves it from 0.95 to 0.85 and back
    scheduler: str = knob("none", choices=["none", "one_cycle"])  # of the learning rate
    lr_scaling: str = knob("none", choices=["none", "linear"])  # linear: lr grows with the batch, from lr_batch_size on
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
    skip_first: int = knob(0, min=0)  # steps before the first cycle
    skip_first_wait: int = knob(0, min=0)  # 1: the first cycle does not wait
    wait: int = knob(1, min=0)  # steps of a cycle that are not profiled
    warmup: int = knob(1, min=0)  # steps that are profiled and thrown away
    active: int = knob(3, min=1)  # steps that are recorded
    repeat: int = knob(2, min=0)  # 0: until the end
    record_shapes: bool = True  # of the operators' inputs
    profile_memory: bool = False  # allocations
    with_stack: bool = False  # which line of Python called an operator
    with_flops: bool = False  # estimated floating-point operations
    max_mb: float | None = knob(None, above=0)  # of one trace file; records fewer steps, then without options
    keep: int | None = knob(None, min=1)  # newest traces of a rank; null: all
    stop_after: bool = False  # end training when the last cycle is recorded


@dataclass
class MemoryProfilerConfig(ProfilerConfig):
    """In which training steps allocations are recorded."""

    wait: int = knob(1, min=0)  # steps that are not recorded
    warmup: int = knob(1, min=0)  # steps more that are not recorded
    active: int = knob(3, min=1)  # steps that are recorded
    max_entries: int = knob(100_000, min=1)  # events that a snapshot of the GPU's memory goes back


@dataclass
class PythonProfilerConfig(ProfilerConfig):
    """How Python code is profiled, and in which training steps."""

    kind: str = knob("events", choices=["events", "sampling"])  # cProfile, or pyinstrument
    skip_first: int = knob(3, min=0)  # steps that are not profiled
    steps: int = knob(20, min=0)  # 0: until the end
    interval: float = knob(0.001, above=0)  # seconds between samples


@dataclass
class SweepConfig:
    """How ``hydra/launcher=processes`` measures the cells of a sweep."""

    repeats: int = knob(1, min=1, max=1000)  # runs of each cell: each round visits all cells, in another order
    seed: int = knob(0, min=0)  # of these orders
    timeout_seconds: float | None = knob(None, above=0)  # of one run, which has failed then
    baseline: str | None = None  # what cells are compared with: one of them, or another sweep; null: the first cell
    fail_if_slower: str | None = None  # such as 5%: exit with 0 only if each cell is shown to lose less than that


@dataclass
class TuneConfig:
    """What is searched, and how long."""

    budget: str = "10m"  # of measuring: 120s, 10m, 1h
    over: list[str] | None = knob(None, choices=list(OVER))  # null: all that applies here
    save: str | None = None  # write conf/experiment/NAME.yaml with what was found
    look_seconds: float = knob(6.0, above=0, max=3600)  # of training, before ceilings are measured
    ceilings_seconds: float = knob(1.0, above=0, max=3600)  # at most for each of these measurements
    turns: int = knob(6, min=4, max=100)  # of each side in a comparison; up to four times as many if it is close
    turn_seconds: float = knob(1.0, above=0, max=600)  # of a turn; two steps at least
    timeout_seconds: float = knob(600.0, above=0, max=86400)  # of one training, or of what it prepares


@dataclass
class SuiteConfig:
    """A benchmark suite."""


@dataclass
class LoadingSuiteConfig(SuiteConfig):
    """Loaders, batch sizes, threads."""

    tables: list[str] | None = knob(None, choices=["load", "floors", "crop_policies"])  # null: all that fit the data
    loaders: list[str] | None = None  # such as [skimage,"skimage loader.scale=torch"]; null: all that fit the data
    batch_sizes: list[int] | None = knob(None, min=1)  # images a batch; null: 1, 32, 64 and 1024
    threads: list[int] | None = knob(None, min=1)  # of torch, and of loader=native and packed
    batches: int = knob(10, min=1)  # that one repetition loads
    cold_batch_size: int | None = knob(32, min=1)  # also measured with files that are not in the page cache; null: none


@dataclass
class CropSuiteConfig(SuiteConfig):
    """Decoders of crops; workers of a training step."""

    decoders: list[str] | None = knob(None, choices=["pil", "torchvision", "spdl", "native"])  # null: all
    workers: list[int] | None = knob(None, min=1)  # processes that prepare a step's crops; null: 1
    batch_size: int = knob(16, min=1)  # crops of a training step


@dataclass
class TrainingSuiteConfig(SuiteConfig):
    """Changes that make a training faster, one after the other."""

    devices: list[str] | None = knob(None, choices=["cpu", "gpu"])  # null: those that there are
    batch_size: int = knob(32, min=2)  # of the first rows
    workers: int | None = knob(None, min=1)  # null: 8, or 2 in quick mode
    large_batch: int | None = knob(None, min=2)  # null: 2048, or 128 in quick mode
    best: list[str] | None = None  # overrides of the last row, such as ["engine=resident","data.batch_size=512"]


@dataclass
class EnginesSuiteConfig(SuiteConfig):
    """Engines, numbers of workers, memory."""

    tables: list[str] | None = knob(None, choices=["engines", "buffers", "training"])  # null: all
    loaders: list[str] | None = None  # of the engines, such as [native]; null: those of the data's form
    workers: list[int] | None = knob(None, min=0)  # null: 0, 1, 2 and 4
    batch_sizes: list[int] | None = knob(None, min=1)  # of the buffers; null: 1, 32, 64 and 1024


@dataclass
class ProfilingSuiteConfig(SuiteConfig):
    """Profilers, each beside the same steps without it."""

    tables: list[str] | None = knob(None, choices=["callbacks", "traces", "spans", "python"])  # null: all


@dataclass
class OverheadSuiteConfig(SuiteConfig):
    """Ways of training: a plain loop, the application, timers, traces."""


@dataclass
class WorkersSuiteConfig(SuiteConfig):
    """Pipelines from photos to batches; worker processes or threads."""

    pipelines: list[str] | None = None  # such as [torch,spdl,"strobe loader.dct_scaling=false"]; null: all
    workers: list[int] | None = knob(None, min=1)  # null: of 1, 2, 4 ... 32 those for which there are cores, and 4
    # null: transfer only with a GPU
    stages: list[str] | None = knob(None, choices=["resize", "batch", "normalise", "transfer"])


@dataclass
class ConvolutionSuiteConfig(SuiteConfig):
    """Implementations and sizes of images."""

    implementations: list[str] | None = None  # such as ["four loops",native]; null: all
    sizes: list[int] | None = knob(None, min=1)  # sides of square images, pixels
    kernel: int = knob(3, min=1)  # its side


@dataclass
class CheckpointConfig:
    """Which checkpoints a run writes, and keeps when it has completed."""

    # weights: best.ckpt; resume: best.ckpt and last.ckpt, with all that going on needs; auto: as docs/runs.md says
    save: str = knob("auto", choices=["auto", "weights", "resume", "none"])
    monitor: str = knob("val/accuracy", choices=["val/accuracy", "val/loss"])  # the best one by this
    every_n_epochs: int = knob(1, min=1)  # save after so many epochs, and when training ends
    every_n_steps: int | None = knob(None, min=1)  # save last.ckpt also after so many steps


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
    ckpt_path: str | None = None  # resume from this file; last: from the newest last.ckpt
    seed: int = knob(42, min=0, max=2**32 - 1)  # of weights, order and augmentation
    test: bool = True  # test after training
    threads: int | None = knob(None, min=1)  # that each operator of training computes on; null: as torch does
    # after training, measure loading and computing alone, and what would be faster; null: yes, but not in a sweep
    ceilings: bool | None = None
    ceilings_seconds: float = knob(5.0, above=0, max=3600)  # for each of these measurements, at most
    sweep: SweepConfig = field(default_factory=SweepConfig)  # of train.py -m; its runs do not get these keys


@dataclass
class BenchConfig(Config):
    """What ``python -m strobe.bench`` measures, and how much; null: as the suite's mode has it."""

    suite: SuiteConfig = MISSING
    quick: bool = False  # under a minute on two cores, to see that it works
    rounds: int | None = knob(None, min=1, max=1000)  # trials of each cell, at most
    turn_seconds: float | None = knob(None, above=0, max=3600)  # timed in a trial; one repetition at least
    budget_seconds: float | None = knob(None, min=0)  # after which nothing but a cell's first trial begins
    precision: float = knob(0.02, min=0, below=1)  # a cell is done when its 95% interval is so near, as a share
    timeout_seconds: float = knob(900.0, above=0, max=86400)  # of one trial
    baseline: str | None = None  # an earlier results.json, or its folder, to compare with
    fail_if_slower: str | None = None  # such as 5%: exit with code 3 if a cell is that much slower than in baseline


@dataclass
class TuningConfig(Config):
    """What ``python -m strobe.tune`` starts from, and searches."""

    tune: TuneConfig = field(default_factory=TuneConfig)
