"""A set of tiles that may be changed, and its pack."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import tifffile
import torch
from numpy.typing import NDArray

from strobe.app.loaders.packed import PackedLoader
from strobe.app.loaders.sources import PathTable, TileSource
from support.files import plant

COUNT = 12
SIZE = COUNT * 13 * 64 * 64 * 2


class Set(NamedTuple):
    """Where the tiles are, and where they are packed."""

    folder: Path
    packs: Path

    @property
    def paths(self) -> list[str]:
        return sorted(str(path) for path in self.folder.rglob("*.tif"))

    @property
    def source(self) -> TileSource:
        every = torch.arange(len(self.paths))
        return TileSource(PathTable(self.paths), every, every, (13, 64, 64), (3, 2, 1), 4000.0)

    @property
    def pack(self) -> Path:
        (folder,) = (path for path in self.packs.iterdir() if path.is_dir())
        return folder

    @property
    def pixels(self) -> Path:
        (path,) = self.pack.glob("*.pixels")
        return path

    def load(self, **options: bool) -> NDArray[np.uint16]:
        loader = PackedLoader(directory=str(self.packs), scale="device", **{"verify": False, **options})
        data = loader.dataset(self.source)
        return data.__getitems__(range(len(data)))[0].numpy()

    def expected(self) -> NDArray[np.uint16]:
        return np.stack([np.moveaxis(tifffile.imread(path)[..., [3, 2, 1]], -1, 0) for path in self.paths])


def changeable(tiles: Path, folder: Path) -> Set:
    """Copies of some tiles, in two classes."""
    for number, path in enumerate(sorted(tiles.glob("*/*.tif"))[::7][:COUNT]):
        plant(folder / "set", {f"{'AB'[number % 2]}/{number}.tif": path.read_bytes()})
    return Set(folder / "set", folder / "below" / "packs")
