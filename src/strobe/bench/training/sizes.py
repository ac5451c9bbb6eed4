"""Whether there are images enough for a batch."""

from strobe.bench.harness.declare import Input
from strobe.errors import ConfigError


def require_batch(size: int, found: Input, instead: str) -> None:
    """Refuse batches that there are too few images for.

    Raises:
        ConfigError: the training split has less than ``size``.
    """
    images = int(found.facts["images"])
    if size > images:
        raise ConfigError(
            f"batches of {size} are more than the {images:,} images to train on ({found.told}); give a smaller "
            f"{instead}, or more images with data.root=DIR"
        )
