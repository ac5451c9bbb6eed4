"""EuroSAT, multispectral: 27,000 Sentinel-2 tiles in ten classes (Helber 2019, doi:10.1109/JSTARS.2019.2918242)."""

from pathlib import Path
from typing import Any

from strobe.app.config.schema import PUBLISHED
from strobe.app.data.download import provide
from strobe.app.data.folders import Folder
from strobe.app.data.synthetic import is_generated
from strobe.app.data.tiles import GENERATED, Tiles, tile_roots
from strobe.app.storage.address import is_remote
from strobe.app.storage.local import LocalFolder
from strobe.errors import DataError

_, URL, SIZE = PUBLISHED["eurosat"]
CHECKSUM = "md5:091174add3c8e680a49244acf185b9f0"
FOLDER = "EuroSAT_MS"


class EuroSAT(Tiles):
    """``data.root``, or a folder one level below it, holds ``<Class>/*.tif``."""

    def __init__(self, *, download: bool, **common: Any) -> None:
        super().__init__(**common)
        self.download = download

    def prepare_data(self) -> None:
        """Download and unpack the archive if the tiles are missing and ``data.download`` is set."""
        root = Path(self.root)
        if self.download and not is_remote(self.root):
            provide(root / FOLDER, URL, CHECKSUM, lambda: bool(tile_roots(LocalFolder(root))))

    def folder(self) -> Folder:
        """The folder of the class folders."""
        root = self.place()
        roots = tile_roots(root)
        if len(roots) == 1:
            self.generated = is_generated(roots[0])
            self.title = GENERATED if self.generated else "EuroSAT"
            return roots[0]
        if roots:
            names = ", ".join(str(folder).rpartition("/")[2] for folder in roots)
            raise DataError(f"data.root={root} holds several sets of tiles ({names}); give the folder of one of them")
        lacks = "holds no <Class>/*.tif, directly or one level below"
        if is_remote(self.root):
            raise DataError(f"data.root={root} {lacks}; give the address of the folder that holds the class folders")
        lacks = lacks if root.exists() else "is not a folder"
        raise DataError(
            f"data.root={root} {lacks}; data.download=true downloads EuroSAT ({SIZE}, from {URL}), or train on "
            "generated tiles with data=sample"
        )
