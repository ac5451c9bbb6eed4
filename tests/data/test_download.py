"""Download and unpacking, against a real server on 127.0.0.1 that can misbehave."""

import contextlib
import fcntl
import hashlib
import io
import multiprocessing
import random
import resource
import shutil
import signal
import socket
import stat
import struct
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from strobe.data import download
from strobe.data.download import extract_zip, fetch
from strobe.data.locking import locked
from strobe.errors import DataError


def _zip(members: Mapping[Any, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            info = zipfile.ZipInfo(name) if isinstance(name, str) else name  # dated 1980 in each process
            archive.writestr(info, content, method)
    return buffer.getvalue()


FILES = {f"{name}/{name}_{i}.tif": bytes([i]) * 99 for name in ("Forest", "River") for i in range(3)}
FILES["noise.bin"] = random.Random(0).randbytes(200_000)
PAYLOAD = _zip({f"EuroSAT_MS/{name}": content for name, content in FILES.items()})
MD5 = hashlib.md5(PAYLOAD).hexdigest()
ONE_MEMBER = _zip({"a": b"x" * 2000})


class Server(ThreadingHTTPServer):
    """Serves PAYLOAD; the attributes say how."""

    daemon_threads = False  # so that closing waits for the handlers

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/EuroSAT_MS.zip"
        self.payload = PAYLOAD
        self.status = 200
        self.ranges = True
        self.shift = 0  # added to the start of a range that was asked for
        self.chunked = False
        self.stop_after: int | None = None
        self.then: Callable[[socket.socket], object] = lambda connection: None
        self.asked: list[str | None] = []
        self.sent = 0
        self.released = threading.Event()

    def hang(self, connection: socket.socket) -> None:
        self.released.wait(10)


class Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        server, asked = self.server, self.headers["Range"]
        server.asked.append(asked)
        total = len(server.payload)
        start = 0
        if server.status != 200:
            return self.send_error(server.status)
        if asked and server.ranges:
            start = int(asked.removeprefix("bytes=").removesuffix("-")) + server.shift
            if start >= total:
                return self.send_error(416)
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{total - 1}/{total}")
        else:
            self.send_response(200)
        body = server.payload[start:][: server.stop_after]
        if server.chunked:
            self.send_header("Transfer-Encoding", "chunked")
            end = b"" if server.stop_after else b"0\r\n\r\n"
            body = b"%x\r\n%b\r\n" % (len(body), body) + end
        else:
            self.send_header("Content-Length", str(total - start))
        self.end_headers()
        server.sent += len(body)  # before the client can have them all
        with contextlib.suppress(ConnectionError):  # the client may leave at any time
            self.wfile.write(body)
            if server.stop_after is not None:
                server.then(self.connection)
        return None


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "*")
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.released.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "EuroSAT_MS.zip"


def _part(target: Path) -> Path:
    return target.with_name(f"{target.name}.part")


def _tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def _message(call: Callable[[], object]) -> str:
    with pytest.raises(DataError) as caught:
        call()
    text = str(caught.value)
    assert "\n" not in text
    return text


def _interrupt_once(ready: Callable[[], bool]) -> None:
    """Press Ctrl-C as soon as `ready`, from another thread."""
    deadline = time.monotonic() + 5
    while not ready() and time.monotonic() < deadline:
        time.sleep(0.001)
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


@contextlib.contextmanager
def _full_disk(limit: int) -> Iterator[None]:
    """Let no file of this process grow beyond `limit` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


# fetch


def test_fetch_makes_folders_and_is_quiet_without_a_terminal(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    target = tmp_path / "new" / "folder" / "EuroSAT_MS.zip"

    assert fetch(server.url, target, md5=MD5.upper()) == target

    assert _tree(tmp_path) == {"new/folder/EuroSAT_MS.zip": PAYLOAD}
    assert server.asked == [None]
    assert capfd.readouterr() == ("", "")


def test_a_terminal_shows_bars(
    server: Server, target: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")

    extract_zip(fetch(server.url, target, md5=MD5), target.with_suffix(""))

    shown = capsys.readouterr()
    assert shown.out == ""
    assert "Unpacking EuroSAT_MS.zip" in shown.err
    assert "/s" in shown.err


def test_a_file_that_is_there_is_not_fetched_again(server: Server, target: Path) -> None:
    target.write_bytes(PAYLOAD)

    fetch(server.url, target, md5=MD5)

    assert server.asked == []


def test_a_wrong_file_that_is_there_is_named_and_kept(server: Server, target: Path) -> None:
    target.write_bytes(b"mine")

    text = _message(lambda: fetch(server.url, target, md5=MD5))

    assert all(part in text for part in (str(target), MD5, hashlib.md5(b"mine").hexdigest(), "delete it"))
    assert _tree(target.parent) == {target.name: b"mine"}
    assert server.asked == []


def test_truncated_then_resumed(server: Server, target: Path) -> None:
    server.stop_after = 50_000

    text = _message(lambda: fetch(server.url, target, md5=MD5))

    assert f"50,000 of {len(PAYLOAD):,} bytes" in text
    assert "run the same command again to resume" in text
    assert _tree(target.parent) == {_part(target).name: PAYLOAD[:50_000]}

    server.stop_after = None
    fetch(server.url, target, md5=MD5)

    assert server.asked == [None, "bytes=50000-"]
    assert server.sent == len(PAYLOAD)
    assert _tree(target.parent) == {target.name: PAYLOAD}


def test_a_cut_connection_keeps_what_arrived(server: Server, target: Path) -> None:
    server.stop_after = 50_000
    reset = struct.pack("ii", 1, 0)  # closing sends RST
    server.then = lambda connection: connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)

    text = _message(lambda: fetch(server.url, target, md5=MD5))

    kept = _part(target).read_bytes()
    assert f"{len(kept):,} of {len(PAYLOAD):,} bytes" in text
    assert PAYLOAD.startswith(kept)
    assert _names(target.parent) == [_part(target).name]


def test_a_silent_server_times_out(server: Server, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "SILENCE_S", 0.2)
    server.stop_after, server.then = 50_000, server.hang

    assert "timed out" in _message(lambda: fetch(server.url, target, md5=MD5))
    assert _tree(target.parent) == {_part(target).name: PAYLOAD[:50_000]}


def test_a_length_that_is_not_announced(server: Server, target: Path) -> None:
    server.chunked, server.stop_after = True, 50_000
    assert "50,000 of an unknown number of bytes" in _message(lambda: fetch(server.url, target, md5=MD5))
    assert _tree(target.parent) == {_part(target).name: PAYLOAD[:50_000]}

    server.stop_after, server.ranges = None, False
    fetch(server.url, target, md5=MD5)
    assert _tree(target.parent) == {target.name: PAYLOAD}


def test_ctrl_c_keeps_the_part(server: Server, target: Path) -> None:
    def press(connection: socket.socket) -> None:
        _interrupt_once(lambda: _part(target).exists() and _part(target).stat().st_size > 0)
        server.hang(connection)

    server.stop_after, server.then = 50_000, press
    with pytest.raises(KeyboardInterrupt):
        fetch(server.url, target, md5=MD5)

    kept = _part(target).read_bytes()
    assert kept
    assert PAYLOAD.startswith(kept)
    assert _names(target.parent) == [_part(target).name]


def test_a_wrong_checksum_deletes_the_part(server: Server, target: Path) -> None:
    server.payload = PAYLOAD[::-1]

    text = _message(lambda: fetch(server.url, target, md5=MD5))

    assert all(part in text for part in (server.url, MD5, hashlib.md5(PAYLOAD[::-1]).hexdigest()))
    assert _tree(target.parent) == {}


@pytest.mark.parametrize(
    ("part", "changes", "asked"),
    [
        pytest.param(b"x" * 1000, {"ranges": False}, ["bytes=1000-"], id="server-ignores-ranges"),
        pytest.param(PAYLOAD[:1000], {"shift": 1}, ["bytes=1000-", None], id="another-range-comes"),
        pytest.param(PAYLOAD, {}, [f"bytes={len(PAYLOAD)}-"], id="complete"),
        pytest.param(PAYLOAD + b"x", {}, [f"bytes={len(PAYLOAD) + 1}-", None], id="too-long"),
    ],
)
def test_a_part_that_cannot_be_continued(
    server: Server, target: Path, part: bytes, changes: dict[str, object], asked: list[str | None]
) -> None:
    _part(target).write_bytes(part)
    vars(server).update(changes)

    fetch(server.url, target, md5=MD5)

    assert server.asked == asked
    assert _tree(target.parent) == {target.name: PAYLOAD}


def test_a_bogus_part_that_is_short_fails_the_checksum(server: Server, target: Path) -> None:
    _part(target).write_bytes(b"x" * 1000)

    assert "run the same command again" in _message(lambda: fetch(server.url, target, md5=MD5))
    assert _tree(target.parent) == {}

    fetch(server.url, target, md5=MD5)
    assert _tree(target.parent) == {target.name: PAYLOAD}


@pytest.mark.parametrize("status", [404, 416, 500])
def test_an_http_error_is_one_line(server: Server, target: Path, status: int) -> None:
    server.status = status

    text = _message(lambda: fetch(server.url, target, md5=MD5))

    assert all(part in text for part in (server.url, str(status), f"by hand to {target}"))
    assert _tree(target.parent) == {}


def test_no_server(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    _part(target).write_bytes(b"kept")
    with socket.socket() as bound:  # bound and not listening: refuses
        bound.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{bound.getsockname()[1]}/"
        text = _message(lambda: fetch(url, target, md5=MD5))

    assert url in text
    assert "Connection refused" in text
    assert _tree(target.parent) == {_part(target).name: b"kept"}


@pytest.mark.parametrize(
    "url", ["nonsense", "file:///etc/hostname", "http://", "http://[::1", "http://a b/", "http://a:b/"]
)
def test_an_unusable_address(target: Path, url: str) -> None:
    assert f"Cannot download {url}: " in _message(lambda: fetch(url, target, md5=MD5))
    assert _tree(target.parent) == {}


def test_a_folder_that_cannot_be_made(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    text = _message(lambda: fetch(server.url, tmp_path / "file" / "x.zip", md5=MD5))

    assert str(tmp_path / "file") in text
    assert _names(tmp_path) == ["file"]


def test_a_disk_that_fills_keeps_the_part(server: Server, target: Path) -> None:
    with _full_disk(65_536):
        text = _message(lambda: fetch(server.url, target, md5=MD5))

    assert f"{target}: File too large" in text
    assert _tree(target.parent) == {_part(target).name: PAYLOAD[:65_536]}

    fetch(server.url, target, md5=MD5)
    assert server.asked[1] == "bytes=65536-"


def test_a_disk_too_small_for_the_download(
    server: Server, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))

    text = _message(lambda: fetch(server.url, target, md5=MD5))

    assert "1.0 kB" in text
    assert f"{len(PAYLOAD) / 1000:.1f} kB" in text
    assert _tree(target.parent) == {}


# extract_zip


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "EuroSAT_MS.zip"
    path.write_bytes(PAYLOAD)
    return path


def _refused(archive: Path) -> str:
    """Extract, expect a refusal that leaves nothing but the archive, and return its message."""
    text = _message(lambda: extract_zip(archive, archive.parent / "EuroSAT_MS"))
    assert _names(archive.parent) == [archive.name]
    return text


def _changed(content: bytes, offset: int, value: int) -> bytes:
    return content[:offset] + bytes([value]) + content[offset + 1 :]


def _link() -> zipfile.ZipInfo:
    link = zipfile.ZipInfo("link")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    return link


def test_the_folder_of_the_same_name_becomes_the_destination(archive: Path, tmp_path: Path) -> None:
    leftover = tmp_path / ".EuroSAT_MS.partial"
    leftover.mkdir()
    (leftover / "stale.tif").write_bytes(b"stale")

    extract_zip(archive, tmp_path / "EuroSAT_MS")

    assert _names(tmp_path) == ["EuroSAT_MS", "EuroSAT_MS.zip"]
    assert _tree(tmp_path / "EuroSAT_MS") == FILES


def test_other_content_goes_in_as_it_is(archive: Path, tmp_path: Path) -> None:
    extract_zip(archive, tmp_path / "deep" / "other")

    assert _names(tmp_path / "deep") == ["other"]
    assert _names(tmp_path / "deep" / "other") == ["EuroSAT_MS"]


def test_an_empty_archive_makes_an_empty_folder(archive: Path, tmp_path: Path) -> None:
    archive.write_bytes(_zip({}))

    extract_zip(archive, tmp_path / "EuroSAT_MS")

    assert _names(tmp_path / "EuroSAT_MS") == []


def test_a_destination_that_is_there_is_left_alone(archive: Path, tmp_path: Path) -> None:
    (tmp_path / "EuroSAT_MS").mkdir()

    text = _message(lambda: extract_zip(archive, tmp_path / "EuroSAT_MS"))

    assert f"{tmp_path / 'EuroSAT_MS'} exists already" in text
    assert _tree(tmp_path) == {archive.name: PAYLOAD}


@pytest.mark.parametrize(
    "name", ["../out", "a/../../out", "/etc/out", "..\\out", "a\\b", "C:out", "//host/share/out", _link()]
)
def test_a_member_that_leads_out(archive: Path, name: str | zipfile.ZipInfo) -> None:
    archive.write_bytes(_zip({"good": b"good", name: b"/etc"}))

    assert f"unsafe member {getattr(name, 'filename', name)!r}" in _refused(archive)


DIRECTORY = ONE_MEMBER.index(b"PK\x01\x02")


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"not a zip", id="not-a-zip"),
        pytest.param(PAYLOAD[:-100], id="no-end"),
        pytest.param(PAYLOAD[1000:], id="no-start"),
        pytest.param(PAYLOAD[:5000] + PAYLOAD[-5000:], id="no-middle"),
        pytest.param(_changed(PAYLOAD, 150_000, 0), id="wrong-crc-in-the-last-member"),
        pytest.param(_changed(ONE_MEMBER, DIRECTORY + 8, 1), id="encrypted"),
        pytest.param(_changed(ONE_MEMBER, DIRECTORY + 10, 77), id="unknown-compression"),
        pytest.param(_changed(ONE_MEMBER, DIRECTORY + 24, 5), id="states-a-smaller-size"),
    ],
)
def test_a_damaged_archive(archive: Path, content: bytes) -> None:
    archive.write_bytes(content)

    assert f"{archive} is damaged or not a usable zip" in _refused(archive)


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_damaged_compressed_member(archive: Path, method: int) -> None:
    content = _zip({"a": PAYLOAD}, method)
    archive.write_bytes(content[:32] + b"\xff" * 2000 + content[2032:])

    assert f"{archive} is damaged" in _refused(archive)


def test_no_archive(archive: Path) -> None:
    archive.unlink()

    assert f"{archive}: No such file" in _message(lambda: extract_zip(archive, archive.parent / "EuroSAT_MS"))
    assert _names(archive.parent) == []


def test_a_disk_too_small_to_unpack(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
    archive.write_bytes(ONE_MEMBER)

    text = _refused(archive)

    assert "2.0 kB" in text
    assert "1.0 kB" in text


def test_a_disk_that_fills_while_unpacking(archive: Path) -> None:
    with _full_disk(65_536):
        assert "File too large" in _refused(archive)


# Python may be interrupted between opening a file and entering its `with`.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_ctrl_c_while_unpacking_leaves_nothing(archive: Path, tmp_path: Path) -> None:
    archive.write_bytes(_zip({str(i): b"" for i in range(5000)}))
    begun = tmp_path / ".EuroSAT_MS.partial" / "0"
    watcher = threading.Thread(target=_interrupt_once, args=(begun.exists,))

    with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - the signal may come as soon as the thread runs
        watcher.start()
        extract_zip(archive, tmp_path / "EuroSAT_MS")
    watcher.join()

    assert _names(tmp_path) == [archive.name]


# locked


def _prepare(url: str, folder: Path, barrier: "multiprocessing.synchronize.Barrier") -> None:
    barrier.wait(30)
    with locked(folder / "locks" / ".lock"):
        archive = fetch(url, folder / "EuroSAT_MS.zip", md5=MD5)
        if not (folder / "EuroSAT_MS").exists():
            time.sleep(0.1)  # time for the other to be in the way
            extract_zip(archive, folder / "EuroSAT_MS")


def test_two_processes_do_the_work_once(server: Server, tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(2)
    processes = [context.Process(target=_prepare, args=(server.url, tmp_path, barrier)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(30)
        assert process.exitcode == 0
        process.close()

    assert server.asked == [None]
    assert _names(tmp_path) == ["EuroSAT_MS", "EuroSAT_MS.zip", "locks"]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_lock_ends_although_a_forked_child_lives(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    release = context.Event()
    with locked(tmp_path / "lock"):
        child = context.Process(target=release.wait, args=(10,))
        child.start()
    try:
        with (tmp_path / "lock").open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        release.set()
        child.join()
        child.close()


def test_a_lock_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    def lock() -> None:
        with locked(tmp_path / "file" / "lock"):
            raise AssertionError("not reached")

    assert f"Cannot lock {tmp_path / 'file' / 'lock'}: " in _message(lock)


def test_an_error_under_the_lock_passes_unchanged(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), locked(tmp_path / "lock"):
        (tmp_path / "missing").stat()
    with locked(tmp_path / "lock"):
        pass
