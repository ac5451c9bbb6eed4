"""What goes wrong between a training and its storage: it goes on, or says in one sentence what to do."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from strobe.app.storage.address import SCHEMES, check_address
from strobe.app.storage.folder import RemoteFolder
from strobe.app.storage.objects import Contents, Storage
from strobe.app.storage.serving import BUCKET, CREDENTIALS, free_ports, upload
from strobe.errors import ConfigError, DataError
from support.interruptions import full_disk
from support.refusals import refusal
from support.stored import Faulty, below

FILES = {f"{number}.bin": bytes([number]) * (1000 + number) for number in range(20)}


@pytest.fixture
def root(storage: str, request: pytest.FixtureRequest) -> str:
    """Twenty objects, below a root of the test's own."""
    name = request.node.name.translate(dict.fromkeys(map(ord, "[]. "), "-"))
    upload(storage, {f"{name}/{key}": content for key, content in FILES.items()})
    return f"s3://{BUCKET}/{name}"


def read(folder: RemoteFolder) -> dict[str, bytes]:
    """All objects of a root by key."""
    addresses = [f"{folder}/{name}" for name in folder.files((".bin",), below=False)]
    found = folder.objects(addresses)
    contents: Contents = found.fetch(addresses, np.arange(len(addresses)))
    return {address.rpartition("/")[2]: contents[place] for place, address in enumerate(addresses)}


def sentence(folder: RemoteFolder) -> str:
    """How reading a root fails."""
    with pytest.raises(DataError) as caught:
        read(folder)
    text = str(caught.value)
    assert "\n" not in text
    assert caught.value.__cause__ is None  # whose text would repeat what was signed
    return text


def put(storage: str, root: str, key: str, content: bytes) -> None:
    upload(storage, {f"{root.rpartition('/')[2]}/{key}": content})


def test_requests_are_sent_again(storage: str, root: str) -> None:
    with Faulty(storage) as line:
        folder = below(root, line.endpoint, requests=8)
        folder.storage._open = None  # with its connections
        line.refuse = 4
        assert read(folder) == FILES
        assert line.refuse == 0


def test_an_object_whose_connection_was_cut_is_fetched_again(storage: str, root: str) -> None:
    with Faulty(storage) as line:
        folder = below(root, line.endpoint, requests=4)
        folder.storage._open = None  # with its connections
        line.cut, line.cuts = 300, 3  # within the headers, or the content
        assert read(folder) == FILES
        assert line.cuts == 0


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ({"refuse": 1000}, "status 503"),
        ({"cut": 300}, "the connection failed"),
        ({"latency": 2.0}, "no answer in time"),
    ],
    ids=["busy", "cut", "slow"],
)
def test_a_storage_that_does_not_answer_is_one_sentence(
    fault: dict[str, Any], why: str, storage: str, root: str
) -> None:
    with Faulty(storage) as line:
        folder = below(root, line.endpoint, timeout_seconds=1.0, requests=2)
        folder.storage._open = None  # with its connections
        vars(line).update(fault)
        began = time.monotonic()
        told = sentence(folder)
        assert time.monotonic() - began < 30
    assert f"{root}/0.bin cannot be fetched: {why}, after tries for up to 1 s; check data.endpoint=" in told
    assert told.endswith("or give data.timeout_seconds=SECONDS")


def test_nobody_serves(root: str) -> None:
    (port,) = free_ports(1)
    told = refusal(lambda: below(root, f"http://127.0.0.1:{port}", timeout_seconds=0.5))
    assert f"{root} cannot be fetched: the connection failed" in told


def test_objects_that_are_not_as_they_were_listed_are_named(storage: str, root: str) -> None:
    import obstore

    folder = below(root, storage)
    put(storage, root, "3.bin", b"short")
    assert f"{root}/3.bin has 5 bytes where 1003 were listed" in sentence(folder)
    put(storage, root, "3.bin", bytes(1003))
    assert f"{root}/3.bin was replaced during the run; start again" in sentence(folder)
    store, _ = folder.storage._client()
    obstore.delete(store, "3.bin")
    assert f"{root}/3.bin is missing, although it was listed" in sentence(folder)


