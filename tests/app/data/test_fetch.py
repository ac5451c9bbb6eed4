"""Download, against a real server that misbehaves."""

import hashlib
import shutil
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from strobe.app.data import download
from strobe.app.data.download import extract_zip, fetch
from support.files import names, tree
from support.interruptions import full_disk, interrupt_once
from support.refusals import refusal
from support.server import MD5, PAYLOAD, Server, nobody, serving


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "EuroSAT_MS.zip"


def part_of(target: Path) -> Path:
    return target.with_name(f"{target.name}.part")


def test_fetch_makes_folders_and_is_quiet_without_a_terminal(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    target = tmp_path / "new" / "folder" / "EuroSAT_MS.zip"

    assert fetch(server.url, target, md5=MD5.upper()) == target

    assert tree(tmp_path) == {"new/folder/EuroSAT_MS.zip": PAYLOAD}
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

    text = refusal(lambda: fetch(server.url, target, md5=MD5))

    assert all(part in text for part in (str(target), MD5, hashlib.md5(b"mine").hexdigest(), "delete it"))
    assert tree(target.parent) == {target.name: b"mine"}
    assert server.asked == []


def test_truncated_then_resumed(server: Server, target: Path) -> None:
    server.stop_after = 50_000

    text = refusal(lambda: fetch(server.url, target, md5=MD5))

    assert f"50,000 of {len(PAYLOAD):,} bytes" in text
    assert "run the same command again to resume" in text
    assert tree(target.parent) == {part_of(target).name: PAYLOAD[:50_000]}

    server.stop_after = None
    fetch(server.url, target, md5=MD5)

    assert server.asked == [None, "bytes=50000-"]
    assert server.sent == len(PAYLOAD)
    assert tree(target.parent) == {target.name: PAYLOAD}


def test_a_cut_connection_keeps_what_arrived(server: Server, target: Path) -> None:
    server.stop_after = 50_000
    reset = struct.pack("ii", 1, 0)  # closing sends RST
    server.then = lambda connection: connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)

    text = refusal(lambda: fetch(server.url, target, md5=MD5))

    kept = part_of(target).read_bytes()
    assert f"{len(kept):,} of {len(PAYLOAD):,} bytes" in text
    assert PAYLOAD.startswith(kept)
    assert names(target.parent) == [part_of(target).name]


def test_a_silent_server_times_out(server: Server, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "SILENCE_S", 0.2)
    server.stop_after, server.then = 50_000, server.hang

    assert "timed out" in refusal(lambda: fetch(server.url, target, md5=MD5))
    assert tree(target.parent) == {part_of(target).name: PAYLOAD[:50_000]}


def test_a_length_that_is_not_announced(server: Server, target: Path) -> None:
    server.chunked, server.stop_after = True, 50_000
    assert "50,000 of an unknown number of bytes" in refusal(lambda: fetch(server.url, target, md5=MD5))
    assert tree(target.parent) == {part_of(target).name: PAYLOAD[:50_000]}

    server.stop_after, server.ranges = None, False
    fetch(server.url, target, md5=MD5)
    assert tree(target.parent) == {target.name: PAYLOAD}


def test_ctrl_c_keeps_the_part(server: Server, target: Path) -> None:
    def press(connection: socket.socket) -> None:
        interrupt_once(lambda: part_of(target).exists() and part_of(target).stat().st_size > 0)
        server.hang(connection)

    server.stop_after, server.then = 50_000, press
    with pytest.raises(KeyboardInterrupt):
        fetch(server.url, target, md5=MD5)

    kept = part_of(target).read_bytes()
    assert kept
    assert PAYLOAD.startswith(kept)
    assert names(target.parent) == [part_of(target).name]


def test_a_wrong_checksum_deletes_the_part(server: Server, target: Path) -> None:
    server.payload = PAYLOAD[::-1]

    text = refusal(lambda: fetch(server.url, target, md5=MD5))

    assert all(part in text for part in (server.url, MD5, hashlib.md5(PAYLOAD[::-1]).hexdigest()))
    assert tree(target.parent) == {}


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
    part_of(target).write_bytes(part)
    vars(server).update(changes)

    fetch(server.url, target, md5=MD5)

    assert server.asked == asked
    assert tree(target.parent) == {target.name: PAYLOAD}


def test_a_bogus_part_that_is_short_fails_the_checksum(server: Server, target: Path) -> None:
    part_of(target).write_bytes(b"x" * 1000)

    assert "run the same command again" in refusal(lambda: fetch(server.url, target, md5=MD5))
    assert tree(target.parent) == {}

    fetch(server.url, target, md5=MD5)
    assert tree(target.parent) == {target.name: PAYLOAD}


@pytest.mark.parametrize("status", [404, 416, 500])
def test_an_http_error_is_one_line(server: Server, target: Path, status: int) -> None:
    server.status = status

    text = refusal(lambda: fetch(server.url, target, md5=MD5))

    assert all(part in text for part in (server.url, str(status), f"by hand to {target}"))
    assert tree(target.parent) == {}


def test_no_server(target: Path) -> None:
    part_of(target).write_bytes(b"kept")
    with nobody() as url:
        text = refusal(lambda: fetch(url, target, md5=MD5))

    assert url in text
    assert "Connection refused" in text
    assert tree(target.parent) == {part_of(target).name: b"kept"}


@pytest.mark.parametrize(
    "url", ["nonsense", "file:///etc/hostname", "http://", "http://[::1", "http://a b/", "http://a:b/"]
)
def test_an_unusable_address(target: Path, url: str) -> None:
    assert f"Cannot download {url}: " in refusal(lambda: fetch(url, target, md5=MD5))
    assert tree(target.parent) == {}


def test_a_folder_that_cannot_be_made(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    text = refusal(lambda: fetch(server.url, tmp_path / "file" / "x.zip", md5=MD5))

    assert str(tmp_path / "file") in text
    assert names(tmp_path) == ["file"]


def test_a_disk_that_fills_keeps_the_part(server: Server, target: Path) -> None:
    with full_disk(65_536):
        text = refusal(lambda: fetch(server.url, target, md5=MD5))

    assert f"{target}: File too large" in text
    assert tree(target.parent) == {part_of(target).name: PAYLOAD[:65_536]}

    fetch(server.url, target, md5=MD5)
    assert server.asked[1] == "bytes=65536-"


def test_a_disk_too_small_for_the_download(server: Server, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))

    text = refusal(lambda: fetch(server.url, target, md5=MD5))

    assert "1.0 kB" in text
    assert f"{len(PAYLOAD) / 1000:.1f} kB" in text
    assert tree(target.parent) == {}
