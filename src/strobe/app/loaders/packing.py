"""Packs: all images of a set in one memory-mapped file, which is rebuilt when the set has changed."""

import hashlib
import json
import logging
import os
import shutil
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.filesize import decimal
from torch import Tensor

from strobe.app.loaders.base import unreadable
from strobe.app.loaders.threads import DISK_THREADS
from strobe.app.storage.folder import Objects
from strobe.errors import DataError, disk_errors
from strobe.present.terminal import clock, shown
from strobe.process.locks import locked
from strobe.records.files import whole

_log = logging.getLogger(__name__)

PACE = {"tile": 2000.0, "photo": 80.0}  # images a second, about, that are read and written
SPARE = 64 << 20  # bytes that stay free on the disk
_CHUNK = 64  # images read ahead
VERSION = 2  # raise it with any change to the format: packs of another version are rebuilt
MANIFEST = "manifest.json"
_FILES = 256  # per task of a thread; a task for each file would cost ten times as much


class StaleError(Exception):
    """Why a pack cannot be used."""


@dataclass(frozen=True)
class Layout:
    """The layout of an image in a pack: planes of pixels, one after the other."""

    form: str  # tiles, or photos-<size>
    dtype: str  # NumPy's name: <u2, |u1
    shape: tuple[int, int, int]  # planes, height, width
    bands: tuple[int, ...]  # the file's band in each plane

    @classmethod
    def of_json(cls, content: dict[str, Any]) -> "Layout":
        """As it was written; raises a KeyError or a TypeError for anything else."""
        return cls(**content | {key: tuple(content[key]) for key in ("shape", "bands")})

    @property
    def image_bytes(self) -> int:
        """Bytes of one image."""
        return prod(self.shape) * np.dtype(self.dtype).itemsize

    @property
    def plane_bytes(self) -> int:
        """Bytes of one of its planes."""
        return self.image_bytes // self.shape[0]

    @property
    def tensor_dtype(self) -> torch.dtype:
        """Torch's name of the type."""
        return {"<u2": torch.uint16, "|u1": torch.uint8}[self.dtype]

    @property
    def kind(self) -> str:
        """What the images are: ``tile`` or ``photo``."""
        return self.form.partition("-")[0].removesuffix("s")

    def agrees(self, other: "Layout") -> bool:
        """Whether the two differ only in the order of their planes, if at all."""
        return replace(other, bands=self.bands) == self and set(other.bands) == set(self.bands)


@dataclass(frozen=True)
class Sources:
    """The state of the files that a pack was built from."""

    count: int
    bytes: int
    newest: int  # time of the last change of any file's content, ns
    names: str  # digest of the paths below their common folder, in order
    states: str  # digest of each file's size and times

    def difference(self, now: "Sources") -> str | None:
        """What has changed since, in a sentence."""
        if now.count != self.count:
            return f"there are {now.count:,} files instead of {self.count:,}"
        if now.names != self.names:
            return "there are other files, or they are in another order"
        return None if now == self else "a file has changed"


@dataclass(frozen=True)
class Manifest:
    """The description of a pack; a folder without one is not a pack."""

    version: int
    layout: Layout
    sources: Sources
    checksum: str  # of the file of pixels, which is named after it

    @property
    def pixels(self) -> str:
        """The name of the file of pixels: (images, planes, height, width), nothing else."""
        return f"{self.checksum}.pixels"


@dataclass(frozen=True)
class Contents:
    """All images of a set."""

    paths: Sequence[str]
    layout: Layout
    read: Callable[[str], NDArray[Any]]  # one image in ``layout``; raises a DataError that names the file
    objects: Objects | None = None  # where the paths are addresses in storage

    def sources(self) -> Sources:
        """The current state of the files.

        A file's state is its size, and the times of change of its content (mtime) and its inode (ctime). Unpacking an
        archive and ``cp -p`` give many files the same mtime, so two swapped tiles differ only in ctime. The
        inode would add nothing, and on some network disks it changes with each mount.
        """
        paths, names = self.paths, names_of(self.paths)
        if self.objects is not None:
            sizes, versions = self.objects.sizes, self.objects.versions
            return Sources(len(paths), int(sizes.sum()), 0, names, digest(sizes.tobytes() + versions.tobytes()))
        try:
            with ThreadPoolExecutor(DISK_THREADS) as pool:
                parts = pool.map(_states, (paths[at : at + _FILES] for at in range(0, len(paths), _FILES)))
                states = np.concatenate(list(parts))
        except OSError as error:
            raise unreadable(str(error.filename), self.layout.kind, error) from error
        return Sources(len(paths), int(states[:, 0].sum()), int(states[:, 1].max()), names, digest(states.tobytes()))


