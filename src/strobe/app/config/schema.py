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
    form: str = knob("tiles", choices=["tiles", "photos", "array"])  # what its files are
    root: str = MISSING  # folder of the data set
    batch_size: int = knob(32, min=1)  # images per step, on each device
    val_batch_size: int | None = knob(None, min=1)  # the same in validation and test; null: as batch_size
    seed: int = knob(42, min=0)  # seed of the split into training, validation and test
    augment: bool = True  # random flips, crops and the like, on the device


@dataclass
class TilesConfig(DataConfig):
    """Class folders of GeoTIFF tiles."""

    bands: Any = "rgb"  # rgb | all | a list of indices from 0, in file order
    # share of the images; the rest is halved into validation and test
    train_fraction: float = knob(0.8, above=0, below=1)
    full_scale: float = knob(4000.0, above=0)  # pixel value that becomes 1.0; larger ones are clipped


@dataclass
class SampleConfig(TilesConfig):
    """The generated stand-in for EuroSAT."""

    tiles_per_class: int = knob(60, min=10)  # images of each of the ten classes
    generator_seed: int = knob(42, min=0)  # seed of the tiles


@dataclass
class StorageConfig(DataConfig):
    """Data whose root may be an address in storage, such as s3://bucket/folder."""

    endpoint: str | None = None  # address of a server that speaks S3; null: AWS's own
    requests: int = knob(128, min=1, max=1024)  # objects asked for at once, by each process
    timeout_seconds: float = knob(60.0, above=0, max=3600)  # longest time for one object, all tries together
    cache: str | None = None  # folder on the local disk that keeps fetched objects; null: none
    cache_gb: float = knob(50.0, above=0)  # most that this folder holds, in GB


@dataclass
class EuroSATConfig(TilesConfig, StorageConfig):
    """EuroSAT, multispectral."""

    download: bool = False  # download the archive (2.1 GB) if the folder has no tiles


@dataclass
class CIFAR10Config(DataConfig):
    """CIFAR-10, held in memory."""

    form: str = knob("array", choices=["tiles", "photos", "array"])
    val_fraction: float = knob(0.1, above=0, below=1)  # share of the training images that is for validation
    download: bool = False  # download the archive (170 MB) if the folder has no images
    verify: bool = True  # check the files against their published checksums; false: take any


USUAL_FRAMING = "random_resized_crop"
ONE_CROP = (
    "{choice} keeps one crop of each photo, but data.framing={framing} takes a new one in each epoch; set "
    "data.framing=resize, or make another choice"
)


@dataclass
class ImageFolderConfig(StorageConfig):
    """Class folders of photos."""

    form: str = knob("photos", choices=["tiles", "photos", "array"])
    # resize: the whole photo; the others: a random part of it in each epoch; null: resize if photos are below 224
    framing: str | None = knob(None, choices=["resize", "random_crop", USUAL_FRAMING])
    # side of the square that a photo becomes, in pixels; null: 224, or the shorter side if photos are smaller
    size: int | None = knob(None, min=8, max=4096)
    train_fraction: float = knob(0.8, above=0, below=1)  # share of the images; not used with train/ and val/


@dataclass
class LoaderConfig:
    """How files become pixels."""

    _target_: str = MISSING
    reads: list[str] = MISSING  # what it reads
    objects: bool = False  # it also decodes bytes that come from storage
    copies: bool = False  # its first use writes a copy of the set, so findings do not try it
    scale: str = knob("device", choices=["device", "numpy", "torch"])  # where integers become numbers from 0 to 1


@dataclass
class MemoryConfig(LoaderConfig):
    """Images already in memory."""

    batched: bool = True  # true: a whole batch at once; false: image by image


@dataclass
class NativeConfig(LoaderConfig):
    """The project's own operators."""

    threads: int | None = knob(None, min=1)  # threads that read a batch; null: as many as torch uses, one in a worker
    dct_scaling: bool = True  # decode photos at a smaller size where that is enough


@dataclass
class PackedConfig(LoaderConfig):
    """Images from one memory-mapped file, which is made of the set on first use."""

    directory: str = "data/packed"  # folder of the packs; each is as large as the set's pixels
    verify: bool = False  # check a pack's checksum before use
    shards: str | None = None  # folder or address of shards by strobe.pack, read in place of a pack; null: none
    stream: bool = False  # read shards where they lie in storage, without a copy on the local disk


