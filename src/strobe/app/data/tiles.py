"""Data sets of GeoTIFF tiles in class folders, in EuroSAT's form."""

from abc import abstractmethod
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
import torch
from torch import Tensor

from strobe.app.data.augment import dihedral
from strobe.app.data.base import ImageData, split_classes
from strobe.app.data.folders import Folder, files_of_classes, flat
from strobe.app.loaders.base import unreadable
from strobe.app.loaders.sources import MOST_PIXELS, TOO_LARGE, TileSource
from strobe.app.storage.local import LocalFolder
from strobe.app.storage.objects import part
from strobe.errors import ConfigError, DataError

GENERATED = "generated sample data"
SUFFIXES = (".tif", ".tiff")
RGB = (3, 2, 1)
# EuroSAT's published statistics in file order: B01 to B08, B09, B10, B11, B12, B8A.
MEAN = (
    1354.41, 1118.24, 1042.93, 947.63, 1199.47, 1999.79, 2369.22, 2296.83, 732.08, 12.11, 1819.01, 1118.92, 2594.14,
)  # fmt: skip
STD = (
    245.72, 333.01, 395.09, 593.75, 566.42, 861.18, 1086.63, 1117.98, 404.92, 4.78, 1002.59, 761.30, 1231.59,
)  # fmt: skip


class Tiles(ImageData):
    """``<root>/<Class>/*.tif``: Sentinel-2 tiles of 13 bands, uint16, split by class at random.

    ``train_fraction`` of each class is for training; the rest is halved into validation and test.
    """

    def __init__(self, *, bands: Any, train_fraction: float, full_scale: float, **common: Any) -> None:
        super().__init__(**common)
        self.full_scale = full_scale
        self.train_fraction = train_fraction
        self.bands: Any = bands if isinstance(bands, str) else tuple(bands)

    @abstractmethod
    def folder(self) -> Path | Folder:
        """The folder with the class folders; raises a :class:`DataError` if it is missing."""

    def sources(self) -> dict[str, TileSource]:
        """Find the tiles and split them."""
        place = self.folder()
        folder = LocalFolder(place) if isinstance(place, Path) else place
        classes = files_of_classes(folder, SUFFIXES, below=False)
        paths, targets = flat(folder, classes, SUFFIXES, "tile")
        self.classes = tuple(classes)
        objects = folder.objects(paths)
        first = None if objects is None else objects.fetch(paths[:1], np.zeros(1, dtype=np.int64))
        shape = _shape(paths[0], part(first, 0))
        self.channel_bands = self._channel_bands(shape[0], paths[0])
        bands = list(self.channel_bands)
        self.mean = torch.tensor(MEAN)[bands] / self.full_scale
        self.std = torch.tensor(STD)[bands] / self.full_scale
        indices = split_classes(folder, self.classes, targets, "tile", self)
        return {
            split: TileSource(paths, targets, chosen, shape, self.channel_bands, self.full_scale, objects=objects)
            for split, chosen in indices.items()
        }

    def augment(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Flips and transposes."""
        return dihedral(images, generator, out=images)

    def rgb_channels(self) -> list[int]:
        """The channels of bands 3, 2 and 1 in a batch; its first channel if one of them is not loaded."""
        if set(RGB) <= set(self.channel_bands):
            return [self.channel_bands.index(band) for band in RGB]
        return [0]

    def _channel_bands(self, count: int, path: str) -> tuple[int, ...]:
        if count != len(MEAN):
            raise DataError(f"{path} has {count} bands, but statistics are known for {len(MEAN)}; convert the tiles")
        bands: tuple[int, ...] = {"rgb": RGB, "all": tuple(range(count))}.get(self.bands, self.bands)
        beyond = next((band for band in bands if band >= count), None)
        if beyond is not None:
            asked = str(list(self.bands)).replace(" ", "")
            raise ConfigError(
                f"data.bands={asked} asks for band {beyond}, but {path} has {count} bands; "
                f"give indices from 0 to {count - 1}"
            )
        return bands


def tile_roots(root: Folder) -> list[Folder]:
    """``root``, or those folders one level below it, that hold ``<Class>/*.tif``."""

    def holds_tiles(folder: Folder) -> bool:
        return any((folder / name).files(SUFFIXES, below=False) for name in folder.folders())

    if not root.exists():
        return []
    return [root] if holds_tiles(root) else [f for name in root.folders() if holds_tiles(f := root / name)]


def _shape(path: str, content: bytes | None) -> tuple[int, int, int]:
    """Bands, height and width of one tile."""
    try:
        with tifffile.TiffFile(path if content is None else BytesIO(content)) as tile:
            page = tile.pages.first
            if page.imagelength * page.imagewidth > MOST_PIXELS:
                raise ValueError(TOO_LARGE)
            return page.samplesperpixel, page.imagelength, page.imagewidth
    except Exception as error:
        raise unreadable(path, "tile", error) from error
