"""Photos by Pillow, which decodes the whole photo and then crops it."""

from strobe.app.loaders.photos import Frame, PhotoLoader


class PilLoader(PhotoLoader):
    """``Image.open(path).crop(box).resize((size, size), BILINEAR)``, as a plain torchvision data set does.

    Like all loaders of photos it ignores the EXIF orientation. It does not use JPEG's draft mode, which decodes at a
    lower resolution and gives other pixels.
    """

    def decode(self, content: bytes, frame: Frame, size: int) -> None:
        """Leaves all to Pillow."""