@dataclass
class EngineConfig:
    """How loading overlaps training."""

    _target_: str = MISSING
    num_workers: int = knob(0, min=0)  # processes that load, for each device; 0: the training process


@dataclass
class TorchConfig(EngineConfig):
    """Worker processes of torch's DataLoader."""

    prefetch_factor: int = knob(2, min=1)  # batches each worker keeps ready
    persistent_workers: bool = True  # keep workers between epochs
    pin_memory: bool | None = None  # copy batches to a GPU from pinned memory; null: if a GPU is used
    # how workers start; null: the default of Python
    multiprocessing_context: str | None = knob(None, choices=["fork", "forkserver", "spawn"])


@dataclass
class SpdlConfig(EngineConfig):
    """Threads of the training process."""

    num_workers: int = knob(1, min=0)  # threads that load, for each device
    prefetch_factor: int = knob(2, min=1)  # batches each thread keeps ready
    pin_memory: bool | None = None  # copy batches to a GPU from pinned memory; null: if a GPU is used
    ordered: bool = True  # false: batches come as soon as they are ready, in an order that changes


@dataclass
class LitDataConfig(EngineConfig):
    """Threads of the training process, made to wait for storage."""

    num_workers: int = knob(4, min=0)  # threads, each of which fetches and decodes whole batches, for each device
    prefetch_factor: int = knob(2, min=1)  # batches of each thread that are under way or ready
    pin_memory: bool | None = None  # copy batches to a GPU from pinned memory; null: if a GPU is used


@dataclass
class ResidentConfig(EngineConfig):
    """The whole split on the training device; ``num_workers`` processes load it, once, and none loads later."""


@dataclass
class ModelConfig:
    """The network, its optimizer and its schedule."""

    _target_: str = MISSING
    weights: str | None = None  # what to start from: imagenet, a file; null: random
    channels_last: bool = False  # memory layout of images and weights
    compile: bool = False  # torch.compile
    label_smoothing: float = knob(0.0, min=0, below=1)  # share of each label that is spread over all classes
    optimizer: str = knob("adam", choices=["adam", "adamw", "sgd"])  # of torch.optim
    lr: float = knob(1e-3, above=0)  # learning rate
    weight_decay: float = knob(0.0, min=0)  # as the optimizer has it
    fused: bool | None = None  # one kernel for the optimizer's update; null: torch decides
    momentum: float = knob(0.9, min=0, below=1)  # of sgd; one_cycle sets its own
    scheduler: str = knob("none", choices=["none", "one_cycle"])  # schedule of the learning rate
    # linear: lr times images per update / lr_batch_size
    lr_scaling: str = knob("none", choices=["none", "linear"])
    lr_batch_size: int = knob(32, min=1)  # images per update for which lr was chosen


@dataclass
class ResNet18Config(ModelConfig):
    """resnet18, also for small images."""

    # first layers: imagenet (7x7, stride 2, max-pool), or cifar (3x3, stride 1), for small images
    stem: str = knob("imagenet", choices=["imagenet", "cifar"])


@dataclass
class NamedModelConfig(ModelConfig):
    """A network of a library."""

    name: str = "resnet50"  # as the library has it, such as resnet50


@dataclass
class ProfilerConfig:
    """What is recorded during training."""

    _target_: str | None = None
    directory: str = "tables"  # where its files go, in the run's directory


@dataclass
class TraceConfig(ProfilerConfig):
    """torch.profiler's schedule, in training steps, and its options."""

    directory: str = "tensorboard"
    tables: str | None = "tables"  # folder of the operator tables; null: none
    skip_first: int = knob(0, min=0)  # steps before the first cycle
    skip_first_wait: int = knob(0, min=0)  # 1: the first cycle does not wait
    wait: int = knob(1, min=0)  # steps of each cycle that are not profiled
    warmup: int = knob(1, min=0)  # steps of each cycle that warm the profiler up; not kept
    active: int = knob(3, min=1)  # steps of each cycle that are recorded
    repeat: int = knob(2, min=0)  # cycles; 0: until training ends
    record_shapes: bool = True  # record the shapes of operators' inputs
    profile_memory: bool = False  # record allocations
    with_stack: bool = False  # record which line of Python called each operator
    with_flops: bool = False  # estimate floating-point operations
    max_mb: float | None = knob(None, above=0)  # largest trace file, in MB; if need be fewer steps are recorded
    keep: int | None = knob(None, min=1)  # how many traces to keep for each rank; null: all
    stop_after: bool = False  # end training when the last cycle is recorded


