"""Photos in class folders: any such tree of JPEG and PNG files, such as ImageNet's."""

import logging
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from strobe.app.config.roots import PHOTOS
from strobe.app.config.schema import USUAL_FRAMING
from strobe.app.data.augment import flip
from strobe.app.data.base import SPLITS, ImageData, split_classes
from strobe.app.data.folders import Folder, files_of_classes, flat
from strobe.app.loaders.crop_policy import CropPolicy
from strobe.app.loaders.sources import PathTable, PhotoSource
from strobe.errors import DataError

log = logging.getLogger(__name__)

PARTS = {"train", "val", "valid", "validation", "test"}  # how folders of a split's class folders are called
USUAL, LEAST = 224, 8  # pixels of a side
NOTABLY = 1.5  # times the pixels
SplitIndices = dict[str, Tensor]  # (N,) int64 of each split


class ImageFolder(ImageData):
    """``<root>/<Class>/`` or, as ImageNet is laid out, ``<root>/train/<Class>/`` and ``<root>/val/<Class>/``.

    The first is split by class at random: ``train_fraction`` of each class is for training; the rest is halved
    into validation and test. In the second, ``<root>/test/<Class>/`` is for the test; without class folders there, the
    test is on the validation photos.

    Files lie at any depth below their class. Each photo becomes a square of ``size`` pixels as ``framing`` says
    (``strobe.app.loaders.crop_policy.CropPolicy``), with ``augment`` at random in training. None: 224, and a random
    part; where the shorter side of a usual photo is less, this side and the whole photo. The orientation that a
    camera notes in EXIF is ignored, as torchvision's ``ImageFolder`` does.
    """

    full_scale = 255.0
    # ImageNet's, by which published weights expect colours to be standardised.
    mean = torch.tensor([0.485, 0.456, 0.406])
    std = torch.tensor([0.229, 0.224, 0.225])

    def __init__(self, *, framing: str | None, size: int | None, train_fraction: float, **common: Any) -> None:
        super().__init__(**common)
        self.framing = framing
        self.size = size
        self.train_fraction = train_fraction

    def sources(self) -> dict[str, PhotoSource]:
        """Find the photos and split them."""
        root = self.place()
        if not root.exists():
            raise DataError(f"data.root={self.root} is not a folder; give the folder that holds the class folders")
        self.title = f"your images in {root.name}/"
        folders = set(root.folders())
        if {"train", "val"} <= folders:
            paths, targets, indices = self._given(root, "test" in folders)
        elif "train" in folders <= PARTS:
            raise DataError(
                f"data.root={self.root} holds {', '.join(sorted(folders))}, but no val; name the folder of the "
                "validation photos val, or give a folder of class folders, which is then split"
            )
        else:
            paths, targets = self._find(root, first=True)
            indices = split_classes(root, self.classes, targets, "photo", self)
        objects = root.objects(paths)
        whole = PhotoSource(paths, targets, indices["train"], CropPolicy("resize", USUAL), objects=objects)
        size, framing = self._fitting(whole)
        self.size, self.framing = size, framing
        centred = CropPolicy(framing, size, seed=self.shuffle_seed)
        crops = {"train": replace(centred, random=self.augments)}
        return {split: replace(whole, indices=indices[split], framing=crops.get(split, centred)) for split in SPLITS}

    def augment(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Flip; the framing of each photo was drawn when it was read."""
        return flip(images, generator, out=images)

    def _fitting(self, photos: PhotoSource) -> tuple[int, str]:
        """Size and framing as given, or as they fit; logs it if photos are enlarged, or smaller than usual."""
        try:
            height, width = photos.stored_size()
        except OSError:  # of a damaged file, whose loader names it
            return self.size or USUAL, self.framing or USUAL_FRAMING
        shorter = max(LEAST, min(height, width))
        small = {"size": shorter, "framing": "resize"} if shorter < USUAL else {}
        if chosen := [f"data.{key} is {value}" for key, value in small.items() if getattr(self, key) is None]:
            log.info("Files are %dx%d, so %s", height, width, " and ".join(chosen))
        side = self.size or min(USUAL, shorter)
        if (times := side**2 / (height * width)) >= NOTABLY:
            log.warning("%dx%d files, enlarged to %d: %.2g times the pixels", height, width, side, times)
        return side, self.framing or ("resize" if small else USUAL_FRAMING)

    def _given(self, root: Folder, tests: bool) -> tuple[PathTable, Tensor, SplitIndices]:
        """All photos, their labels, and the split that the folders define."""
        splits = SPLITS if tests and (root / "test").folders() else SPLITS[:2]
        photos = [self._find(root / split, first=split == "train") for split in splits]
        targets = torch.cat([labels for _, labels in photos])
        parts = torch.split(torch.arange(len(targets)), [len(labels) for _, labels in photos])
        indices = dict(zip(splits, parts, strict=True))
        if "test" not in indices:
            log.info("%s holds no test/<Class>/, so the test is on the validation photos", root)
            indices["test"] = indices["val"]
        return PathTable.joined([paths for paths, _ in photos]), targets, indices

    def _find(self, folder: Folder, *, first: bool) -> tuple[PathTable, Tensor]:
        """Photos and their labels; the ``first`` folder defines the classes."""
        classes = files_of_classes(folder, PHOTOS, below=True)
        paths, targets = flat(folder, classes, PHOTOS, "photo")
        if first:
            self.classes = tuple(classes)
        elif differing := sorted(classes.keys() ^ set(self.classes)):
            name, train = differing[0], folder.parent / "train"
            has, lacks = (folder, train) if name in classes else (train, folder)
            raise DataError(
                f"{has} holds the class {name}, but {lacks} does not ({len(differing)} "
                f"class{'es differ' if len(differing) > 1 else ' differs'}); give both the same class folders"
            )
        return paths, targets
