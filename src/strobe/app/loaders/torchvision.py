"""Photos by torchvision's decoders, libjpeg-turbo and libpng."""

import warnings
import zlib

import torch
from torch import Tensor
from torchvision.io import ImageReadMode, decode_image
from torchvision.transforms.v2.functional import resize

from strobe.app.loaders.photos import Frame, PhotoLoader

# Its decoders are moving to TorchCodec (torchvision 0.29 says so once a process), but are still widely used.
warnings.filterwarnings("ignore", "The image decoding and encoding capabilities of TorchVision", DeprecationWarning)

PNG = b"\x89PNG\r\n\x1a\n"


class TorchvisionLoader(PhotoLoader):
    """``torchvision.io.decode_image`` of a file's bytes, then a crop, then ``resize`` with antialiasing.

    A crop's pixels equal Pillow's. Resized ones differ by at most one level, by rounding.
    """

    def decode(self, content: bytes, frame: Frame, size: int) -> Tensor | None:
        """Colours (3, size, size) uint8; None if torchvision does not read the photo as 8-bit RGB."""
        if not content or (content.startswith(PNG) and not _is_whole_png(content)):
            return None
        try:
            photo: Tensor = decode_image(torch.frombuffer(bytearray(content), dtype=torch.uint8), ImageReadMode.RGB)
        except RuntimeError:  # Pillow reads the photo, or says what is wrong
            return None
        if photo.ndim != 3 or photo.dtype != torch.uint8:
            return None
        top, left, height, width = frame(*photo.shape[1:])
        part = photo[:, top : top + height, left : left + width]
        return part if (height, width) == (size, size) else resize(part, [size, size], antialias=True)


def _is_whole_png(content: bytes) -> bool:
    """Whether all chunks have their checksums: where compressed data is damaged, torchvision 0.29 may crash."""
    at, kind = len(PNG), b""
    while kind != b"IEND" and at + 12 <= len(content):
        length = int.from_bytes(content[at : at + 4], "big")
        kind, end = content[at + 4 : at + 8], at + 8 + length
        if zlib.crc32(memoryview(content)[at + 4 : end]) != int.from_bytes(content[end : end + 4], "big"):
            return False
        at = end + 4
    return kind == b"IEND"