@dataclass
class MemoryProfilerConfig(ProfilerConfig):
    """In which training steps allocations are recorded."""

    wait: int = knob(1, min=0)  # steps before recording
    warmup: int = knob(1, min=0)  # further steps before recording
    active: int = knob(3, min=1)  # steps that are recorded
    max_entries: int = knob(100_000, min=1)  # most events in a snapshot of the GPU's memory


@dataclass
class PythonProfilerConfig(ProfilerConfig):
    """How Python code is profiled, and in which training steps."""

    # events: every call, by cProfile; sampling: the stack now and then, by pyinstrument
    kind: str = knob("events", choices=["events", "sampling"])
    skip_first: int = knob(3, min=0)  # first steps, which are not profiled
    steps: int = knob(20, min=0)  # steps that are profiled; 0: until training ends
    interval: float = knob(0.001, above=0)  # seconds between samples


@dataclass
class SweepConfig:
    """How a sweep (-m) measures its cells."""

    repeats: int = knob(1, min=1, max=1000)  # runs of each cell; verdicts need two
    seed: int = knob(0, min=0)  # seed of the order in which cells are run
    timeout_seconds: float | None = knob(None, above=0)  # longest run, in seconds; it then counts as failed
    baseline: str | None = None  # compare with this cell, or with another sweep; null: the first cell
    # such as 5%: exit code 0 only if each cell is shown to be less than 5% slower; 3: one is slower; 4: cannot tell
    fail_if_slower: str | None = None


@dataclass
class TuneConfig:
    """What is searched, and how long."""

    budget: str = "10m"  # time to search: 120s, 10m, 1h
    over: list[str] | None = knob(None, choices=list(OVER))  # what may change; null: all that applies
    save: str | None = None  # name of a preset to write, conf/experiment/NAME.yaml
    # seconds of training in each probe run
    look_seconds: float = knob(6.0, above=0, max=3600)
    ceilings_seconds: float = knob(1.0, above=0, max=3600)  # seconds for each of these measurements, at most
    turns: int = knob(6, min=4, max=100)  # turns of each side in a comparison; up to four times as many if it is close
    turn_seconds: float = knob(1.0, above=0, max=600)  # seconds of a turn; at least two steps
    timeout_seconds: float = knob(600.0, above=0, max=86400)  # longest wait for one training, in seconds


@dataclass
class CheckpointConfig:
    """Which checkpoints a run keeps."""

    # auto: by the length of the run, see docs/runs.md; weights: best.ckpt; resume: last.ckpt too; none: nothing
    save: str = knob("auto", choices=["auto", "weights", "resume", "none"])
    monitor: str = knob("val/accuracy", choices=["val/accuracy", "val/loss"])  # the metric that says which one is best
    every_n_epochs: int = knob(1, min=1)  # epochs between two saves
    every_n_steps: int | None = knob(None, min=1)  # also save last.ckpt every N steps


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
    ckpt_path: str | None = None  # resume from this file; last: the newest last.ckpt of this data and model
    seed: int = knob(42, min=0, max=2**32 - 1)  # of weights, order of images, and augmentation
    test: bool = True  # test the best weights after training
    threads: int | None = knob(None, min=1)  # threads of torch in the training process; null: torch decides
    keep_memory: bool = False  # malloc keeps freed memory, so that large results are not mapped anew in each step
    # of float32 on a GPU; high and medium multiply faster, with fewer digits (TensorFloat-32, bfloat16)
    matmul_precision: str = knob("highest", choices=["highest", "high", "medium"])
    # measure after training what loader and model reach alone, and what would be faster; null: yes, except in sweeps
    ceilings: bool | None = None
    ceilings_seconds: float = knob(5.0, above=0, max=3600)  # seconds for each of these measurements, at most
    sweep: SweepConfig = field(default_factory=SweepConfig)  # of train.py -m


@dataclass
class TuningConfig(Config):
    """What ``strobe tune`` starts from, and searches."""

    tune: TuneConfig = field(default_factory=TuneConfig)
