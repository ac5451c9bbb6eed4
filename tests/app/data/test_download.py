"""Archives that are downloaded from a real server that misbehaves, and unpacked: everything or nothing."""

import hashlib
import io
import shutil
import socket
import struct
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from strobe.app.data import download
from strobe.app.data.download import extract, fetch
from support.files import names, tree
from support.interruptions import full_disk, interrupt_once
from support.refusals import refusal
from support.server import CHECKSUM, FILES, MD5, PAYLOAD, Server, nobody, serving, zipped

HALF = 50_000
ONE_MEMBER = zipped({"a": b"x" * 2000})
DIRECTORY = ONE_MEMBER.index(b"PK\x01\x02")


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "EuroSAT_MS.zip"


def part_of(target: Path) -> Path:
    return target.with_name(f"{target.name}.part")


def refused(server: Server, target: Path) -> str:
    """Why the archive cannot be fetched."""
    return refusal(lambda: fetch(server.url, target, CHECKSUM))


def test_fetch_makes_folders_and_is_quiet_without_a_terminal(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    target = tmp_path / "new" / "folder" / "EuroSAT_MS.zip"
    for _ in range(2):  # the second time it is there
        assert fetch(server.url, target, CHECKSUM) == target
        assert tree(tmp_path) == {"new/folder/EuroSAT_MS.zip": PAYLOAD}
    assert server.asked == [None]
    assert capfd.readouterr() == ("", "")


def test_a_terminal_shows_bars(
    server: Server, target: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    extract(fetch(server.url, target, CHECKSUM), target.with_suffix(""))
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "Unpacking EuroSAT_MS.zip" in shown.err
    assert "/s" in shown.err


def test_a_wrong_file_that_is_there_is_named_and_kept(server: Server, target: Path) -> None:
    target.write_bytes(b"mine")
    text = refused(server, target)
    assert all(part in text for part in (str(target), MD5, hashlib.md5(b"mine").hexdigest(), "delete it"))
    assert tree(target.parent) == {target.name: b"mine"}
    assert server.asked == []


def hang(server: Server, _: socket.socket) -> None:
    server.released.wait(10)


def reset(server: Server, connection: socket.socket) -> None:
    """Closing sends RST."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@pytest.mark.parametrize(
    ("fault", "then", "words"),
    [
        ({}, None, f"50,000 of {len(PAYLOAD):,} bytes (the server closed it); run the same command again to resume"),
        ({}, hang, "timed out"),
        ({}, reset, f" of {len(PAYLOAD):,} bytes"),
        ({"chunked": True, "ranges": False}, None, "50,000 of an unknown number of bytes"),
    ],
    ids=["truncated", "silent", "cut", "length unknown"],
)
def test_what_arrived_is_kept_and_gone_on_with(
    server: Server, target: Path, monkeypatch: pytest.MonkeyPatch, *, fault: dict[str, Any], then: Any, words: str
) -> None:
    vars(server).update(fault, stop_after=HALF)
    server.then = lambda connection: then and then(server, connection)
    with monkeypatch.context() as patch:
        if then is hang:  # a server that answers may be slow on a busy machine
            patch.setattr(download, "SILENCE_S", 0.5)
        assert words in refused(server, target)
    kept = part_of(target).read_bytes()
    assert names(target.parent) == [part_of(target).name]
    assert PAYLOAD.startswith(kept)
    if then is not reset:  # of which some may be lost
        assert len(kept) == HALF
    server.stop_after = None
    fetch(server.url, target, CHECKSUM)
    assert server.asked == [None, f"bytes={len(kept)}-" if kept else None]
    assert server.ranges is False or server.sent <= len(PAYLOAD) + HALF - len(kept)
    assert tree(target.parent) == {target.name: PAYLOAD}


def test_ctrl_c_keeps_the_part(server: Server, target: Path) -> None:
    def press(connection: socket.socket) -> None:
        interrupt_once(lambda: part_of(target).exists() and part_of(target).stat().st_size > 0)
        server.hang(connection)

    server.stop_after, server.then = HALF, press
    with pytest.raises(KeyboardInterrupt):
        fetch(server.url, target, CHECKSUM)
    kept = part_of(target).read_bytes()
    assert kept
    assert PAYLOAD.startswith(kept)
    assert names(target.parent) == [part_of(target).name]


def test_a_wrong_checksum_deletes_the_part(server: Server, target: Path) -> None:
    server.payload = PAYLOAD[::-1]
    text = refused(server, target)
    assert all(part in text for part in (server.url, MD5, hashlib.md5(PAYLOAD[::-1]).hexdigest()))
    assert tree(target.parent) == {}


@pytest.mark.parametrize(
    ("part", "changes", "asked"),
    [
        pytest.param(b"x" * 1000, {"ranges": False}, ["bytes=1000-"], id="server-ignores-ranges"),
        pytest.param(PAYLOAD[:1000], {"shift": 1}, ["bytes=1000-", None], id="another-range-comes"),
        pytest.param(PAYLOAD, {}, [], id="complete"),
        pytest.param(PAYLOAD + b"x", {}, [f"bytes={len(PAYLOAD) + 1}-", None], id="too-long"),
    ],
)
def test_a_part_that_cannot_be_continued(
    server: Server, target: Path, part: bytes, changes: dict[str, object], asked: list[str | None]
) -> None:
    part_of(target).write_bytes(part)
    vars(server).update(changes)
    fetch(server.url, target, CHECKSUM)
    assert server.asked == asked
    assert tree(target.parent) == {target.name: PAYLOAD}


def test_a_bogus_part_that_is_short_fails_the_checksum(server: Server, target: Path) -> None:
    part_of(target).write_bytes(b"x" * 1000)
    assert "run the same command again" in refused(server, target)
    assert tree(target.parent) == {}
    fetch(server.url, target, CHECKSUM)
    assert tree(target.parent) == {target.name: PAYLOAD}


@pytest.mark.parametrize("status", [404, 416, 500])
def test_an_http_error_is_one_line(server: Server, target: Path, status: int) -> None:
    server.status = status
    text = refused(server, target)
    assert all(part in text for part in (server.url, str(status), f"by hand to {target}"))
    assert tree(target.parent) == {}


@pytest.mark.parametrize(
    "url", ["nonsense", "file:///etc/hostname", "http://", "http://[::1", "http://a b/", "http://a:b/", ""]
)
def test_an_unusable_address(target: Path, url: str) -> None:
    part_of(target).write_bytes(b"kept")
    with nobody() as closed:
        text = refusal(lambda: fetch(url or closed, target, CHECKSUM))
    assert f"Cannot download {url or closed}: " in text
    assert url or "Connection refused" in text
    assert tree(target.parent) == {part_of(target).name: b"kept"}


def test_a_folder_that_cannot_be_made(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert str(tmp_path / "file") in refused(server, tmp_path / "file" / "x.zip")
    assert names(tmp_path) == ["file"]


def test_a_disk_that_fills_keeps_the_part(server: Server, target: Path) -> None:
    with full_disk(65_536):
        assert f"{target}: File too large" in refused(server, target)
    assert tree(target.parent) == {part_of(target).name: PAYLOAD[:65_536]}
    fetch(server.url, target, CHECKSUM)
    assert server.asked[1] == "bytes=65536-"


@pytest.fixture
def archive(target: Path) -> Path:
    target.write_bytes(PAYLOAD)
    return target


def not_unpacked(archive: Path) -> str:
    """Why the archive cannot be unpacked; nothing but the archive is left."""
    text = refusal(lambda: extract(archive, archive.parent / "EuroSAT_MS"))
    assert names(archive.parent) == [archive.name]
    return text


def changed(content: bytes, offset: int, value: int) -> bytes:
    return content[:offset] + bytes([value]) + content[offset + 1 :]


def tarred(members: dict[str, bytes], links: dict[str, str] | None = None) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        for name, target in (links or {}).items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, target
            tar.addfile(member)
    return buffer.getvalue()


TARRED = tarred({"EuroSAT_MS/noise.bin": FILES["noise.bin"]})


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no archive",
        tarred({"../out": b""}),
        tarred({}, {"a": "/etc"}),
    ],
    ids=["empty", "not a tar", "leads out", "a link that leads out"],
)
def test_a_damaged_tar(tmp_path: Path, content: bytes) -> None:
    archive = tmp_path / "EuroSAT_MS.tar.gz"
    archive.write_bytes(content)
    assert f"{archive} is damaged or not a usable archive" in not_unpacked(archive)
    archive.write_bytes(TARRED)
    extract(archive, tmp_path / "EuroSAT_MS")
    assert tree(tmp_path / "EuroSAT_MS") == {"noise.bin": FILES["noise.bin"]}


def test_the_folder_of_the_same_name_becomes_the_destination(archive: Path, tmp_path: Path) -> None:
    leftover = tmp_path / ".EuroSAT_MS.partial"
    leftover.mkdir()
    (leftover / "stale.tif").write_bytes(b"stale")
    extract(archive, tmp_path / "EuroSAT_MS")
    assert names(tmp_path) == ["EuroSAT_MS", "EuroSAT_MS.zip"]
    assert tree(tmp_path / "EuroSAT_MS") == FILES
    extract(archive, tmp_path / "deep" / "other")  # other content goes in as it is
    assert names(tmp_path / "deep") == ["other"]
    assert names(tmp_path / "deep" / "other") == ["EuroSAT_MS"]


def test_an_empty_archive_makes_an_empty_folder(archive: Path, tmp_path: Path) -> None:
    archive.write_bytes(zipped({}))
    extract(archive, tmp_path / "EuroSAT_MS")
    assert names(tmp_path / "EuroSAT_MS") == []


def test_a_destination_that_is_there_is_left_alone(archive: Path, tmp_path: Path) -> None:
    (tmp_path / "EuroSAT_MS").mkdir()
    assert f"{tmp_path / 'EuroSAT_MS'} exists already" in refusal(lambda: extract(archive, tmp_path / "EuroSAT_MS"))
    assert tree(tmp_path) == {archive.name: PAYLOAD}


@pytest.mark.parametrize("name", ["../out", "a/../../out", "/etc/out", "//host/share/out"])
def test_a_member_that_leads_out(archive: Path, name: str) -> None:
    archive.write_bytes(zipped({"good": b"good", name: b"/etc"}))
    assert f"unsafe member {name!r}" in not_unpacked(archive)


DAMAGED = {
    "empty": b"",
    "not a zip": b"not a zip",
    "no end": PAYLOAD[:-100],
    "wrong CRC in the last member": changed(PAYLOAD, 150_000, 0),
    "states a smaller size": changed(ONE_MEMBER, DIRECTORY + 24, 5),
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_archive(archive: Path, content: bytes) -> None:
    archive.write_bytes(content)
    assert f"{archive} is damaged or not a usable archive" in not_unpacked(archive)


def test_no_archive(target: Path) -> None:
    assert f"{target}: No such file" in refusal(lambda: extract(target, target.parent / "EuroSAT_MS"))
    assert names(target.parent) == []


def test_a_disk_that_is_too_small(server: Server, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
    assert f"needs {len(PAYLOAD) / 1000:.1f} kB of free disk space and has 1.0 kB" in refused(server, target)
    assert tree(target.parent) == {}
    for content in (ONE_MEMBER, tarred({"a": b"x" * 2000})):
        archive = target.with_suffix(".zip" if content == ONE_MEMBER else ".tar")
        archive.write_bytes(content)
        assert "needs 2.0 kB of free disk space and has 1.0 kB" in not_unpacked(archive)
        archive.unlink()


def test_a_disk_that_fills_while_unpacking(archive: Path) -> None:
    with full_disk(65_536):
        assert "File too large" in not_unpacked(archive)


# Python may be interrupted between opening a file and entering its `with`.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_ctrl_c_while_unpacking_leaves_nothing(archive: Path, tmp_path: Path) -> None:
    archive.write_bytes(zipped({str(i): b"" for i in range(5000)}))
    begun = tmp_path / ".EuroSAT_MS.partial" / "0"
    watcher = threading.Thread(target=interrupt_once, args=(begun.exists,))
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - the signal may come as soon as the thread runs
        watcher.start()
        extract(archive, tmp_path / "EuroSAT_MS")
    watcher.join()
    assert names(tmp_path) == [archive.name]
