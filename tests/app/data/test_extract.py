"""Unpacking: everything or nothing, and nowhere else."""

import shutil
import stat
import threading
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from strobe.app.data.download import extract_zip
from support.files import names, tree
from support.interruptions import full_disk, interrupt_once
from support.refusals import refusal
from support.server import FILES, PAYLOAD, zipped

ONE_MEMBER = zipped({"a": b"x" * 2000})
DIRECTORY = ONE_MEMBER.index(b"PK\x01\x02")


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "EuroSAT_MS.zip"
    path.write_bytes(PAYLOAD)
    return path


def refused(archive: Path) -> str:
    """Extract, expect a refusal that leaves nothing but the archive, and return its message."""
    text = refusal(lambda: extract_zip(archive, archive.parent / "EuroSAT_MS"))
    assert names(archive.parent) == [archive.name]
    return text


def changed(content: bytes, offset: int, value: int) -> bytes:
    return content[:offset] + bytes([value]) + content[offset + 1 :]


def link() -> zipfile.ZipInfo:
    info = zipfile.ZipInfo("link")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return info


def test_the_folder_of_the_same_name_becomes_the_destination(archive: Path, tmp_path: Path) -> None:
    leftover = tmp_path / ".EuroSAT_MS.partial"
    leftover.mkdir()
    (leftover / "stale.tif").write_bytes(b"stale")

    extract_zip(archive, tmp_path / "EuroSAT_MS")

    assert names(tmp_path) == ["EuroSAT_MS", "EuroSAT_MS.zip"]
    assert tree(tmp_path / "EuroSAT_MS") == FILES


def test_other_content_goes_in_as_it_is(archive: Path, tmp_path: Path) -> None:
    extract_zip(archive, tmp_path / "deep" / "other")

    assert names(tmp_path / "deep") == ["other"]
    assert names(tmp_path / "deep" / "other") == ["EuroSAT_MS"]


def test_an_empty_archive_makes_an_empty_folder(archive: Path, tmp_path: Path) -> None:
    archive.write_bytes(zipped({}))

    extract_zip(archive, tmp_path / "EuroSAT_MS")

    assert names(tmp_path / "EuroSAT_MS") == []


def test_a_destination_that_is_there_is_left_alone(archive: Path, tmp_path: Path) -> None:
    (tmp_path / "EuroSAT_MS").mkdir()

    text = refusal(lambda: extract_zip(archive, tmp_path / "EuroSAT_MS"))

    assert f"{tmp_path / 'EuroSAT_MS'} exists already" in text
    assert tree(tmp_path) == {archive.name: PAYLOAD}


@pytest.mark.parametrize(
    "name", ["../out", "a/../../out", "/etc/out", "..\\out", "a\\b", "C:out", "//host/share/out", link()]
)
def test_a_member_that_leads_out(archive: Path, name: str | zipfile.ZipInfo) -> None:
    archive.write_bytes(zipped({"good": b"good", name: b"/etc"}))

    assert f"unsafe member {getattr(name, 'filename', name)!r}" in refused(archive)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"not a zip", id="not-a-zip"),
        pytest.param(PAYLOAD[:-100], id="no-end"),
        pytest.param(PAYLOAD[1000:], id="no-start"),
        pytest.param(PAYLOAD[:5000] + PAYLOAD[-5000:], id="no-middle"),
        pytest.param(changed(PAYLOAD, 150_000, 0), id="wrong-crc-in-the-last-member"),
        pytest.param(changed(ONE_MEMBER, DIRECTORY + 8, 1), id="encrypted"),
        pytest.param(changed(ONE_MEMBER, DIRECTORY + 10, 77), id="unknown-compression"),
        pytest.param(changed(ONE_MEMBER, DIRECTORY + 24, 5), id="states-a-smaller-size"),
    ],
)
def test_a_damaged_archive(archive: Path, content: bytes) -> None:
    archive.write_bytes(content)

    assert f"{archive} is damaged or not a usable zip" in refused(archive)


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_damaged_compressed_member(archive: Path, method: int) -> None:
    content = zipped({"a": PAYLOAD}, method)
    archive.write_bytes(content[:32] + b"\xff" * 2000 + content[2032:])

    assert f"{archive} is damaged" in refused(archive)


def test_no_archive(archive: Path) -> None:
    archive.unlink()

    assert f"{archive}: No such file" in refusal(lambda: extract_zip(archive, archive.parent / "EuroSAT_MS"))
    assert names(archive.parent) == []


def test_a_disk_too_small_to_unpack(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
    archive.write_bytes(ONE_MEMBER)

    text = refused(archive)

    assert "2.0 kB" in text
    assert "1.0 kB" in text


def test_a_disk_that_fills_while_unpacking(archive: Path) -> None:
    with full_disk(65_536):
        assert "File too large" in refused(archive)


# Python may be interrupted between opening a file and entering its `with`.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_ctrl_c_while_unpacking_leaves_nothing(archive: Path, tmp_path: Path) -> None:
    archive.write_bytes(zipped({str(i): b"" for i in range(5000)}))
    begun = tmp_path / ".EuroSAT_MS.partial" / "0"
    watcher = threading.Thread(target=interrupt_once, args=(begun.exists,))

    with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - the signal may come as soon as the thread runs
        watcher.start()
        extract_zip(archive, tmp_path / "EuroSAT_MS")
    watcher.join()

    assert names(tmp_path) == [archive.name]
