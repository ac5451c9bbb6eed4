"""Downloads and unpacks a large archive; a file or folder with the final name is always complete."""

import hashlib
import logging
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from rich import progress as bars
from rich.console import Console
from rich.filesize import decimal

from strobe.errors import DataError
from strobe.present.terminal import shown
from strobe.process.locks import locked

DIGESTS = {"md5": "MD5", "sha256": "SHA-256"}
SILENCE_S = 30.0  # a server that sends nothing for this long counts as gone
_BLOCK_BYTES = 1 << 20
_NETWORK_ERRORS = (OSError, HTTPException)

_log = logging.getLogger(__name__)


def provide(folder: Path, url: str, checksum: str, there: Callable[[], bool]) -> None:
    """Download an archive and unpack it to the new ``folder``, unless the set is ``there``; one process at a time.

    Raises as :func:`fetch` and :func:`extract`.
    """
    if there():
        return
    with locked(folder.with_name(f".{folder.name}.lock")):
        if not there():
            archive = fetch(url, folder.with_name(Path(urlsplit(url).path).name), checksum)
            extract(archive, folder)
            archive.unlink()


def fetch(url: str, destination: Path, checksum: str) -> Path:
    """Download ``url`` to ``destination``, unless it exists, and return ``destination``.

    Bytes go to ``<destination>.part``, which a later call resumes; the final name appears only once
    the checksum (``md5:...`` or ``sha256:...``) is right. Two processes must not do this at once: hold ``locked``.
    Raises a :class:`DataError` if anything goes wrong; the part stays unless its checksum is wrong.
    """
    kind, _, right = checksum.partition(":")
    part = destination.with_name(f"{destination.name}.part")
    with _disk_errors(destination):
        if destination.exists():
            if (digest := _digest(destination, kind)) == right:
                return destination
            raise DataError(
                f"{destination} has the {DIGESTS[kind]} checksum {digest} where {right} is expected; delete it to "
                "download it again."
            )
        destination.parent.mkdir(parents=True, exist_ok=True)
        digest = _digest(part, kind) if part.exists() else ""
        if digest != right:
            _log.info("Downloading %s to %s", url, destination)
            _download(url, part, destination)
            digest = _digest(part, kind)
        if digest != right:
            part.unlink()
            raise DataError(
                f"{url} gave a file with the {DIGESTS[kind]} checksum {digest} where {right} is expected; it was "
                "deleted, run the same command again to download it afresh."
            )
        part.replace(destination)
    return destination


def extract(archive: Path, destination: Path) -> None:
    """Unpack what :func:`fetch` returned, a zip file or else a tar file, to the new folder ``destination``.

    The folder appears only when complete. A single top-level folder that is named like ``destination`` becomes
    ``destination`` itself. Any failure, Ctrl-C included, leaves nothing behind; a :class:`DataError` says what went
    wrong, also when ``destination`` exists, or a member leads out of the folder.
    """
    partial = destination.with_name(f".{destination.name}.partial")
    with _disk_errors(destination):
        if destination.exists():
            raise DataError(f"{destination} exists already; delete it to unpack {archive} again.")
        shutil.rmtree(partial, ignore_errors=True)  # left by a crash
        destination.parent.mkdir(parents=True, exist_ok=True)
        try:
            (_unzip if archive.suffix == ".zip" else _untar)(archive, partial)
            inner = partial / destination.name
            only_inner = inner.is_dir() and len(list(partial.iterdir())) == 1
            (inner if only_inner else partial).rename(destination)
        except (zipfile.BadZipFile, tarfile.TarError) as error:
            raise DataError(
                f"{archive} is damaged or not a usable archive ({_one_line(error)}); delete it and download it again."
            ) from error
        finally:
            shutil.rmtree(partial, ignore_errors=True)


