"""The schema of ``data``: what is trained on."""

from dataclasses import dataclass
from typing import Any

from omegaconf import MISSING

from strobe.app.config.schema import knob


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

    tiles_per_class: int = knob(60, min=10)
    generator_seed: int = knob(42, min=0)


@dataclass
class EuroSATConfig(TilesConfig):
    """EuroSAT, multispectral."""

    download: bool = False  # fetch the archive (2.1 GB) when the folder has no tiles


@dataclass
class CIFAR10Config(DataConfig):
    """CIFAR-10, held in memory."""

    form: str = knob("array", choices=["tiles", "photos", "array"])
    val_fraction: float = knob(0.1, above=0, below=1)  # of the training images
    download: bool = False
    verify: bool = True  # false accepts a subset or an altered copy


@dataclass
class ImageFolderConfig(DataConfig):
    """Class folders of photos."""

    form: str = knob("photos", choices=["tiles", "photos", "array"])
    framing: str = knob("random_resized_crop", choices=["resize", "random_crop", "random_resized_crop"])
    size: int = knob(224, min=8, max=4096)  # side of the square that a photo becomes, in pixels
    train_fraction: float = knob(0.8, above=0, below=1)  # as of tiles; where train/ and val/ are given, not used
