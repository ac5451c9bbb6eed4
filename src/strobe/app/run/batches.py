"""A batch to replay: from a configuration's loader, or made of another batch."""

from omegaconf import DictConfig

from strobe.app.data.base import ImageData
from strobe.app.engines.base import WholeBatches
from strobe.app.engines.sampler import Indices
from strobe.app.loaders.base import Batch

BATCH_KEYS = ("batch_size", "val_batch_size", "augment")  # of data; the images are the same whatever these are


def load_batch(data: ImageData) -> Batch:
    """One batch of the training images, loaded in this process."""
    dataset = data.datasets["train"]
    count = min(data.batch_size, len(dataset))
    return WholeBatches(dataset).__getitems__(Indices(range(count), split="train", epoch=0, number=0))


def repeat(batch: Batch, size: int) -> Batch:
    """A batch of ``size`` images, made by repeating those of another one."""
    pixels, labels = batch
    times = -(-size // len(labels))
    return pixels.repeat(times, *(1 for _ in pixels.shape[1:]))[:size].contiguous(), labels.repeat(times)[:size]


def same_images(cfg: DictConfig, other: DictConfig) -> bool:
    """Whether both read the same images, in whatever batches."""
    first, second = ({key: value for key, value in c.data.items() if key not in BATCH_KEYS} for c in (cfg, other))
    return first == second
