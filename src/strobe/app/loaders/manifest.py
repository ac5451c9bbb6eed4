"""What a pack says of itself, and whether it still is what is wanted."""

import hashlib
import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from strobe.app.loaders.threads import DISK_THREADS

VERSION = 2  # raise it with any change to the files: packs of another version are made anew
MANIFEST = "manifest.json"
_BLOCK_BYTES = 1 << 20
_FILES = 256  # asked for by one thread at a time: for each alone, handing it over would cost ten times as much


class StaleError(Exception):
    """Why a pack cannot be used."""


@dataclass(frozen=True)
class Layout:
    """How one image lies in a pack: planes of pixels, one after the other."""

    form: str  # tiles, or photos-<size>
    dtype: str  # NumPy's name: <u2, |u1
    shape: tuple[int, int, int]  # planes, height, width
    bands: tuple[int, ...]  # which band of the file each plane is

    @property
    def image_bytes(self) -> int:
        """Bytes of one image."""
        return prod(self.shape) * np.dtype(self.dtype).itemsize

    @property
    def kind(self) -> str:
        """What the images are: a tile, a photo."""
        return self.form.partition("-")[0].removesuffix("s")

    def agrees(self, other: "Layout") -> bool:
        """Whether the two differ in nothing but the order of their planes."""
        return replace(other, bands=self.bands) == self and set(other.bands) == set(self.bands)


@dataclass(frozen=True)
class Sources:
    """The files that a pack is made of, as they were then."""

    count: int
    bytes: int
    newest: int  # time of the last change of any file's content, ns
    names: str  # digest of the paths below their common folder, in order
    states: str  # digest of each file's size and times

    @classmethod
    def of(cls, paths: Sequence[str]) -> "Sources":
        """The files as they are now.

        A file's state is its size, and when its content (mtime) and its entry on the disk (ctime) changed. Unpacking an
        archive and ``cp -p`` give many files one mtime, so two tiles that change places differ in ctime alone. The
        inode would add nothing, and on some network disks it changes with each mount.

        Raises:
            OSError: one is not there; has its ``filename``.
        """
        start = len(common_folder(paths))
        names = hashlib.blake2b(b"\0".join(os.fsencode(path[start:]) for path in paths), digest_size=16)
        with ThreadPoolExecutor(DISK_THREADS) as pool:
            parts = pool.map(_states, (paths[at : at + _FILES] for at in range(0, len(paths), _FILES)))
            found = np.concatenate(list(parts))
        states = hashlib.blake2b(found.tobytes(), digest_size=16).hexdigest()
        return cls(len(paths), int(found[:, 0].sum()), int(found[:, 1].max()), names.hexdigest(), states)

    def difference(self, now: "Sources") -> str | None:
        """What has changed since, in words."""
        if now.count != self.count:
            return f"there are {now.count:,} files instead of {self.count:,}"
        if now.names != self.names:
            return "there are other files, or they are in another order"
        if now != self:
            return "a file has changed"
        return None


@dataclass(frozen=True)
class Manifest:
    """The description of a pack; a pack without one is none."""

    version: int
    layout: Layout
    sources: Sources
    checksum: str  # of the file of pixels, which is named after it

    @property
    def pixels(self) -> str:
        """The name of the file of pixels: (images, planes, height, width), nothing else."""
        return f"{self.checksum}.pixels"

    @property
    def size(self) -> int:
        """Bytes of pixels."""
        return self.sources.count * self.layout.image_bytes

    def write(self, folder: Path) -> None:
        """Put it into ``folder`` at one stroke, in place of an older one."""
        partial = folder / f"{MANIFEST}.partial"
        with partial.open("w", encoding="utf-8") as file:
            json.dump(asdict(self), file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(folder / MANIFEST)


def current(folder: Path, layout: Layout, sources: Sources, *, verify: bool) -> Manifest:
    """The manifest of the pack in ``folder``, if it holds these sources in this layout.

    ``verify``: also read all pixels, and hold them against their checksum.

    Raises:
        StaleError: it does not, or there is none.
    """
    manifest = _read(folder)
    if manifest.version != VERSION or not manifest.layout.agrees(layout):
        raise StaleError("the pack there has another layout")
    if changed := manifest.sources.difference(sources):
        raise StaleError(changed)
    pixels = folder / manifest.pixels
    if not pixels.is_file() or pixels.stat().st_size != manifest.size:
        raise StaleError("the pack there has lost pixels")
    if verify and _checksum(pixels) != manifest.checksum:
        raise StaleError("the pack there has a wrong checksum")
    return manifest


def common_folder(paths: Sequence[str]) -> str:
    """The folder that holds all of them."""
    return os.path.commonpath([os.path.dirname(path) for path in (min(paths), max(paths))])  # noqa: PTH120


def _states(paths: Sequence[str]) -> NDArray[np.int64]:
    """Size and times (N, 3) of files."""
    states = map(os.stat, paths)
    return np.array([(state.st_size, state.st_mtime_ns, state.st_ctime_ns) for state in states], dtype=np.int64)


def _read(folder: Path) -> Manifest:
    try:
        found = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        layout, sources = found["layout"], found["sources"]
        return Manifest(
            int(found["version"]),
            Layout(**layout | {"shape": tuple(map(int, layout["shape"])), "bands": tuple(map(int, layout["bands"]))}),
            Sources(**sources | {"count": int(sources["count"])}),
            str(found["checksum"]),
        )
    except FileNotFoundError:
        raise StaleError("none is there yet") from None
    except (OSError, ValueError, KeyError, TypeError):
        raise StaleError("the manifest of the pack there is damaged") from None


def new_checksum() -> "hashlib.blake2b":
    """The sum that is kept of pixels, of none yet."""
    return hashlib.blake2b(digest_size=16)


def _checksum(path: Path) -> str:
    checksum = new_checksum()
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            checksum.update(block)
    return checksum.hexdigest()
