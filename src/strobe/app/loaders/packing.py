"""Makes packs: all images of a set in one file of pixels, which is rebuilt when the set has changed."""

import hashlib
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.filesize import decimal
from rich.progress import track

from strobe.app.loaders.base import unreadable
from strobe.app.loaders.manifest import (
    MANIFEST,
    VERSION,
    Layout,
    Manifest,
    Sources,
    StaleError,
    common_folder,
    current,
    new_checksum,
)
from strobe.app.loaders.threads import threads
from strobe.errors import DataError
from strobe.process.locks import locked

_log = logging.getLogger(__name__)

SPARE = 64 << 20  # bytes that stay free on the disk
_CHUNK = 64  # images read ahead


@dataclass(frozen=True)
class Contents:
    """All images of a set."""

    paths: Sequence[str]
    layout: Layout
    read: Callable[[str], NDArray[Any]]  # one image as ``layout`` wants it; raises a DataError that names the file


def packed(directory: Path, contents: Contents, *, verify: bool) -> tuple[Path, Manifest]:
    """The file of pixels, and its manifest; packs first unless that was done before and nothing has changed since.

    Of several processes that start at once one packs, and the others wait for it. Whatever interrupts it, a
    half-written pack is never used. Whoever has mapped a pack that is replaced keeps its pixels.

    Raises:
        DataError: a file cannot be read, or there is no room for the pack.
    """
    folder = directory / _name(contents)
    with suppress(StaleError):
        found = current(folder, contents.layout, _sources(contents), verify=verify)
        return folder / found.pixels, found
    with _disk_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
        with locked(directory / f".{folder.name}.lock"):
            sources = _sources(contents)  # as they are after waiting
            try:
                found = current(folder, contents.layout, sources, verify=verify)
            except StaleError as reason:
                found = _pack(folder, contents, sources, str(reason))
    return folder / found.pixels, found


def _sources(contents: Contents) -> Sources:
    try:
        return Sources.of(contents.paths)
    except OSError as error:
        raise unreadable(str(error.filename), contents.layout.kind, error) from error


def _name(contents: Contents) -> str:
    """A pack's folder: the same for a set whose files change."""
    root, form = os.path.abspath(common_folder(contents.paths)), contents.layout.form  # noqa: PTH100
    digest = hashlib.blake2b(os.fsencode(f"{form} {root}"), digest_size=4).hexdigest()
    return f"{Path(root).name}-{form}-{digest}"


def _pack(folder: Path, contents: Contents, sources: Sources, reason: str) -> Manifest:
    layout, size = contents.layout, sources.count * contents.layout.image_bytes
    partial = folder / "pixels.partial"
    partial.unlink(missing_ok=True)  # a crash may have left it
    folder.mkdir(exist_ok=True)
    try:
        _require_space(folder, size)
        _log.info("Packing %d %ss (%s) into %s: %s", sources.count, layout.kind, decimal(size), folder, reason)
        start = time.perf_counter()
        checksum = _write(partial, contents, size)
        manifest = Manifest(VERSION, layout, sources, checksum)
        partial.replace(folder / manifest.pixels)
        manifest.write(folder)
        _log.info("Packed %d %ss/s", sources.count / (time.perf_counter() - start), layout.kind)
        for old in folder.iterdir():
            if old.name not in (MANIFEST, manifest.pixels):
                old.unlink()
    finally:
        partial.unlink(missing_ok=True)
        with suppress(OSError):
            folder.rmdir()  # when it is empty
    return manifest


def _write(partial: Path, contents: Contents, size: int) -> str:
    """Write all pixels, and return their checksum."""
    paths, layout, checksum = contents.paths, contents.layout, new_checksum()
    console = Console(stderr=True)
    chunks = range(0, len(paths), _CHUNK)
    with partial.open("wb") as file, ThreadPoolExecutor(threads()) as pool:
        os.posix_fallocate(file.fileno(), 0, size)  # a full disk is told now; later it could kill whoever maps the file
        for start in track(chunks, "Packing", console=console, transient=True, disable=not console.is_terminal):
            for image in pool.map(contents.read, paths[start : start + _CHUNK]):
                pixels = np.ascontiguousarray(image, dtype=layout.dtype)
                assert pixels.shape == layout.shape
                file.write(pixels.data)
                checksum.update(pixels.data)
        file.flush()
        os.fsync(file.fileno())
    return checksum.hexdigest()


def _require_space(folder: Path, size: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < size + SPARE:
        raise DataError(
            f"The pack needs {decimal(size + SPARE)} in loader.directory={folder.parent}, but {decimal(free)} are "
            "free there; free the space, or give another loader.directory"
        )


@contextmanager
def _disk_errors(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(
            f"loader.directory={directory} cannot hold the pack ({error.strerror or error}); "
            "make room and let it be written to, or give another loader.directory"
        ) from error
