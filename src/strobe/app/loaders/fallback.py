"""Files that a loader's operators leave to another, slower loader."""

import logging
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor

from strobe.app.loaders.base import unreadable
from strobe.app.loaders.buffer_pool import shared_zeros

_log = logging.getLogger(__name__)


class Fallback:
    """Reads such files one at a time, and says so once a run.

    Whether it was said is kept in memory that worker processes share, however they are started: else each worker would
    say it, in each epoch anew. Two that come to their first such file within a microsecond may both say it.
    """

    def __init__(self) -> None:
        self._said = shared_zeros((1,), torch.bool)

    def read(self, path: str, kind: str, read: Callable[[str], Tensor], remedy: str) -> Tensor:
        """What ``read`` gives.

        Args:
            path: of the file.
            kind: what it should hold: a tile, a photo.
            read: the other loader.
            remedy: why such files are slow and what to do about it, said after the path of the first.

        Raises:
            DataError: it is a pipe or the like, which would be waited for; or as ``read`` raises.
        """
        with suppress(OSError):  # the other loader says why it cannot be opened
            if not stat.S_ISREG(Path(path).stat().st_mode):
                raise unreadable(path, kind, OSError("not a regular file"))
        pixels = read(path)
        if not self._said:
            self._said.fill_(True)
            _log.warning("%s and maybe others %s", path, remedy)
        return pixels
