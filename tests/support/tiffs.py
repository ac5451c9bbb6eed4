"""TIFFs made by hand, one entry at a time."""

import struct
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

SHORT, LONG = 3, 4
Entry = tuple[int, list[int]]
"""Type and values."""


def entries(shape: tuple[int, int, int], rows: int) -> dict[int, Entry]:
    """What an uncompressed tile (bands, H, W) of strips of ``rows`` has, but for the strips' offsets."""
    bands, height, width = shape
    strips = [min(rows, height - top) for top in range(0, height, rows)]
    return {
        256: (SHORT, [width]),
        257: (SHORT, [height]),
        258: (SHORT, [16] * bands),
        259: (SHORT, [1]),
        262: (SHORT, [1]),
        273: (LONG, [0] * len(strips)),
        277: (SHORT, [bands]),
        278: (SHORT, [rows]),
        279: (LONG, [2 * bands * width * strip for strip in strips]),
        284: (SHORT, [1]),
        339: (SHORT, [1] * bands),
    }


def tiff(
    pixels: NDArray[np.uint16],
    *,
    rows: int = 4,
    changes: Mapping[int, Entry | None] | None = None,
    pixels_first: bool = False,
    gap: int = 0,
    next_page: int = 0,
) -> bytes:
    """A tile (bands, H, W); ``changes`` replace entries, or drop them; a ``gap`` follows the first strip."""
    found: dict[int, Entry | None] = {**entries(pixels.shape, rows), **(changes or {})}
    kept = {tag: entry for tag, entry in sorted(found.items()) if entry is not None}
    body = np.moveaxis(pixels, 0, -1).astype("<u2").tobytes()
    sizes = found[279][1] if found[279] else []
    first = 8 if pixels_first else 8 + 2 + 12 * len(kept) + 4 + sum(map(_outside, kept.values()))
    if 273 in kept and 273 not in (changes or {}):
        starts = np.cumsum([first, *sizes[:-1]]) + gap * (np.arange(len(sizes)) > 0)
        kept[273] = (LONG, starts.tolist())
    if gap:
        body = body[: sizes[0]] + bytes(gap) + body[sizes[0] :]
    start = 8 + len(body) if pixels_first else 8
    head = b"II*\0" + struct.pack("<I", start)
    directory = _directory(kept, start, next_page)
    return head + (body + directory if pixels_first else directory + body)


def _directory(kept: Mapping[int, Entry], start: int, next_page: int) -> bytes:
    outside, values = start + 2 + 12 * len(kept) + 4, b""
    written = struct.pack("<H", len(kept))
    for tag, (kind, numbers) in kept.items():
        packed = struct.pack(f"<{len(numbers)}{'H' if kind == SHORT else 'I'}", *numbers)
        if len(packed) > 4:
            field, values = struct.pack("<I", outside + len(values)), values + packed
        else:
            field = packed.ljust(4, b"\0")
        written += struct.pack("<HHI", tag, kind, len(numbers)) + field
    return written + struct.pack("<I", next_page) + values


def _outside(entry: Entry) -> int:
    size = len(entry[1]) * (2 if entry[0] == SHORT else 4)
    return size if size > 4 else 0
