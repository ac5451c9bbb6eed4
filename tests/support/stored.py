"""What lies in the tests' storage, and the loaders that read from it."""

import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

from strobe.app.loaders.base import LoadedData
from strobe.app.loaders.sources import PathTable
from strobe.app.storage.folder import RemoteFolder
from strobe.app.storage.objects import Storage
from strobe.app.storage.serving import BUCKET, PIECE, SlowLine, upload
from support.photo_files import CHOICES, made

LOADERS = [(form, name) for name, choice in CHOICES.items() if choice.get("objects") for form in choice.reads]


def stored(endpoint: str, folder: Path, prefix: str) -> str:
    """Put all files below a folder into the storage; their root there."""
    files = {f"{prefix}/{path.relative_to(folder)}": path for path in folder.rglob("*") if path.is_file()}
    upload(endpoint, files)
    return f"s3://{BUCKET}/{prefix}"


def below(root: str, endpoint: str, **options: Any) -> RemoteFolder:
    """A root, listed."""
    storage = Storage(root, endpoint=endpoint, **options)
    return RemoteFolder(storage, storage.listed())


def from_storage(source: Any, folder: RemoteFolder) -> Any:
    """A source of files, as it is when these lie in storage directly below ``folder``."""
    addresses = [f"{folder}/{Path(path).name}" for path in source.paths]
    return replace(source, paths=PathTable(addresses), objects=folder.objects(addresses))


def remote(form: str, name: str, source: Any, folder: RemoteFolder, **options: Any) -> LoadedData:
    """The data set of a loader that reads ``source`` from storage."""
    return made(name, from_storage(source, folder), Path(next(iter(source.paths))).parents[2] / "packs", **options)


class Faulty(SlowLine):
    """A line that answers the next ``refuse`` requests with 503, and breaks off answers after ``cut`` bytes.

    It does so for the next ``cuts`` connections.
    """

    refuse = 0
    cut: int | None = None
    cuts = 10**9

    def serve(self, client: socket.socket) -> None:
        if self.refuse:
            self.refuse -= 1
            client.recv(PIECE)
            client.sendall(b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        else:
            super().serve(client)

    def answer(self, server: socket.socket, client: socket.socket) -> None:
        if self.cut is None or not self.cuts:
            super().answer(server, client)
        else:
            self.cuts -= 1
            client.sendall(server.recv(self.cut))
