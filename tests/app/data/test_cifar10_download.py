"""CIFAR-10 by torchvision's downloader, from a server on the loopback: all of it arrives, or nothing is left."""

import hashlib
import io
import shutil
import socket
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torchvision import datasets

from support.cifar10_files import FOLDER, generated, publish
from support.composing import composed_data
from support.files import names, plant, tree
from support.interruptions import interrupt_once, waiting
from support.refusals import refusal
from support.server import Server, nobody, serving

LOCK = f".{FOLDER}.lock"


def archive(root: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        tar.add(root / FOLDER, FOLDER)
    return buffer.getvalue()


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """The files that the server's archive holds."""
    root = generated(tmp_path / "published")
    publish(root, monkeypatch)
    return tree(root)


@pytest.fixture
def server(published: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    payload = archive(tmp_path / "published")
    shutil.rmtree(tmp_path / "published")
    with serving(payload) as server:
        monkeypatch.setattr(datasets.CIFAR10, "url", f"{server.base}/cifar-10-python.tar.gz")
        monkeypatch.setattr(datasets.CIFAR10, "tgz_md5", hashlib.md5(payload).hexdigest())
        yield server


@pytest.fixture
def data(tmp_path: Path) -> Any:
    """CIFAR-10 to be downloaded to a folder that is not there yet."""
    return composed_data("data=cifar10", f"data.root={tmp_path / 'new' / 'root'}", "data.download=true")


def test_the_archive_is_downloaded_once(server: Server, data: Any, published: dict[str, bytes]) -> None:
    for _ in range(2):
        data.prepare_data()
    assert len(server.asked) == 2  # torchvision asks for the address's redirections first
    assert tree(Path(data.root)) == {LOCK: b"", **published}
    data.setup()
    assert {split: len(dataset) for split, dataset in data.datasets.items()} == {"train": 180, "val": 20, "test": 20}


def test_the_folder_itself_as_root(server: Server, tmp_path: Path, published: dict[str, bytes]) -> None:
    data = composed_data("data=cifar10", f"data.root={tmp_path / FOLDER}", "data.download=true")
    data.prepare_data()
    data.setup()
    assert tree(tmp_path) == {LOCK: b"", **published}


def test_what_is_there_is_not_downloaded(server: Server, data: Any) -> None:
    generated(Path(data.root) / "below")
    data.prepare_data()
    data.setup()
    assert server.asked == []


def test_a_process_that_waited_finds_the_files(
    server: Server, data: Any, published: dict[str, bytes], caplog: pytest.LogCaptureFixture
) -> None:
    with waiting(data.prepare_data, Path(data.root) / LOCK, caplog):
        plant(Path(data.root), published)
    assert server.asked == []
    data.setup()


@pytest.mark.parametrize(
    "fault",
    [{"payload": b"altered"}, {"stop_after": 5000}, {"stop_after": 5000, "chunked": True}, {"status": 404}],
    ids=["altered", "cut off", "cut off, length unknown", "gone"],
)
def test_a_bad_download_leaves_nothing(
    server: Server, data: Any, published: dict[str, bytes], fault: dict[str, object]
) -> None:
    good = {key: vars(server)[key] for key in fault}
    vars(server).update(fault)
    text = refusal(data.prepare_data)
    assert all(word in text for word in (datasets.CIFAR10.url, f"data.root={data.root}"))
    assert names(Path(data.root)) == [LOCK]
    vars(server).update(good)
    data.prepare_data()
    assert tree(Path(data.root)) == {LOCK: b"", **published}


def test_nobody_there(published: dict[str, bytes], data: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with nobody() as address:
        monkeypatch.setattr(datasets.CIFAR10, "url", f"{address}/cifar-10-python.tar.gz")
        text = refusal(data.prepare_data)
    assert f"{address}/cifar-10-python.tar.gz" in text
    assert "Connection refused" in text
    assert names(Path(data.root)) == [LOCK]


def test_ctrl_c_leaves_nothing(server: Server, data: Any) -> None:
    root, sent = Path(data.root), 3 << 15  # whole blocks of torchvision's, which then waits for the next one
    part = root / f".{FOLDER}.partial" / "cifar-10-python.tar.gz"
    once = threading.Lock()  # for torchvision asks twice

    def press(connection: socket.socket) -> None:
        if once.acquire(blocking=False):
            interrupt_once(lambda: part.exists() and part.stat().st_size == sent)
        server.hang(connection)

    server.stop_after, server.then = sent, press
    with pytest.raises(KeyboardInterrupt):
        data.prepare_data()
    assert names(root) == [LOCK]