def _download(url: str, part: Path, destination: Path) -> None:
    """Complete ``part``, from where it ends if the server can do that."""
    start = part.stat().st_size if part.exists() else 0
    with _request(url, start, destination) as response:
        if response.status != HTTPStatus.PARTIAL_CONTENT:  # the whole file, whatever was asked for
            part.unlink(missing_ok=True)
            start = 0
        total = None if response.length is None else start + response.length
        if total is not None:
            _require_space(part.parent, total - start)
        with part.open("ab") as sink, _progress() as progress:
            task = progress.add_task(destination.name, total=total, completed=start)
            for block in _blocks(response, url, start, total):
                sink.write(block)
                progress.advance(task, len(block))


def _request(url: str, start: int, destination: Path) -> HTTPResponse:
    """Ask for the bytes from ``start`` on, or for all if the server cannot continue there."""
    if not url.startswith(("http://", "https://")):
        raise DataError(f"Cannot download {url}: not an http or https address; correct it.")
    headers = {"User-Agent": "strobe"} | ({"Range": f"bytes={start}-"} if start else {})
    try:
        response: HTTPResponse = urlopen(Request(url, headers=headers), timeout=SILENCE_S)
    except (*_NETWORK_ERRORS, ValueError) as error:
        reason = getattr(error, "reason", error)
        if isinstance(error, HTTPError):
            error.close()
            if start and error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                return _request(url, 0, destination)
            reason = error
        raise DataError(
            f"Cannot download {url}: {_one_line(reason)}; check the address and the network, or download "
            f"it by hand to {destination}."
        ) from error
    if start and response.status == HTTPStatus.PARTIAL_CONTENT:
        total = start + (response.length or 0)
        if response.headers["Content-Range"] != f"bytes {start}-{total - 1}/{total}":
            response.close()
            return _request(url, 0, destination)
    return response


def _blocks(response: HTTPResponse, url: str, size: int, total: int | None) -> Iterator[bytes]:
    """Yield the body as it arrives; ``size`` of its ``total`` bytes are there already."""
    lost: Exception | None = None
    try:
        while block := response.read1(_BLOCK_BYTES):
            size += len(block)
            yield block
    except _NETWORK_ERRORS as error:
        lost = error
    if lost or (total is not None and size < total):
        of_total = "an unknown number of" if total is None else f"{total:,}"
        reason = _one_line(lost) if lost else "the server closed it"
        raise DataError(
            f"The connection to {url} was lost after {size:,} of {of_total} bytes ({reason}); run the same "
            "command again to resume."
        ) from lost


def _unzip(archive: Path, folder: Path) -> None:
    with zipfile.ZipFile(archive) as opened:
        members = opened.infolist()
        if unsafe := [name for name in opened.namelist() if name.startswith("/") or ".." in Path(name).parts]:
            raise zipfile.BadZipFile(f"the unsafe member {unsafe[0]!r} leads out of the folder")
        # Stated sizes bound what is written: zipfile stops there, and the checksum then fails.
        _require_space(folder.parent, sum(member.file_size for member in members))
        folder.mkdir()
        for member in shown(members, f"Unpacking {archive.name}"):
            opened.extract(member, folder)


def _untar(archive: Path, folder: Path) -> None:
    with tarfile.open(archive) as opened:
        _require_space(folder.parent, sum(member.size for member in opened))
        opened.extractall(folder, filter="data")  # which refuses members that lead out


def _require_space(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise DataError(
            f"{folder} needs {decimal(needed)} of free disk space and has {decimal(free)}; free some or "
            "choose another folder."
        )


def _progress() -> bars.Progress:
    """The bar of a download in bytes, on standard error; silent where that is not a terminal."""
    columns = (bars.BarColumn(), bars.DownloadColumn(), bars.TransferSpeedColumn(), bars.TimeRemainingColumn())
    console = Console(stderr=True)
    text = bars.TextColumn("{task.description}", markup=False)
    return bars.Progress(text, *columns, console=console, disable=not console.is_terminal)


def _digest(path: Path, kind: str) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(kind, usedforsecurity=False)).hexdigest()


def _one_line(reason: object) -> str:
    return " ".join(str(reason).split()) or type(reason).__name__


@contextmanager
def _disk_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(
            f"Cannot read or write {error.filename or path}: {error.strerror or error}; check the path, its "
            "permissions and the free disk space."
        ) from error
