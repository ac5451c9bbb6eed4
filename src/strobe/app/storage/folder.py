"""Folders in storage: what lies below a root, listed once. Folders of this machine are in ``local``."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from strobe.app.storage.objects import Contents, Listed, Storage


@dataclass(frozen=True)
class RemoteFolder:
    """A part of the objects below a root: those whose keys begin with ``path``, empty or ending in a slash."""

    storage: Storage
    listed: Listed
    path: str = ""

    def __str__(self) -> str:
        return self.storage.address(self.path).rstrip("/")

    def __truediv__(self, name: str) -> "RemoteFolder":
        return RemoteFolder(self.storage, self.listed, f"{self.path}{name}/")

    @property
    def parent(self) -> "RemoteFolder":
        """The folder above, up to the root."""
        above = self.path.rstrip("/").rpartition("/")[0]
        return RemoteFolder(self.storage, self.listed, f"{above}/" if above else "")

    @property
    def name(self) -> str:
        """The last part of its address."""
        return str(self).rpartition("/")[2]

    def exists(self) -> bool:
        """True: what holds no object is empty, but not missing."""
        return True

    def holds(self, name: str) -> bool:
        """Whether there is an object of this name directly in it."""
        return f"{self.path}{name}" in self.keys()

    def keys(self) -> Sequence[str]:
        """The keys of all objects below this folder, sorted."""
        all_keys = self.listed.keys
        return all_keys[bisect_left(all_keys, self.path) : bisect_left(all_keys, f"{self.path}\U0010ffff")]

    def folders(self, *, hidden: bool = False) -> list[str]:
        """The names of the folders in it, sorted; none that begins with a dot, or only those ``hidden``."""
        parts = {key[len(self.path) :].partition("/")[:2] for key in self.keys()}
        return sorted(name for name, slash in parts if slash and name.startswith(".") == hidden)

    def files(self, suffixes: tuple[str, ...], *, below: bool) -> list[str]:
        """Objects with one of these endings, as they lie below it: directly in it, or anywhere ``below``; sorted."""
        start = len(self.path)
        names = (key[start:] for key in self.keys() if key.lower().endswith(suffixes))
        return [name for name in names if "/." not in f"/{name}" and (below or "/" not in name)]

    def objects(self, addresses: Sequence[str]) -> "Objects":
        """These objects of the root, which were listed, in this order."""
        start, keys = len(self.storage.root) + 1, self.listed.keys
        rows = np.fromiter((bisect_left(keys, address[start:]) for address in addresses), np.int64, len(addresses))
        return Objects(self.storage, self.listed.sizes[rows], self.listed.versions[rows])


@dataclass(frozen=True)
class Objects:
    """The objects of a data set, by number."""

    storage: Storage
    sizes: NDArray[np.int64]  # (M,) bytes
    versions: NDArray[np.uint64]  # (M,)

    def fetch(self, addresses: Sequence[str], numbers: NDArray[np.int64], *, cached: bool = True) -> Contents:
        """The objects with these addresses and numbers."""
        start = len(self.storage.root) + 1
        keys = [address[start:] for address in addresses]
        return self.storage.fetch(keys, self.sizes[numbers].tolist(), self.versions[numbers].tolist(), cached=cached)
