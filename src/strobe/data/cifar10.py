"""CIFAR-10: 60,000 colour photos of 32x32 pixels in ten classes (Krizhevsky 2009)."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torchvision import datasets
from torchvision.datasets.utils import check_integrity

from strobe.data.augment import flip, shift
from strobe.data.base import ImageData, stratified_split
from strobe.data.batch_files import read_batch, read_classes
from strobe.data.locking import locked
from strobe.errors import DataError
from strobe.loaders.base import ArraySource

FOLDER = datasets.CIFAR10.base_folder


class CIFAR10(ImageData):
    """``cifar-10-batches-py`` in ``data.root`` or a folder one level below it, as torchvision leaves it.

    Everything is held as one uint8 tensor. ``val_fraction`` of the training images, the same share of each
    class, is for validation.
    """

    title = "CIFAR-10"
    full_scale = 255.0
    mean = torch.tensor([0.4914, 0.4822, 0.4465])
    std = torch.tensor([0.2470, 0.2435, 0.2616])

    def __init__(self, *, val_fraction: float, download: bool, verify: bool, **common: Any) -> None:
        super().__init__(**common)
        self.val_fraction = val_fraction
        self.download = download
        self.verify = verify

    def prepare_data(self) -> None:
        """Download and unpack the archive, if that is wanted and it is not there; torchvision checks it."""
        root = Path(self.root)
        if not self.download or self._parent() is not None:
            return
        with locked(root / f".{FOLDER}.lock"):
            if self._parent() is None:
                try:
                    datasets.CIFAR10(root, download=True)
                except (OSError, RuntimeError) as error:
                    raise DataError(
                        f"{datasets.CIFAR10.url} could not be downloaded to data.root={root} ({error}); "
                        "check the network, or unpack the archive there by hand"
                    ) from error

    def sources(self) -> dict[str, ArraySource]:
        """Read all images and split them."""
        root = self._parent()
        if root is None:
            raise DataError(
                f"data.root={self.root} holds no folder {FOLDER}, nor does a folder one level below it; download it "
                f"from {datasets.CIFAR10.url} (170 MB) with data.download=true, or train on data=sample"
            )
        folder = root / FOLDER
        if self.verify:
            _verify(folder)
        try:
            train = [read_batch(folder / name) for name, _ in datasets.CIFAR10.train_list]
            test = [read_batch(folder / name) for name, _ in datasets.CIFAR10.test_list]
            self.classes = read_classes(folder / datasets.CIFAR10.meta["filename"])
        except (OSError, ValueError) as error:
            raise DataError(f"{folder} cannot be read as CIFAR-10 ({error}); replace the folder") from error
        images = torch.from_numpy(np.concatenate([images for images, _ in train + test]))
        targets = torch.tensor([label for _, labels in train + test for label in labels])
        trained = sum(len(labels) for _, labels in train)
        parts = stratified_split(targets[:trained].tolist(), (1 - self.val_fraction, self.val_fraction), self.seed)
        indices = {
            "train": torch.tensor(parts[0]),
            "val": torch.tensor(parts[1]),
            "test": torch.arange(trained, len(targets)),
        }
        return {split: ArraySource(images, targets, chosen) for split, chosen in indices.items()}

    def augment(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Crops from the image padded by four pixels, and flips."""
        return flip(shift(images, generator), generator)

    def _parent(self) -> Path | None:
        """The folder in which ``cifar-10-batches-py`` stands."""
        root = Path(self.root)
        if root.name == FOLDER:
            root = root.parent
        candidates = [root, *sorted(root.iterdir())] if root.is_dir() else []
        return next((folder for folder in candidates if (folder / FOLDER).is_dir()), None)


def _verify(folder: Path) -> None:
    """Hold each file against torchvision's list of checksums."""
    kind = datasets.CIFAR10
    for name, md5 in [*kind.train_list, *kind.test_list, (kind.meta["filename"], kind.meta["md5"])]:
        if not check_integrity(folder / name, md5):
            raise DataError(
                f"{folder / name} is missing or not the published file (md5 {md5}); download the set again with "
                "data.download=true into another data.root, or accept a subset or an altered copy with "
                "data.verify=false"
            )