def _states(paths: Sequence[str]) -> NDArray[np.int64]:
    """Size and times (N, 3) of files."""
    states = map(os.stat, paths)
    return np.array([(state.st_size, state.st_mtime_ns, state.st_ctime_ns) for state in states], dtype=np.int64)


def digest(content: bytes, size: int = 16) -> str:
    """A hash in so many bytes, as text."""
    return hashlib.blake2b(content, digest_size=size).hexdigest()


def common_folder(paths: Sequence[str]) -> str:
    """The folder, or the address in storage, that all paths have in common."""
    scheme, separator, _ = paths[0].partition("://")
    ends = [path.removeprefix(scheme + separator) if separator else path for path in (min(paths), max(paths))]
    return (scheme + separator if separator else "") + os.path.commonpath(list(map(os.path.dirname, ends)))


def names_of(paths: Sequence[str]) -> str:
    """A digest of a set's paths below their common folder, in order: the same on each machine and in storage."""
    start = len(common_folder(paths))
    return digest(b"\0".join(os.fsencode(path[start:]) for path in paths))


def packed(directory: Path, contents: Contents, *, verify: bool) -> tuple[Path, Manifest]:
    """The file of pixels and its manifest; packs first, unless there is an up-to-date pack.

    Of several processes that start at once, one packs and the others wait. A half-written pack is never used. A process
    that uses a pack that is replaced keeps its pixels. ``verify`` also checks the checksum of an existing pack, which
    reads all of it. Raises a :class:`DataError` if a file cannot be read, or there is no room in ``directory``, where
    all packs are.
    """
    folder_of_files, form = common_folder(contents.paths), contents.layout.form
    root = folder_of_files if contents.objects else os.path.abspath(folder_of_files)  # noqa: PTH100
    # A set whose files change keeps its folder.
    folder = directory / f"{Path(root).name}-{form}-{digest(os.fsencode(f'{form} {root}'), 4)}"
    with suppress(StaleError):
        manifest = _current(folder, contents.layout, contents.sources(), verify)
        return folder / manifest.pixels, manifest
    remedy = "make room, allow writing to it, or set another loader.directory"
    with disk_errors(lambda why: f"loader.directory={directory} cannot hold the pack ({why}); {remedy}"):
        directory.mkdir(parents=True, exist_ok=True)
        with locked(directory / f".{folder.name}.lock"):
            sources = contents.sources()  # as they are after waiting
            try:
                manifest = _current(folder, contents.layout, sources, verify)
            except StaleError as reason:
                manifest = _pack(folder, contents, sources, str(reason))
    return folder / manifest.pixels, manifest


def _current(folder: Path, layout: Layout, sources: Sources, verify: bool) -> Manifest:
    """The manifest of the pack in ``folder``; raises a StaleError unless it holds these sources in this layout."""
    try:
        content = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        there = Layout.of_json(content["layout"])
        manifest = Manifest(content["version"], there, Sources(**content["sources"]), content["checksum"])
        changed = manifest.sources.difference(sources)
        agrees = manifest.version == VERSION and there.agrees(layout)
    except FileNotFoundError:
        raise StaleError("there is none yet") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise StaleError("its manifest is damaged") from None
    if not agrees:
        raise StaleError("the old pack has another layout")
    if changed:
        raise StaleError(changed)
    pixels = folder / manifest.pixels
    if not pixels.is_file() or pixels.stat().st_size != sources.count * layout.image_bytes:
        raise StaleError("the old pack has lost pixels")
    if verify:
        with pixels.open("rb") as file:
            checksum = hashlib.file_digest(file, _new_checksum).hexdigest()
        if checksum != manifest.checksum:
            raise StaleError("the old pack has a wrong checksum")
    return manifest


def _new_checksum() -> "hashlib.blake2b":
    return hashlib.blake2b(digest_size=16)


def _pack(folder: Path, contents: Contents, sources: Sources, reason: str) -> Manifest:
    layout, size = contents.layout, sources.count * contents.layout.image_bytes
    partial = folder / "pixels.partial"
    partial.unlink(missing_ok=True)  # a crash may have left it
    folder.mkdir(exist_ok=True)
    try:
        require_room(folder.parent, size, "The pack needs", "or set another loader.directory")
        cost = f"{decimal(size)}, about {clock(sources.count / PACE[layout.kind])}"
        _log.info("Packing %d %ss (%s) into %s: %s", sources.count, layout.kind, cost, folder, reason)
        start = time.perf_counter()
        manifest = Manifest(VERSION, layout, sources, _write(partial, contents, size))
        partial.replace(folder / manifest.pixels)
        with whole(folder / MANIFEST) as written:
            written.write_text(json.dumps(asdict(manifest), indent=1), encoding="utf-8")
        _log.info("Packed %d %ss/s", sources.count / (time.perf_counter() - start), layout.kind)
        for old in folder.iterdir():
            if old.name not in (MANIFEST, manifest.pixels):
                old.unlink()
    finally:
        partial.unlink(missing_ok=True)
        with suppress(OSError):
            folder.rmdir()  # when it is empty
    return manifest


