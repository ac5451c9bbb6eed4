"""The schema of ``suite``: what ``python -m strobe.bench`` measures. A list of null: as many as the mode measures."""

from dataclasses import dataclass

from strobe.app.config.schema import knob


@dataclass
class SuiteConfig:
    """A benchmark suite."""


@dataclass
class LoadingSuiteConfig(SuiteConfig):
    """Loaders, batch sizes, threads."""

    tables: list[str] | None = knob(None, choices=["load", "floors", "crop_policies"])  # null: all that fit the data
    loaders: list[str] | None = None  # such as [skimage,"skimage loader.scale=torch"]; null: all that fit the data
    batch_sizes: list[int] | None = knob(None, min=1)
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

    devices: list[str] | None = None  # cpu, gpu; null: those that there are
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
    workers: list[int] | None = None  # null: of 1, 2, 4, 8, 16, 32 those for which there are cores, and 4 at least
    stages: list[str] | None = None  # of resize, batch, normalise, transfer; null: transfer only with a GPU


@dataclass
class ConvolutionSuiteConfig(SuiteConfig):
    """Implementations and sizes of images."""

    implementations: list[str] | None = None  # such as ["four loops",native]; null: all
    sizes: list[int] | None = knob(None, min=1)  # sides of square images, pixels
    kernel: int = knob(3, min=1)  # its side
