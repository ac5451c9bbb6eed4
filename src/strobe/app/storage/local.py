"""Folders of this machine. A million files are found without asking the disk what each of them is."""

import logging
import os
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from strobe.errors import DataError
from strobe.records.files import whole

if TYPE_CHECKING:
    from strobe.app.storage.folder import Objects

MOST = 10_000  # entries of a folder that are looked at, to tell whether it may hold a file

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LocalFolder:
    """A folder of this machine, which is searched as :class:`strobe.app.storage.folder.RemoteFolder`."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    def __truediv__(self, name: str) -> "LocalFolder":
        return LocalFolder(self.path / name)

    @property
    def name(self) -> str:
        """Its own name, even where ``path`` is a link to it, or relative."""
        return self.path.resolve().name

    @property
    def parent(self) -> "LocalFolder":
        """The folder above."""
        return LocalFolder(self.path.parent)

    def exists(self) -> bool:
        """Whether it is there, and is a folder."""
        return self.path.is_dir()

    def holds(self, name: str) -> bool:
        """Whether there is a file of this name directly in it."""
        return (self.path / name).is_file()

    def folders(self, *, hidden: bool = False) -> list[str]:
        """The names of the folders in it, sorted; none that begins with a dot, or only those ``hidden``."""
        return sorted(entry.name for entry in _entries(self.path, hidden=hidden) if _is_folder(entry))

    def may_hold(self, suffixes: tuple[str, ...]) -> bool:
        """Whether a file with one of these endings lies in it, or may lie in a folder of it.

        It stops at the first one; what cannot be read, or holds ``MOST`` other files, may hold one.
        """
        try:
            with os.scandir(self.path) as entries:
                for number, entry in enumerate(entries):
                    fits = entry.name.lower().endswith(suffixes) or _is_folder(entry)
                    if (fits and entry.name[0] != ".") or number == MOST:
                        return True
        except OSError:
            return True
        return False

    def files(self, suffixes: tuple[str, ...], *, below: bool) -> list[str]:
        """Files with one of these endings, in lower case, as they lie below it: directly in it, or anywhere ``below``.

        They are sorted. Links are followed, but no folder is entered twice, so circles end. If several paths lead to a
        folder, the one without links counts. A :class:`DataError` names a pipe, a socket, or a link to nothing that is
        called like a file: to read it could take forever.
        """
        if not below:
            return sorted(_listed(self.path, suffixes)[0])
        top = str(self.path)
        names: list[str] = []
        entered: set[str] = set()
        waiting = deque([(top, os.path.realpath(top))])  # links at the end
        while waiting:
            here, real = waiting.popleft()
            if real in entered:
                continue
            entered.add(real)
            files, folders = _listed(here, suffixes)
            names += [f"{here[len(top) + 1 :]}/{name}" for name in files] if here != top else files
            for entry in sorted(folders, key=lambda entry: entry.name):
                if entry.is_symlink():
                    waiting.append((entry.path, os.path.realpath(entry.path)))
                else:
                    waiting.appendleft((entry.path, f"{real}/{entry.name}"))
        return sorted(names)

    def objects(self, paths: Sequence[str]) -> "Objects | None":
        """None: these files are no objects in storage."""
        return None

    def sizes(self) -> dict[str, int]:
        """The bytes of each file directly in it that is whole."""
        return {path.name: path.stat().st_size for path in self.path.glob("*") if path.suffix != ".partial"}

    def read(self, name: str) -> bytes:
        """A file's content; raises a FileNotFoundError."""
        return (self.path / name).read_bytes()

    def write(self, name: str, content: bytes) -> None:
        """Write a file whole, or not at all; the folder is made if need be."""
        self.path.mkdir(parents=True, exist_ok=True)
        with whole(self.path / name) as partial:
            partial.write_bytes(content)


def _listed(folder: str | Path, suffixes: tuple[str, ...]) -> tuple[list[str], list[os.DirEntry[str]]]:
    """The names of files with one of these endings, and the folders. The disk is only asked what links lead to."""
    files, folders = [], []
    for entry in _entries(folder):
        matches = entry.name.endswith(suffixes) or entry.name.lower().endswith(suffixes)
        if entry.is_file(follow_symlinks=False) or (entry.is_symlink() and Path(entry.path).is_file()):
            files += [entry.name] if matches else []
        elif _is_folder(entry):
            folders.append(entry)
        elif matches:
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
