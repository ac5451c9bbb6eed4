"""Photos by FFmpeg, through SPDL's ``spdl.io`` (https://github.com/facebookresearch/spdl)."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from strobe.app.loaders.photos import Box, Frame, PhotoLoader
from strobe.errors import DataError
from strobe.process.signals import REQUESTS

# FFmpeg's names of 8-bit formats in JPEG and PNG. It converts others (CMYK, 16 bits) as no other decoder does.
FORMS = {"yuvj420p", "yuvj422p", "yuvj440p", "yuvj444p", "gray", "monob", "pal8", "ya8", "rgb24", "rgba"}
QUIET = -8  # AV_LOG_QUIET: Pillow says what is wrong with a file
START, END = b"\xff\xd8", b"\xff\xd9"  # of a JPEG file
CHROMA = 4  # pixels: no form of JPEG's has coarser colours, and none is interpolated from farther away
EXACTLY = "flags=bilinear+accurate_rnd+full_chroma_int+full_chroma_inp,format=rgb24"


class SpdlLoader(PhotoLoader):
    """``spdl.io``: FFmpeg decodes, crops, converts to RGB and resizes.

    FFmpeg decodes and upsamples JPEG in its own way: on 4:2:0 photos its pixels differ from Pillow's by 0.6 of 256
    levels on average, by more than one level in 10% of the pixels, and by up to 50 at sharp edges. Pixels of PNG are
    equal until they are resized. A :class:`DataError` says how to install SPDL or FFmpeg's libraries.
    """

    def __init__(self, **common: Any) -> None:
        super().__init__(**common)
        _library()

    def decode(self, content: bytes, frame: Frame, size: int) -> Tensor | None:
        """Colours (3, size, size) uint8; None if FFmpeg cannot decode the photo, or decodes it as no other does."""
        io = _library()
        if content.startswith(START) and not content.endswith(END):  # truncated, perhaps, which FFmpeg would ignore
            return None
        try:
            packets = io.demux_image(content)
            if packets.pix_fmt not in FORMS:
                return None
            filters = _filters(packets.height, packets.width, frame(packets.height, packets.width), size)
            # Explode: else a truncated photo is filled up with grey.
            config = io.decode_config(decoder_options={"err_detect": "explode"})
            frames = io.decode_packets(packets, decode_config=config, filter_desc=filters)
            return torch.from_numpy(np.array(io.to_numpy(io.convert_frames(frames)))).permute(2, 0, 1)
        except (RuntimeError, IndexError):  # IndexError: not a single frame was decoded
            return None


def _filters(tall: int, wide: int, box: Box, size: int) -> str:
    """FFmpeg's filters from a photo of this height and width to the square.

    Only the box and the samples that its colours are interpolated from are converted to RGB, so its pixels are those of
    the whole photo.
    """
    top, left, height, width = box
    first, start = (max(0, edge - CHROMA) // CHROMA * CHROMA for edge in (top, left))
    last = min(tall, -(-(top + height + CHROMA) // CHROMA) * CHROMA)
    end = min(wide, -(-(left + width + CHROMA) // CHROMA) * CHROMA)
    steps = [
        f"crop={end - start}:{last - first}:{start}:{first}:exact=1",
        f"scale={EXACTLY}",
        f"crop={width}:{height}:{left - start}:{top - first}",
    ]
    if (height, width) != (size, size):
        steps.append(f"scale={size}:{size}:{EXACTLY}")
    return ",".join(steps)


@contextmanager
def _handlers_kept() -> Iterator[None]:
    """Take requests back from a library that takes them over in C within the block, of which Python knows nothing."""
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number in REQUESTS:
                if (handler := signal.getsignal(number)) is not None:
                    signal.signal(number, handler)


@cache
def _library() -> ModuleType:
    """``spdl.io``, with FFmpeg's libraries loaded; no log is left behind of photos that FFmpeg cannot decode."""
    for flag, value in {"GLOG_logtostderr": "1", "GLOG_minloglevel": "3"}.items():  # which it reads when it is loaded
        os.environ.setdefault(flag, value)
    try:
        with _handlers_kept():  # its Google logging answers SIGTERM with a dump of its stack
            import spdl.io
            from spdl.io.utils import set_ffmpeg_log_level

            set_ffmpeg_log_level(QUIET)
    except ImportError as error:
        raise DataError(f"loader=spdl needs SPDL ({error}); install it with: pip install 'spdl==0.8.*'") from error
    except RuntimeError as error:
        raise DataError(
            "loader=spdl needs FFmpeg's libraries (version 4 to 9), which cannot be loaded; "
            "install them with: sudo apt-get install ffmpeg"
        ) from error
    return spdl.io
