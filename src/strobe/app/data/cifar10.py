"""CIFAR-10: 60,000 colour photos of 32x32 pixels in ten classes (Krizhevsky 2009)."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torchvision import datasets
from torchvision.datasets.utils import check_integrity

from strobe.app.config.schema import PUBLISHED
from strobe.app.data.augment import flip, shift
from strobe.app.data.base import ImageData, stratified_split
from strobe.app.data.download import provide
from strobe.app.loaders.sources import ArraySource
from strobe.app.storage.local import LocalFolder
from strobe.errors import DataError

FOLDER = datasets.CIFAR10.base_folder
_, URL, SIZE = PUBLISHED["cifar10"]
# Of the archive, as Keras publishes it. Torchvision only has its MD5, which another file can be given.
CHECKSUM = "sha256:6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce"
SAFE = {
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}


class CIFAR10(ImageData):
    """``cifar-10-batches-py`` in ``data.root`` or a folder one level below it, as torchvision leaves it.

    Everything is held as one uint8 tensor. ``val_fraction`` of the training images, the same share of each
    class, is for validation.
    """

    title = "CIFAR-10"
    full_scale = 255.0
    size = 32
    mean = torch.tensor([0.4914, 0.4822, 0.4465])
    std = torch.tensor([0.2470, 0.2435, 0.2616])

    def __init__(self, *, val_fraction: float, download: bool, verify: bool, **common: Any) -> None:
        super().__init__(**common)
        self.val_fraction = val_fraction
        self.download = download
        self.verify = verify

    def prepare_data(self) -> None:
        """Download, check and unpack the archive if it is missing and ``data.download`` is set."""
        if self.download:
            provide(self._root() / FOLDER, URL, CHECKSUM, lambda: self._parent() is not None)

    def sources(self) -> dict[str, ArraySource]:
        """Read all images and split them."""
        root = self._parent()
        if root is None:
            raise DataError(
                f"data.root={self.root} holds no folder {FOLDER}, nor does a folder one level below it; "
                f"data.download=true downloads it ({SIZE}, from {URL}), or train on data=sample"
            )
        folder = root / FOLDER
        LocalFolder(folder).files(("",), below=False)  # names a pipe, which would be waited for
        if self.verify:
            _verify(folder)
        try:
            self.classes = _class_names(folder / datasets.CIFAR10.meta["filename"])
            count = len(self.classes)
            train = [_images(folder / name, count) for name, _ in datasets.CIFAR10.train_list]
            test = [_images(folder / name, count) for name, _ in datasets.CIFAR10.test_list]
        except (OSError, ValueError) as error:
            raise DataError(f"{folder} cannot be read as CIFAR-10 ({error}); replace the folder") from error
        images = torch.from_numpy(np.concatenate([images for images, _ in train + test]))
        targets = torch.tensor([label for _, labels in train + test for label in labels])
        trained = sum(len(labels) for _, labels in train)
        fractions = (1 - self.val_fraction, self.val_fraction)
        try:
            parts = stratified_split(targets[:trained], fractions, self.seed)
        except ValueError as error:
            raise DataError(
                f"{folder} holds a single training image of class {self.classes[error.args[0]]}, but at least 2 are "
                "needed, for training and validation; give a larger subset"
            ) from None
        indices = {
            "train": torch.from_numpy(parts[0]),
            "val": torch.from_numpy(parts[1]),
            "test": torch.arange(trained, len(targets)),
        }
        return {split: ArraySource(images, targets, chosen) for split, chosen in indices.items()}

    def augment(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Crops from the image padded by four pixels, and flips."""
        return flip(shift(images, generator, out=images), generator, out=images)

    def _parent(self) -> Path | None:
        """The folder that holds ``cifar-10-batches-py``."""
        root = self._root()
        below = sorted(path for path in root.iterdir() if path.name[0] != ".") if root.is_dir() else []
        return next((folder for folder in (root, *below) if (folder / FOLDER).is_dir()), None)

    def _root(self) -> Path:
        root = Path(self.root)
        return root.parent if root.name == FOLDER else root


def _verify(folder: Path) -> None:
    """Compare each file with torchvision's list of checksums."""
    kind = datasets.CIFAR10
    for name, md5 in [*kind.train_list, *kind.test_list, (kind.meta["filename"], kind.meta["md5"])]:
        if not check_integrity(folder / name, md5):
            raise DataError(
                f"{folder / name} is missing or not the published file (md5 {md5}); download the set again with "
                "data.download=true into another data.root, or accept a subset or an altered copy with "
                "data.verify=false"
            )


class _ArraysOnly(pickle.Unpickler):
    """Builds only arrays and plain values: a stranger's pickle could otherwise run any code."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in SAFE:
            raise pickle.UnpicklingError(f"it holds {module}.{name}, which is not an array")
        return super().find_class(module, name)


def _images(path: Path, classes: int) -> tuple[NDArray[np.uint8], list[int]]:
    """Images (N, 3, 32, 32) and labels, below ``classes``, of one batch file; raises as :func:`_read`."""
    content = _read(path)
    try:
        images, labels = np.asarray(content["data"]), [int(label) for label in content["labels"]]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} has no images and labels") from error
    if images.dtype != np.uint8 or images.shape != (len(labels), 3072):
        raise ValueError(f"{path} has {len(labels)} labels for images of {images.dtype} {images.shape}")
    if not set(labels) <= set(range(classes)):
        raise ValueError(f"{path} has labels that are not from 0 to {classes - 1}")
    return images.reshape(-1, 3, 32, 32), labels


def _class_names(path: Path) -> tuple[str, ...]:
    names = _read(path).get("label_names")
    if not isinstance(names, list) or not names:
        raise ValueError(f"{path} names no classes")
    return tuple(map(_text, names))


def _read(path: Path) -> dict[str, Any]:
    """A file's dictionary; raises an OSError if it cannot be read, a ValueError if it is another kind of file."""
    try:
        with path.open("rb") as file:
            content = _ArraysOnly(file, encoding="latin1").load()  # Python 2 wrote the files; latin1 keeps their bytes
    except OSError:
        raise
    except Exception as error:  # whatever damaged bytes make the unpickler stumble over
        raise ValueError(f"{path} cannot be unpickled: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} does not hold a dictionary")
    return {_text(key): value for key, value in content.items()}


def _text(value: str | bytes) -> str:
    return value.decode("latin1") if isinstance(value, bytes) else value
