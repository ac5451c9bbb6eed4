"""Photos by Pillow: the whole photo is decoded, then the box is cut out."""

from torch import Tensor

from strobe.app.loaders.photos import Frame, PhotoLoader, by_pillow


class PilLoader(PhotoLoader):
    """``Image.open(path).crop(box).resize((size, size), BILINEAR)``, as a plain torchvision data set does.

    The orientation noted in EXIF is ignored, by all loaders of photos. JPEG's draft mode, which would decode at a
    lower resolution, is not used: pixels would differ.
    """

    def decode(self, content: bytes, frame: Frame, size: int) -> Tensor:
        """Colours (3, size, size) uint8."""
        return by_pillow(content, frame, size)