def require_room(directory: Path, size: int, needs: str, remedy: str) -> None:
    """Raise a :class:`DataError` unless so many bytes are free in ``loader.directory``, and some to spare."""
    if (free := shutil.disk_usage(directory).free) < size + SPARE:
        raise DataError(
            f"{needs} {decimal(size)} in loader.directory={directory}, and {decimal(SPARE)} must stay free, but "
            f"only {decimal(free)} are free there; free the space, {remedy}"
        )


def _write(partial: Path, contents: Contents, size: int) -> str:
    """Write all pixels, and return their checksum."""
    paths, layout, checksum = contents.paths, contents.layout, _new_checksum()
    chunks = range(0, len(paths), _CHUNK)
    with partial.open("wb") as file, ThreadPoolExecutor(torch.get_num_threads()) as pool:
        os.posix_fallocate(file.fileno(), 0, size)  # a full disk fails here, not with SIGBUS where the file is mapped
        for start in shown(chunks, "Packing"):
            for image in pool.map(contents.read, paths[start : start + _CHUNK]):
                pixels = np.ascontiguousarray(image, dtype=layout.dtype)
                assert pixels.shape == layout.shape
                file.write(pixels.data)
                checksum.update(pixels.data)
        file.flush()
        os.fsync(file.fileno())
    return checksum.hexdigest()


def mapped(path: Path, shape: tuple[int, int], *, start: int = 0, remedy: str) -> Tensor:
    """Rows of a file, mapped read-only, so that all processes of a machine share one copy, as uint8.

    Torch's own mapping is private and writable, which Linux refuses beyond its memory. Raises a :class:`DataError` if
    the file is missing or too short.
    """
    try:
        rows = np.memmap(path, np.uint8, mode="r", offset=start, shape=shape)
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be mapped ({error}); {remedy}") from error
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")  # nothing writes
        return torch.from_numpy(rows)


class MappedImages:
    """Images of one shape in files of ``each`` images, of which the last may have fewer; a copy maps the files again.

    ``parts`` are the path of each file, its images, and the byte at which they begin; ``gap`` bytes precede each image.
    """

    def __init__(
        self, layout: Layout, each: int, parts: Sequence[tuple[Path, int, int]], remedy: str, gap: int = 0
    ) -> None:
        self.layout, self.each = layout, each
        self.paths = [str(path) for path, *_ in parts]
        self._made = layout, each, parts, remedy, gap
        length = gap + layout.image_bytes
        found = (mapped(path, (count, length), start=start, remedy=remedy) for path, count, start in parts)
        self.rows = [rows[:, gap:] for rows in found]  # of each file (images, bytes of an image) uint8

    def __reduce__(self) -> tuple[Any, ...]:
        return MappedImages, self._made

    def gather(self, chosen: Tensor, planes: tuple[int, ...], out: Tensor) -> None:
        """Copy ``planes`` of images ``chosen`` (N,) int64 to ``out`` (N, bytes of all these planes) uint8."""
        length, together = self.layout.plane_bytes, runs(planes)
        if len(self.rows) == 1 and len(together) > 1 and self.rows[0].is_contiguous():  # all at once is fastest
            places = (chosen[:, None] * self.layout.shape[0] + torch.tensor(planes)).view(-1)
            torch.index_select(self.rows[0].view(-1, length), 0, places, out=out.view(len(places), -1))
            return
        files = None if len(self.rows) == 1 else chosen // self.each
        for begin, end in together:
            target = out[:, begin * length : end * length]
            columns = slice(planes[begin] * length, (planes[end - 1] + 1) * length)
            if files is None:
                torch.index_select(self.rows[0][:, columns], 0, chosen, out=target)
                continue
            for file in sorted(set(files.tolist())):
                here = (files == file).nonzero().flatten()
                target[here] = self.rows[file][:, columns].index_select(0, chosen[here] - file * self.each)


def runs(planes: Sequence[int]) -> list[tuple[int, int]]:
    """From which place to which of ``planes`` they lie side by side in an image."""
    begins = [place for place, plane in enumerate(planes) if not place or plane != planes[place - 1] + 1]
    return list(pairwise([*begins, len(planes)]))
