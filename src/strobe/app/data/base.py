"""What all data sets share: splits, batches, and pixels prepared on the device."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from lightning import LightningDataModule
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from strobe.app.data.augment import parts_of
from strobe.app.data.folders import Folder
from strobe.app.engines.base import BatchLoader, Engine
from strobe.app.engines.sampler import EndlessBatches, EpochSampler, ShardedBatches
from strobe.app.loaders.base import Batch, LoadedData, Loader
from strobe.app.loaders.buffer_pool import BufferPool
from strobe.app.loaders.packed import PackedData, PackedLoader
from strobe.app.loaders.sources import FileSource
from strobe.app.storage.address import is_remote
from strobe.app.storage.folder import RemoteFolder
from strobe.app.storage.local import LocalFolder
from strobe.app.storage.objects import Storage
from strobe.errors import DataError

SPLITS = ("train", "val", "test")
SMALL = 32  # pixels; in a batch of one such image, many networks' last batch normalisation gets single values


class ImageData(LightningDataModule, ABC):
    """Images, each with one label.

    Integers travel to the device as they are. There, in place, they become float32 in [0, 1] and are
    standardised by ``mean`` and ``std``; training batches are then augmented. All randomness is a function of
    (``shuffle_seed``, epoch, batch, rank), so a resumed run repeats an uninterrupted one.

    A subclass fetches its files in :meth:`prepare_data`, and defines the splits in :meth:`sources`.
    """

    title: str  # for pictures and summaries; says so when the data is generated
    generated = False
    size: int | None = None  # pixels of a side, where all images are brought to it
    classes: tuple[str, ...]
    mean: Tensor  # (channels,), of pixels in [0, 1]
    std: Tensor
    full_scale: float  # the integer that becomes 1.0

    def __init__(
        self,
        *,
        loader: Loader[Any],
        engine: Engine,
        root: str,
        batch_size: int,
        val_batch_size: int | None,
        seed: int,
        augment: bool,
        shuffle_seed: int,
        endpoint: str | None = None,
        requests: int = 128,
        timeout_seconds: float = 60.0,
        cache: str | None = None,
        cache_gb: float = 50.0,
    ) -> None:
        super().__init__()
        reach: dict[str, Any] = {"endpoint": endpoint, "requests": requests, "timeout_seconds": timeout_seconds}
        self.reach = reach | {"cache": cache, "cache_gb": cache_gb}  # of a root in storage
        self.loader = loader
        if isinstance(loader, PackedLoader):
            loader.reach = reach  # its shards may lie in storage, whatever the root
        self.engine = engine
        self.root = root
        self.batch_size = batch_size
        self.val_batch_size = val_batch_size or batch_size
        self.seed = seed
        self.augments = augment
        self.shuffle_seed = shuffle_seed
        self.found: dict[str, Any] = {}  # the sources
        self.datasets: dict[str, LoadedData] = {}
        self._resumed: tuple[int, int, int] | None = None  # epoch, batch, and the images seen before it
        self._floats = BufferPool()
        self._standards: dict[tuple[float, torch.device], tuple[Tensor, ...]] = {}

    @abstractmethod
    def sources(self) -> dict[str, Any]:
        """A source for each of ``SPLITS``, as ``self.loader`` reads them; sets the attributes above."""

    @abstractmethod
    def augment(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Training images (N, C, H, W), changed at random, in place."""

    def place(self) -> Folder:
        """The root: a folder, or what is in storage, listed anew."""
        if is_remote(self.root):
            storage = Storage(self.root, **self.reach)
            return RemoteFolder(storage, storage.listed())
        return LocalFolder(Path(self.root))

    @property
    def in_storage(self) -> bool:
        """Whether batches are fetched from storage."""
        return self.datasets["train"].fetches

    @property
    def channels(self) -> int:
        """The number of channels of a batch."""
        return len(self.mean)

    def setup(self, stage: str | None = None) -> None:
        """Find the files and split them; does nothing the second time."""
        if not self.datasets:
            self.found = self.sources()
            self._standards.clear()
            self.datasets = {split: self.loader.dataset(source) for split, source in self.found.items()}

    def loaded_by(self, other: "ImageData") -> Self:
        """The same images with ``other``'s loader, engine, batch sizes and augmentation; needs no new search."""
        data = copy.copy(self)
        data.loader, data.engine, data.augments = other.loader, other.engine, other.augments
        data.batch_size, data.val_batch_size = other.batch_size, other.val_batch_size
        data.datasets = {split: data.loader.dataset(source) for split, source in self.found.items()}
        return data

    def training_files(self, most: int) -> list[str]:
        """Files that training reads, evenly chosen, at most this many; none if images are in memory."""
        if isinstance(packed := self.datasets["train"], PackedData):
            return packed.images.paths
        source = self.found["train"]
        if not isinstance(source, FileSource) or source.objects is not None:
            return []
        return [source.path(index) for index in range(0, len(source), -(-len(source) // most))]

    def image_size(self) -> dict[str, tuple[int, ...]]:
        """Height and width of a typical training image: as ``stored`` in its file, and as ``given`` to the network."""
        pixels, _ = self.datasets["train"][0]
        return {"stored": self.found["train"].stored_size(), "given": tuple(pixels.shape[-2:])}

    def train_dataloader(self) -> BatchLoader:
        """Batches for training, reshuffled each epoch (always the same ones with ``overfit_batches``)."""
        overfits = self.trainer is not None and self.trainer.overfit_batches > 0  # type: ignore[attr-defined]
        return self.batches("train", self.batch_size, shuffle=not overfits, start=self._position, seen=self._seen)

    def val_dataloader(self) -> BatchLoader:
        """Batches for validation, in order."""
        return self.batches("val", self.val_batch_size)

    def test_dataloader(self) -> BatchLoader:
        """Batches for the test, in order."""
        return self.batches("test", self.val_batch_size)

    def batches(
        self,
        split: str,
        batch_size: int,
        *,
        shuffle: bool = False,
        start: Callable[[], int] = lambda: 0,
        seen: Callable[[], int | None] = lambda: None,
        endless: bool = False,
    ) -> BatchLoader:
        """This rank's batches of one split: one epoch, or endless ones; works without a trainer too."""
        dataset, trainer = self.datasets[split], self.trainer
        rank, world = (trainer.global_rank, trainer.world_size) if trainer else (0, 1)
        if len(dataset) < world:
            raise DataError(f"{self.root}: {len(dataset)} {split} images are too few for {world} devices; use fewer")
        order = EpochSampler(len(dataset), shuffle=shuffle, seed=self.shuffle_seed)
        kind = EndlessBatches if endless else ShardedBatches
        sharded = kind(order, batch_size, rank=rank, world=world, start=start, seen=seen, split=split)
        device = trainer.strategy.root_device if trainer else torch.device("cpu")
        return self.engine.loader(dataset, sharded, seed=self.shuffle_seed, device=device)

    def state_dict(self) -> dict[str, int]:
        """How far the epoch is: images that all ranks have seen."""
        assert self.trainer is not None
        seen = self._seen()
        if seen is None:
            seen = self._position() * self.batch_size * self.trainer.world_size
        return {"epoch": self.trainer.current_epoch, "seen": seen}

    def resume(self, state: dict[str, int]) -> int:
        """Go on where a checkpoint's :meth:`state_dict` was, whatever ranks and batch size it had; the batches used."""
        trainer, dataset = self.trainer, self.datasets["train"]
        assert trainer is not None
        order = EpochSampler(len(dataset), shuffle=False, seed=0)
        batches, seen = ShardedBatches(order, self.batch_size, world=trainer.world_size), state["seen"]
        used = batches.used(seen)
        layers = trainer.lightning_module.modules() if trainer.lightning_module else ()
        # Batch normalisation needs two images, or two values of one.
        if (self.size and self.size <= SMALL) or any(isinstance(layer, nn.BatchNorm1d) for layer in layers):
            seen = min(seen, max(0, len(order) - batches.least))
        self._resumed = state["epoch"], used, seen
        return used

    def on_after_batch_transfer(self, batch: Batch, dataloader_idx: int) -> Batch:
        """Turn a raw batch, on the device, into what the network takes."""
        pixels, labels = batch
        images = self.normalise(pixels)
        if self.augments and self.trainer is not None and self.trainer.training:
            key = [self.shuffle_seed, self.trainer.current_epoch, self._position(), self.trainer.global_rank]
            seed = int(np.random.SeedSequence(key).generate_state(1)[0])
            images = self.augment(images, torch.Generator(images.device).manual_seed(seed))
        return images, labels

    def normalise(self, pixels: Tensor) -> Tensor:
        """Standardise integers, or floats in [0, 1], (N, C, H, W), as float32; floats change in place."""
        floats, full_scale, clips = pixels, 1.0, False
        if not pixels.is_floating_point():
            full_scale = self.full_scale
            clips = pixels.dtype != torch.uint8 or full_scale < 255
            if pixels.device.type == "cpu":  # reuses an earlier batch's memory, as torch does on a GPU
                floats = self._floats.take(pixels.shape, torch.float32)
            else:
                floats = torch.empty(pixels.shape, dtype=torch.float32, device=pixels.device)
        factor, summand = self._standardising(full_scale, pixels.device)
        for target, source in parts_of(floats, pixels):
            if floats is not pixels:
                target.copy_(source)
            if clips:
                target.clamp_(0, full_scale)
            target.mul_(factor).add_(summand)
        return floats

    def to_rgb(self, images: Tensor) -> Tensor:
        """Standardised images (N, C, H, W) back to colours (N, 3, H, W), or grey (N, 1, H, W), in [0, 1]."""
        std, mean = (value.to(images.device).view(-1, 1, 1) for value in (self.std, self.mean))
        return (images * std + mean)[:, self.rgb_channels()].clamp(0, 1).cpu()

    def rgb_channels(self) -> list[int]:
        """The channels of a batch to show as red, green and blue; one channel if it has none of these."""
        return [0, 1, 2]

    def _standardising(self, full_scale: float, device: torch.device) -> tuple[Tensor, ...]:
        """Factor and summand (C, 1, 1) for values up to ``full_scale``."""
        if (full_scale, device) not in self._standards:
            mean, std = (value.double().view(-1, 1, 1) for value in (self.mean, self.std))
            pair = tuple(value.float().to(device) for value in (1 / (full_scale * std), -mean / std))
            self._standards[full_scale, device] = pair
        return self._standards[full_scale, device]

    def _seen(self) -> int | None:
        """The images that were seen when the run was resumed, as long as it is at that batch."""
        assert self.trainer is not None
        epoch, batch, seen = self._resumed or (-1, -1, 0)
        return seen if (self.trainer.current_epoch, self._position()) == (epoch, batch) else None

    def _position(self) -> int:
        """How many batches of this epoch were trained on, including those before a run was resumed."""
        assert self.trainer is not None
        return int(self.trainer.fit_loop.epoch_loop.batch_progress.current.ready)


def split_classes(folder: Folder, classes: Sequence[str], labels: Tensor, kind: str, data: Any) -> dict[str, Tensor]:
    """Indices (N,) of each split: ``data.train_fraction`` of each class is for training; the rest is halved.

    A :class:`DataError` names the folder of a class that has too few images; ``kind``: tile or photo.
    """
    held_out = (1 - data.train_fraction) / 2
    try:
        parts = stratified_split(labels.numpy(), (data.train_fraction, held_out, held_out), data.seed)
    except ValueError as error:
        label, count = error.args
        raise DataError(
            f"{folder / classes[label]} holds {count} {kind}{'s'[: count != 1]}, but at least {len(SPLITS)} are "
            f"needed, for training, validation and test; add {kind}s or remove the folder"
        ) from None
    return {split: torch.from_numpy(part) for split, part in zip(SPLITS, parts, strict=True)}


def stratified_split(labels: ArrayLike, fractions: Sequence[float], seed: int) -> list[NDArray[np.int64]]:
    """Deal indices to parts so that each part has its share of every class, and at least one image of it.

    Rounding errors in one class are made up for in the next. Raises a ValueError
    when a class has fewer members than there are parts; its ``args`` are the class and the number.
    """
    generator = np.random.default_rng(seed)
    targets = np.asarray(labels)
    order = np.argsort(targets, kind="stable")
    classes, begins = np.unique(targets[order], return_index=True)
    parts, counts, dealt = [[order[:0]] for _ in fractions], [0] * len(fractions), 0
    for label, group in zip(classes, np.split(order, begins[1:]), strict=True):
        members = generator.permutation(group)
        if len(members) < len(parts):
            raise ValueError(int(label), len(members))
        dealt += len(members)
        for number, share in enumerate(np.cumsum(fractions)):
            taken = sum(counts[: number + 1])
            behind = len(parts) - number - 1  # parts that need one of this class each
            count = int(np.clip(round(share * dealt) - taken, 1, len(members) - behind))
            parts[number].append(members[:count])
            counts[number] += count
            members = members[count:]
    return [np.sort(np.concatenate(part)) for part in parts]