def test_credentials(storage: str, root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "swordfish")
    told = refusal(lambda: below(root, storage))
    assert f"{root}: the storage refuses these credentials (SignatureDoesNotMatch); check AWS_ACCESS_KEY_ID" in told
    assert not any(word in told for word in ("swordfish", "loopback", "not-a-secret"))
    for name in CREDENTIALS:
        monkeypatch.delenv(name)
    (port,) = free_ports(1)
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", f"http://127.0.0.1:{port}")  # where AWS's machines ask for a role
    told = refusal(lambda: below(root, storage, timeout_seconds=0.5))
    assert f"{root}: there are no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" in told


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_client_opens_each_kind_of_address(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = Storage(f"{scheme}://place/folder", endpoint=None)
    if scheme in ("az", "azure", "adl", "abfs", "abfss"):
        monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
        assert "there is no account; set AZURE_STORAGE_ACCOUNT_NAME" in refusal(storage._store)
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "somebody")
    kind = {"s3": "S3", "s3a": "S3", "gs": "GCS", "http": "HTTP", "https": "HTTP"}.get(scheme, "Azure")
    assert type(storage._store()).__name__ == f"{kind}Store"


@pytest.mark.parametrize("address", ["abfss://data@account.dfs.core.windows.net/tiles", "s3://bucket/user@place/tiles"])
def test_an_at_sign_that_is_no_password_s_is_taken(address: str) -> None:
    check_address("data.root", address)
    with pytest.raises(ConfigError, match="holds a password"):
        check_address("data.root", address.replace("://", "://me:secret@"))


def test_no_such_bucket(storage: str) -> None:
    assert "s3://nowhere/x: there is no such bucket; check data.root" in refusal(
        lambda: below("s3://nowhere/x", storage)
    )


def entries(cache: Path) -> list[Path]:
    """The objects in a cache."""
    return [path for path in cache.rglob("*") if path.is_file() and not path.name.startswith(".")]


def held(cache: Path) -> int:
    """Their bytes, which are those that the cache counts."""
    total = sum(path.stat().st_size for path in entries(cache))
    assert int((cache / ".bytes").read_text()) == total
    return total


def test_a_cache_serves_later_epochs_and_heals(storage: str, root: str, tmp_path: Path) -> None:
    with Faulty(storage) as line:
        folder = below(root, line.endpoint, cache=str(tmp_path))
        assert read(folder) == FILES
        asked = line.requests
        assert read(folder) == FILES
        assert line.requests == asked
        assert held(tmp_path) == sum(map(len, FILES.values()))
        damaged, *_ = entries(tmp_path)
        damaged.write_bytes(b"")
        assert read(folder) == FILES
        assert line.requests == asked + 1
        put(storage, root, "3.bin", bytes(1003))  # while nobody trained: the next run sees the new one
        assert read(below(root, line.endpoint, cache=str(tmp_path)))["3.bin"] == bytes(1003)


def test_a_cache_is_bounded_and_gives_way_to_what_is_used(storage: str, root: str, tmp_path: Path) -> None:
    def cached(root: str, gigabytes: float) -> RemoteFolder:
        folder = below(root, storage, cache=str(tmp_path), cache_gb=gigabytes)
        assert read(folder) == FILES
        assert held(tmp_path) <= gigabytes * 1e9
        return folder

    first = cached(root, 12_000e-9)
    assert len(entries(tmp_path)) == 11
    upload(storage, {f"other/{key}": content for key, content in FILES.items()})
    other = cached(f"s3://{BUCKET}/other", 15_000e-9)
    assert len(entries(first.storage.cache.own)) == 11  # in use
    del first
    cached(f"s3://{BUCKET}/other", 20_000e-9)
    assert len(entries(tmp_path)) == len(entries(other.storage.cache.own)) == 19
    cached(f"s3://{BUCKET}/other", 5_000e-9)  # a lower bound


def test_a_full_disk_ends_the_keeping_only(
    storage: str, root: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = below(root, storage, cache=str(tmp_path))
    with full_disk(900):
        assert read(folder) == FILES
    assert entries(tmp_path) == []
    assert f"data.cache={tmp_path} keeps nothing more" in caplog.text
    assert "cannot be used" in refusal(lambda: below(root, storage, cache="/proc/cache"))


READER = """
import sys
sys.path.insert(0, {tests!r})
from app.storage.test_storage_faults import FILES, read
from support.stored import below
for _ in range(5):
    assert read(below({root!r}, {endpoint!r}, cache={cache!r})) == FILES
"""


def test_two_trainings_share_a_cache(storage: str, root: str, tmp_path: Path) -> None:
    tests = str(Path(__file__).parents[2])
    code = READER.format(tests=tests, root=root, endpoint=storage, cache=str(tmp_path))
    both: list[Any] = [subprocess.Popen([sys.executable, "-c", code], env=os.environ.copy()) for _ in range(2)]
    assert [one.wait(100) for one in both] == [0, 0]
    assert held(tmp_path) == sum(map(len, FILES.values()))
