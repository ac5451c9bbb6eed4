"""Crops of JPEG photos, decoded by libjpeg-turbo: only the crop is decoded, on several threads."""

from torch import Tensor

from strobe.app.native.build import Library, operators
from strobe.app.native.files import Files, statuses
from strobe.app.native.system import JPEG, PHOTOS

LIBRARY = Library(
    "photos",
    ("photos.cpp", "jpeg.cpp", "units.cpp", "resample.cpp", "pool.cpp"),
    links=("jpeg",),
    header=JPEG,
    packages=PHOTOS,
    serves="loader=native for photos",
    fakes=(
        ("strobe::decode_crop_jpeg", lambda data, _top, _left, height, width: data.new_empty((3, height, width))),
        (
            "strobe::measure_photos",
            lambda _, ends, files, _t: ends.new_empty((len(ends if files is None else files), 2)),
        ),
        ("strobe::read_photos", statuses),
    ),
)


def decode_crop_jpeg(data: Tensor, top: int, left: int, height: int, width: int) -> Tensor:
    """A box of one photo, in its pixels and not resized: (3, height, width) uint8.

    Bit for bit what Pillow and torchvision give: a full decode by libjpeg-turbo, cropped afterwards. Like both of them
    it ignores the EXIF orientation. ``data`` (B,) uint8 is the encoded photo: grey or colour, baseline or progressive
    (but without a scan missing, and of 100 scans at most); no CMYK. Raises a RuntimeError if it is damaged or of
    another kind, or the box does not lie within it.
    """
    box: Tensor = operators(LIBRARY).decode_crop_jpeg(data, top, left, height, width)
    return box


def measure_photos(files: Files, *, threads: int) -> Tensor:
    """Height and width (N, 2) int64 of photos, from their headers; 0, 0 for one that :func:`read_photos` cannot read.

    Arguments and errors are those of :func:`read_photos`.
    """
    sizes: Tensor = operators(LIBRARY).measure_photos(*files, threads)
    return sizes


def read_photos(out: Tensor, files: Files, boxes: Tensor, *, scaled: bool, threads: int) -> Tensor:
    """Fill ``out`` (N, 3, S, S) uint8 with a square of each photo; releases the GIL.

    ``boxes`` (N, 4) int64 are top, left, height and width, in pixels of the photo. They are resampled as by Pillow,
    rows first, bit for bit; where Pillow 13 takes columns first, single pixels differ by one level. With ``scaled``,
    libjpeg decodes the photo at the smallest of 1/8, 2/8 .. 8/8 of its size that leaves the box no smaller than the
    square. Random resized crops to 224 of photos of 800x533 then differ from torchvision's by 0.8 levels on average,
    and by up to 50 along sharp edges; without ``scaled`` by 0.002 and 2 at most.

    Returns (N,) uint8: 0 where the photo was read. 1 where :func:`decode_crop_jpeg` could not read it, or it is smaller
    than its box; its place in ``out`` then holds anything. Memory, threads and errors are as of ``tiles.read_tiles``.
    """
    status: Tensor = operators(LIBRARY).read_photos(out, *files, boxes, scaled, threads)
    return status
