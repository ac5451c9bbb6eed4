"""CIFAR-10 and EuroSAT from a server on the loopback: all of a set arrives and can be used, or nothing is left."""

import hashlib
import io
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from strobe.app.data import cifar10 as published_cifar10
from strobe.app.data import eurosat
from support import cifar10_files
from support.composing import composed_data
from support.files import names, plant, tree
from support.interruptions import full_disk, waiting
from support.refusals import refusal
from support.server import Server, serving, zipped


@dataclass
class Published:
    """A set to be downloaded to a folder that is not there yet."""

    server: Server
    data: Any
    folder: str
    files: dict[str, bytes]
    lengths: list[int]
    title: str

    @property
    def root(self) -> Path:
        return Path(self.data.root)

    @property
    def lock(self) -> str:
        return f".{self.folder}.lock"

    def require_complete(self) -> None:
        """Only its files are there, and they can be used."""
        assert tree(self.root) == {self.lock: b"", **self.files}
        self.data.setup()
        assert [len(self.data.datasets[split]) for split in ("train", "val", "test")] == self.lengths


@pytest.fixture
def cifar10(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Published]:
    root, folder = cifar10_files.generated(tmp_path / "published"), cifar10_files.FOLDER
    cifar10_files.publish(root, monkeypatch)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        tar.add(root / folder, folder)
    with serving(packed.getvalue()) as server:
        server.url = f"{server.base}/cifar-10-python.tar.gz"
        monkeypatch.setattr(published_cifar10, "URL", server.url)
        monkeypatch.setattr(published_cifar10, "CHECKSUM", f"sha256:{hashlib.sha256(server.payload).hexdigest()}")
        data = composed_data("data=cifar10", f"data.root={tmp_path / 'new' / 'root'}", "data.download=true")
        yield Published(server, data, folder, tree(root), [180, 20, 20], "CIFAR-10")


@pytest.fixture
def tiles_of_three(sample_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Published]:
    """EuroSAT of three classes of three tiles."""
    root = sample_root / "tiles" / "seed42-10"
    chosen = [path for kind in ("Forest", "River", "SeaLake") for path in sorted(root.glob(f"{kind}/*.tif"))[:3]]
    files = {f"EuroSAT_MS/{path.relative_to(root)}": path.read_bytes() for path in chosen}
    with serving(zipped(files)) as server:
        monkeypatch.setattr(eurosat, "URL", server.url)
        monkeypatch.setattr(eurosat, "CHECKSUM", f"md5:{hashlib.md5(server.payload).hexdigest()}")
        data = composed_data("data=eurosat", f"data.root={tmp_path / 'new' / 'root'}", "data.download=true")
        yield Published(server, data, "EuroSAT_MS", files, [3, 3, 3], "EuroSAT")


@pytest.fixture(params=["cifar10", "tiles_of_three"])
def published(request: pytest.FixtureRequest) -> Published:
    return request.getfixturevalue(request.param)


def test_the_archive_is_downloaded_once(published: Published) -> None:
    for _ in range(2):
        published.data.prepare_data()
    assert published.server.asked == [None]
    published.require_complete()
    assert (published.data.title, published.data.generated) == (published.title, False)
    pixels, labels = next(iter(published.data.test_dataloader()))
    assert len(pixels) == len(labels) == published.lengths[-1]


def test_what_is_there_is_not_downloaded(published: Published) -> None:
    plant(published.root / "below", published.files)
    if published.folder == "EuroSAT_MS":
        (published.root / "below" / published.folder).rename(published.root / "mine")
    published.data.prepare_data()
    published.data.setup()
    assert published.server.asked == []
    assert published.lock not in names(published.root)


def test_a_process_that_waited_finds_the_files(published: Published, caplog: pytest.LogCaptureFixture) -> None:
    with waiting(published.data.prepare_data, published.root / published.lock, caplog):
        plant(published.root, published.files)
    assert published.server.asked == []
    published.require_complete()


def test_another_archive_is_refused_and_a_part_is_gone_on_with(published: Published) -> None:
    server = published.server
    for fault in ({"payload": server.payload[::-1]}, {"stop_after": 5000}):
        good = {key: vars(server)[key] for key in fault}
        vars(server).update(fault)
        text = refusal(published.data.prepare_data)
        assert server.url in text
        kind = "SHA-256" if published.folder == cifar10_files.FOLDER else "MD5"
        assert (f"{kind} checksum" in text) == ("payload" in fault)
        vars(server).update(good)
    published.data.prepare_data()
    assert server.asked == [None, None, "bytes=5000-"]
    published.require_complete()


def test_the_folder_itself_as_root(cifar10: Published, tmp_path: Path) -> None:
    own = tmp_path / "own" / cifar10.folder
    data = composed_data("data=cifar10", f"data.root={own}", "data.download=true")
    data.prepare_data()
    data.setup()
    assert tree(own.parent) == {cifar10.lock: b"", **cifar10.files}


def test_nothing_is_downloaded_unasked(tiles_of_three: Published, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    data = composed_data("data=eurosat", f"data.root={tmp_path / 'empty'}")
    data.prepare_data()
    text, server = refusal(data.setup), tiles_of_three.server
    wanted = (f"data.root={tmp_path / 'empty'}", server.url, "data.download=true", "data=sample")
    assert all(word in text for word in wanted)
    assert server.asked == []
    assert names(tmp_path / "empty") == []


def test_an_archive_that_was_not_unpacked_is_not_downloaded_again(tiles_of_three: Published) -> None:
    root, server = tiles_of_three.root, tiles_of_three.server
    plant(root, {"EuroSAT_MS.zip": server.payload})
    with full_disk(65_536):  # less than a tile
        assert "File too large" in refusal(tiles_of_three.data.prepare_data)
    assert names(root) == [tiles_of_three.lock, "EuroSAT_MS.zip"]
    tiles_of_three.data.prepare_data()
    assert server.asked == []
    tiles_of_three.require_complete()
