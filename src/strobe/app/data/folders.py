"""Class folders, here or in storage, and the files below them."""

import logging
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from strobe.app.config.roots import legible, require_classes
from strobe.app.loaders.packing import MANIFEST
from strobe.app.loaders.sources import PathTable
from strobe.app.loaders.threads import DISK_THREADS
from strobe.app.storage.folder import RemoteFolder
from strobe.app.storage.local import LocalFolder
from strobe.errors import DataError

log = logging.getLogger(__name__)

Folder = LocalFolder | RemoteFolder


def files_of_classes(folder: Folder, suffixes: tuple[str, ...], *, below: bool) -> dict[str, PathTable]:
    """Each class in ``folder`` with its files, both sorted by name: directly in its folder, or at any depth ``below``.

    ``suffixes`` are in lower case; the case of a file's name does not matter. A class's label is its place. The
    folder of ``loader=packed``'s packs is not a class. Bytes of a name that are not UTF-8 are escaped.
    """
    classes = folder.folders()
    with ThreadPoolExecutor(DISK_THREADS) as pool:
        folders = [folder / name for name in classes]
        tables = pool.map(lambda one: PathTable(one.files(suffixes, below=below), str(one)), folders)
        found = dict(zip(classes, tables, strict=True))
    return {legible(name): files for name, files in found.items() if files or not _holds_packs(folder / name)}


def flat(
    folder: Folder, classes: dict[str, PathTable], suffixes: tuple[str, ...], kind: str
) -> tuple[PathTable, Tensor]:
    """All files, class by class, and their labels (N,).

    A :class:`DataError` says that ``folder`` holds fewer than two classes, or that one has no file; ``kind``: tile or
    photo. A folder that holds such files but is no class, because its name begins with a dot, is logged.
    """
    for name in folder.folders(hidden=True):
        if _holds(folder / name, suffixes):
            log.warning("%s is left out, because its name begins with a dot; rename it if it is a class", folder / name)
    require_classes(folder, classes, suffixes, kind)
    counts = torch.tensor([len(files) for files in classes.values()])
    return PathTable.joined(list(classes.values())), torch.arange(len(classes)).repeat_interleave(counts)


def _holds_packs(folder: Folder) -> bool:
    return any((folder / name).holds(MANIFEST) for name in folder.folders())


def _holds(folder: Folder, suffixes: tuple[str, ...]) -> bool:
    """Whether files with one of these endings lie below a folder that is no class, or what only looks like them."""
    try:
        return bool(folder.files(suffixes, below=True))
    except DataError:
        return True
