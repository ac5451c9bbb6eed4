"""EuroSAT from a server on the loopback to tiles that can be trained on."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from strobe.app.data import eurosat
from support.composing import composed_data
from support.files import names, plant, tree
from support.interruptions import full_disk, waiting
from support.refusals import refusal
from support.server import Server, serving, zipped

LOCK = ".EuroSAT_MS.lock"


@pytest.fixture
def published(sample_root: Path) -> dict[str, bytes]:
    """Three classes of three tiles, by their path in the archive's folder."""
    root = sample_root / "tiles" / "seed42-10"
    chosen = [path for kind in ("Forest", "River", "SeaLake") for path in sorted(root.glob(f"{kind}/*.tif"))[:3]]
    return {str(path.relative_to(root)): path.read_bytes() for path in chosen}


@pytest.fixture
def server(published: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    payload = zipped({f"EuroSAT_MS/{name}": content for name, content in published.items()})
    with serving(payload) as server:
        monkeypatch.setattr(eurosat, "URL", server.url)
        monkeypatch.setattr(eurosat, "MD5", hashlib.md5(payload).hexdigest())
        yield server


@pytest.fixture
def data(tmp_path: Path) -> Any:
    """EuroSAT to be downloaded to a folder that is not there yet."""
    return composed_data("data=eurosat", f"data.root={tmp_path / 'root'}", "data.download=true")


def require_complete(data: Any, published: dict[str, bytes]) -> None:
    """Only the tiles are there, and they can be used."""
    root = Path(data.root)
    assert names(root) == [LOCK, "EuroSAT_MS"]
    assert tree(root / "EuroSAT_MS") == published
    data.setup()
    assert data.classes == ("Forest", "River", "SeaLake")
    assert (data.title, data.generated) == ("EuroSAT", False)
    assert {split: len(dataset) for split, dataset in data.datasets.items()} == {"train": 3, "val": 3, "test": 3}
    pixels, labels = next(iter(data.test_dataloader()))
    assert pixels.shape == (3, 3, 64, 64)
    assert labels.tolist() == [0, 1, 2]


def test_the_archive_is_downloaded_once(server: Server, data: Any, published: dict[str, bytes]) -> None:
    for _ in range(2):
        data.prepare_data()
    assert server.asked == [None]
    require_complete(data, published)


def test_nothing_is_downloaded_unasked(server: Server, tmp_path: Path) -> None:
    data = composed_data("data=eurosat", f"data.root={tmp_path}")
    data.prepare_data()
    text = refusal(data.setup)
    assert all(word in text for word in (f"data.root={tmp_path}", server.url, "data.download=true", "data=sample"))
    assert server.asked == []
    assert names(tmp_path) == []


def test_tiles_that_are_there_are_used(server: Server, data: Any, published: dict[str, bytes]) -> None:
    plant(Path(data.root) / "mine", published)
    data.prepare_data()
    data.setup()
    assert server.asked == []
    assert names(Path(data.root)) == ["mine"]


def test_a_process_that_waited_finds_the_tiles(
    server: Server, data: Any, published: dict[str, bytes], caplog: pytest.LogCaptureFixture
) -> None:
    with waiting(data.prepare_data, Path(data.root) / LOCK, caplog):
        plant(Path(data.root) / "EuroSAT_MS", published)
    assert server.asked == []
    require_complete(data, published)


def test_a_wrong_checksum_leaves_nothing(server: Server, data: Any, published: dict[str, bytes]) -> None:
    good, server.payload = server.payload, server.payload[::-1]
    assert server.url in refusal(data.prepare_data)
    assert names(Path(data.root)) == [LOCK]
    server.payload = good
    data.prepare_data()
    require_complete(data, published)


def test_a_lost_connection_is_resumed(server: Server, data: Any, published: dict[str, bytes]) -> None:
    server.stop_after = 300_000
    assert "run the same command again to resume" in refusal(data.prepare_data)
    server.stop_after = None
    data.prepare_data()
    assert server.asked == [None, "bytes=300000-"]
    require_complete(data, published)


def test_an_archive_that_was_not_unpacked_is_not_downloaded_again(
    server: Server, data: Any, published: dict[str, bytes]
) -> None:
    root = Path(data.root)
    root.mkdir()
    (root / "EuroSAT_MS.zip").write_bytes(server.payload)
    with full_disk(65_536):  # less than a tile
        assert "File too large" in refusal(data.prepare_data)
    assert names(root) == [LOCK, "EuroSAT_MS.zip"]
    data.prepare_data()
    assert server.asked == []
    require_complete(data, published)
