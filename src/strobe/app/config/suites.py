"""The typed schema of the benchmark suites, as ``schema`` has that of everything else. Imports no torch."""

from dataclasses import dataclass

from omegaconf import MISSING

from strobe.app.config.schema import Config, knob

LOADING_TABLES = ("load", "floors", "crop_policies")
ENGINE_TABLES = ("engines", "buffers", "training")
CROP_DECODERS = ("pil", "torchvision", "spdl", "native")  # the baseline first


@dataclass
class SuiteConfig:
    """A benchmark suite."""


@dataclass
class LoadingSuiteConfig(SuiteConfig):
    """Loaders, batch sizes, threads."""

    tables: list[str] | None = knob(None, choices=LOADING_TABLES)  # null: all that fit the data
    loaders: list[str] | None = None  # such as [skimage,"skimage loader.scale=torch"]; null: all that fit the data
    batch_sizes: list[int] | None = knob(None, min=1)  # images per batch; null: 1, 32, 64 and 1024
    # threads of torch, and of loader=native and packed; null: 1 and 4
    threads: list[int] | None = knob(None, min=1)
    batches: int = knob(10, min=1)  # batches per repetition
    # batch size that is also measured with files that are not in the page cache; null: none
    cold_batch_size: int | None = knob(32, min=1)


@dataclass
class CropSuiteConfig(SuiteConfig):
    """Decoders of crops; workers of a training step."""

    decoders: list[str] | None = knob(None, choices=CROP_DECODERS)  # null: all
    workers: list[int] | None = knob(None, min=1)  # worker processes; null: 1
    batch_size: int = knob(16, min=1)  # crops per training step


@dataclass
class TrainingSuiteConfig(SuiteConfig):
    """Changes that make a training faster, one after the other."""

    devices: list[str] | None = knob(None, choices=["cpu", "gpu"])  # null: those of this machine
    batch_size: int = knob(32, min=2)  # batch size of the first rows
    workers: int | None = knob(None, min=1)  # worker processes; null: 8, or 2 in quick mode
    large_batch: int | None = knob(None, min=2)  # batch size of the later rows; null: 2048, or 128 in quick mode
    best: list[str] | None = None  # overrides of the last row, such as ["engine=resident","data.batch_size=512"]


@dataclass
class EnginesSuiteConfig(SuiteConfig):
    """Engines, numbers of workers, memory."""

    tables: list[str] | None = knob(None, choices=ENGINE_TABLES)  # null: all
    loaders: list[str] | None = None  # loaders for the engines, such as [native]; null: those that fit the data
    workers: list[int] | None = knob(None, min=0)  # numbers of workers; null: 0, 1, 2 and 4
    batch_sizes: list[int] | None = knob(None, min=1)  # batch sizes of the memory table; null: 1, 32, 64 and 1024


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
    # numbers of workers; null: 1, 2, 4 ... up to the number of cores, and 4
    workers: list[int] | None = knob(None, min=1)
    # what is measured; null: all, transfer only with a GPU
    stages: list[str] | None = knob(None, choices=["resize", "batch", "normalise", "transfer"])


@dataclass
class StorageSuiteConfig(SuiteConfig):
    """Ways to read photos from storage; how far away it is."""

    # what reads; null: all
    ways: list[str] | None = knob(
        None, choices=["litdata", "webdataset", "torchvision", "one_by_one", "raw", "shards", "storage"]
    )
    latencies: list[int] | None = knob(None, min=0)  # milliseconds before each answer; null: 0, 20 and 100
    photos: int = knob(1024, min=1)  # objects of an epoch; fewer photos are stored several times
    workers: int = knob(4, min=1)  # worker processes or, of Strobe, threads
    requests: int = knob(128, min=1)  # objects asked for at once, by all workers together


@dataclass
class ConvolutionSuiteConfig(SuiteConfig):
    """Implementations and sizes of images."""

    implementations: list[str] | None = None  # such as ["four loops",native]; null: all
    sizes: list[int] | None = knob(None, min=1)  # sides of square images, pixels
    kernel: int = knob(3, min=1)  # side of the kernel, pixels


@dataclass
class BenchConfig(Config):
    """What ``strobe bench`` measures, and how much; null: the suite decides."""

    suite: SuiteConfig = MISSING
    quick: bool = False  # a check that it works, under a minute on two cores
    rounds: int | None = knob(None, min=1, max=1000)  # most trials of each cell
    turn_seconds: float | None = knob(None, above=0, max=3600)  # seconds timed in a trial; at least one repetition
    budget_seconds: float | None = knob(None, min=0)  # seconds after which only first trials are started
    precision: float = knob(0.02, min=0, below=1)  # a cell is done when its 95% interval is within this share
    timeout_seconds: float = knob(900.0, above=0, max=86400)  # longest trial, in seconds
    baseline: str | None = None  # an earlier results.json, or its folder, to compare with
    # such as 5%: exit code 0 only if each cell is shown to be less than 5% slower; 3: one is slower; 4: cannot tell
    fail_if_slower: str | None = None
