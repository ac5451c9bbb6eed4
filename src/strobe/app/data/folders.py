"""Class folders and the files below them. A million files are found without asking the disk what each of them is."""

import logging
import os
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor

from strobe.app.loaders.sources import PathTable
from strobe.app.loaders.threads import DISK_THREADS
from strobe.app.storage.folder import RemoteFolder
from strobe.errors import DataError

log = logging.getLogger(__name__)

Folder = Path | RemoteFolder


def class_folders(folder: Folder, *, hidden: bool = False) -> list[str]:
    """The names of the folders in ``folder``, sorted; a label is an index into them. Or only of those ``hidden``."""
    if isinstance(folder, RemoteFolder):
        return folder.folders(hidden=hidden)
    return sorted(entry.name for entry in _entries(folder, hidden=hidden) if _is_folder(entry))


def files_in(folder: Folder, suffixes: tuple[str, ...]) -> list[str]:
    """The names of files with one of these endings directly in a folder, sorted; raises as :func:`files_below`."""
    if isinstance(folder, RemoteFolder):
        return folder.files(suffixes, below=False)
    return sorted(_listed(folder, suffixes)[0])


def files_of_classes(folder: Folder, suffixes: tuple[str, ...]) -> dict[str, PathTable]:
    """Each class in ``folder`` with its files at any depth, both sorted by name.

    ``suffixes`` are in lower case; the case of a file's name does not matter.
    """
    classes = class_folders(folder)
    if isinstance(folder, RemoteFolder):
        there = {name: folder / name for name in classes}
        return {name: PathTable(here.files(suffixes, below=True), str(here)) for name, here in there.items()}
    with ThreadPoolExecutor(DISK_THREADS) as pool:
        below = [str(folder / name) for name in classes]
        found = pool.map(lambda here: PathTable(files_below(here, suffixes), here), below)
        return dict(zip(classes, found, strict=True))


def flat(folder: Folder, found: dict[str, PathTable], suffixes: tuple[str, ...], kind: str) -> tuple[PathTable, Tensor]:
    """All files, class by class, and their labels (N,).

    A :class:`DataError` says that ``folder`` holds fewer than two classes, or that one has no file; ``kind``: tile or
    photo. A folder that holds such files but is no class, because its name begins with a dot, is logged.
    """
    for name in class_folders(folder, hidden=True):
        if _holds(folder / name, suffixes):
            log.warning("%s is left out, because its name begins with a dot; rename it if it is a class", folder / name)
    if len(found) < 2:
        what = f"one class, {next(iter(found))}" if found else "no class folders"
        raise DataError(f"{folder} holds {what}; put the {kind}s of at least two classes into a folder for each")
    if empty := next((name for name, files in found.items() if not files), None):
        raise DataError(f"{folder / empty} holds no {', '.join(suffixes)} file; add {kind}s or remove the folder")
    counts = torch.tensor([len(files) for files in found.values()])
    return PathTable.joined(list(found.values())), torch.arange(len(found)).repeat_interleave(counts)


def _holds(folder: Folder, suffixes: tuple[str, ...]) -> bool:
    """Whether files with one of these endings lie below a folder that is no class, whatever else is there."""
    if isinstance(folder, RemoteFolder):
        return bool(folder.files(suffixes, below=True))
    with suppress(DataError):
        return bool(files_below(str(folder), suffixes))
    return True


def files_below(folder: str, suffixes: tuple[str, ...]) -> list[str]:
    """Files with one of these endings, as they lie below the folder, sorted.

    Links are followed, but no folder is entered twice, so circles end. If several paths lead to a folder, the one
    without links counts. A :class:`DataError` names a pipe, a socket, or a link to nothing that is called like a file:
    to read it could take forever.
    """
    found: list[str] = []
    entered: set[str] = set()
    waiting = deque([(folder, os.path.realpath(folder))])  # links at the end
    while waiting:
        here, real = waiting.popleft()
        if real in entered:
            continue
        entered.add(real)
        files, folders = _listed(here, suffixes)
        found += [f"{here[len(folder) + 1 :]}/{name}" for name in files] if here != folder else files
        for entry in sorted(folders, key=lambda entry: entry.name):
            if entry.is_symlink():
                waiting.append((entry.path, os.path.realpath(entry.path)))
            else:
                waiting.appendleft((entry.path, f"{real}/{entry.name}"))
    return sorted(found)


def _listed(folder: str | Path, suffixes: tuple[str, ...]) -> tuple[list[str], list[os.DirEntry[str]]]:
    """The names of files with one of these endings, and the folders. Only of a link the disk is asked what it is."""
    files, folders = [], []
    for entry in _entries(folder):
        named = entry.name.endswith(suffixes) or entry.name.lower().endswith(suffixes)
        if entry.is_file(follow_symlinks=False) or (entry.is_symlink() and Path(entry.path).is_file()):
            files += [entry.name] if named else []
        elif _is_folder(entry):
            folders.append(entry)
        elif named:
            raise DataError(f"{entry.path} is a pipe, a socket or a link to nothing, and no file; remove it")
    return files, folders


def _entries(folder: str | Path, *, hidden: bool = False) -> list[os.DirEntry[str]]:
    """What is in a folder, without files that are ``hidden``, such as macOS's ``._<name>.tif``, or only these."""
    try:
        return [entry for entry in os.scandir(folder) if (entry.name[0] == ".") == hidden]
    except PermissionError:
        log.warning("%s cannot be read and is skipped", folder)
        return []


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether it is a folder, or a link to one; not a link to itself."""
    return Path(entry.path).is_dir() if entry.is_symlink() else entry.is_dir()
