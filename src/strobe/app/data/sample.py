"""The embedded default: generated tiles in EuroSAT's form, for a first run without a download."""

from pathlib import Path
from typing import Any

from strobe.app.data.synthetic import generate
from strobe.app.data.tiles import GENERATED, Tiles


class Sample(Tiles):
    """Generated on first use below ``root``, in a folder for each seed and size, and kept there."""

    title = GENERATED
    generated = True

    def __init__(self, *, tiles_per_class: int, generator_seed: int, **common: Any) -> None:
        super().__init__(**common)
        self.tiles_per_class = tiles_per_class
        self.generator_seed = generator_seed

    def prepare_data(self) -> None:
        """Generate the tiles, unless they exist."""
        self.folder()

    def folder(self) -> Path:
        """The folder of the class folders."""
        # Two levels deep, so that data=eurosat with the same root never takes these for the real ones.
        folder = Path(self.root) / "tiles" / f"seed{self.generator_seed}-{self.tiles_per_class}"
        return generate(folder, tiles_per_class=self.tiles_per_class, seed=self.generator_seed)
