"""Class folders, and what lies below them. A million files are found without asking the disk for each one's kind."""

import logging
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

log = logging.getLogger(__name__)

THREADS = 16  # folders read at a time: a network's disk answers one slowly, and many together


def visible(folder: str | Path) -> list[os.DirEntry[str]]:
    """What is in a folder, less what is hidden: macOS leaves ``._<name>.tif`` behind."""
    try:
        return [entry for entry in os.scandir(folder) if entry.name[0] != "."]
    except PermissionError:
        log.warning("%s cannot be read and is passed over", folder)
        return []


def class_folders(folder: Path) -> list[str]:
    """The names of the folders in ``folder``, sorted; a label is an index into them."""
    return sorted(entry.name for entry in visible(folder) if _is_folder(entry))


def files_of_classes(folder: Path, suffixes: tuple[str, ...]) -> dict[str, list[str]]:
    """Each class in ``folder`` with its files, as deep as they lie, both in the order of their names.

    Args:
        folder: of the class folders.
        suffixes: how the files' names end, in small letters; capitals in a name make no difference.
    """
    classes = class_folders(folder)
    with ThreadPoolExecutor(THREADS) as pool:
        found = pool.map(lambda name: files_below(str(folder / name), suffixes), classes)
        return dict(zip(classes, found, strict=True))


def files_below(folder: str, suffixes: tuple[str, ...]) -> list[str]:
    """Files whose names end so, sorted; links are followed, but not up into a folder that holds them."""
    found: list[str] = []
    waiting = [folder]
    while waiting:
        here = waiting.pop()
        for entry in visible(here):
            # What a link points to would be one more question to the disk for each file.
            if entry.name.lower().endswith(suffixes) and not entry.is_dir(follow_symlinks=False):
                found.append(entry.path)
            elif _is_folder(entry) and not (entry.is_symlink() and _holds(entry.path, here)):
                waiting.append(entry.path)
    return sorted(found)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Also through a link; a link to itself is none."""
    return Path(entry.path).is_dir() if entry.is_symlink() else entry.is_dir()


def _holds(link: str, folder: str) -> bool:
    return Path(folder).resolve().is_relative_to(Path(link).resolve())
