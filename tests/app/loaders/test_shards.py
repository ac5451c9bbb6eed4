"""Packs in shards: those of LitData's form, the same pixels as the pack, written on where they were broken off."""

import multiprocessing
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.filesize import decimal

from strobe import pack
from strobe.app.loaders import packing, shards
from strobe.app.loaders.packed import contents_of
from strobe.app.storage.objects import Storage
from strobe.app.storage.serving import CREDENTIALS, SlowLine, upload
from strobe.errors import ConfigError, DataError
from support.composing import composed_data
from support.interruptions import full_disk
from support.photo_files import made
from support.pipeline_parts import SIZE, batches, loader, source
from support.processes import all_succeed
from support.refusals import refusal
from support.runs import Train
from support.stored import Faulty, below, from_storage, stored

FEW = 3  # images of a shard


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "SHARD_BYTES", FEW * (16 * 16 * 13 * 2 + shards.PREFIX))


def write(files: Any, out: str, endpoint: str | None = None) -> shards.Shards:
    return shards.write_shards(out, contents_of(files), files.targets, endpoint=endpoint)


def epoch(name: str, files: Any, folder: Path, **options: Any) -> list[tuple[list[int], torch.Tensor]]:
    """Labels and pixels of an epoch."""
    data = made(name, files, folder / "packed", **options)
    return [(labels.tolist(), pixels.clone()) for pixels, labels in loader("torch", data, batches(), 0)]


def test_shards_hold_the_pixels_in_litdatas_form_and_are_written_on(tmp_path: Path, caplog: Any) -> None:
    files, out = source("tiles", tmp_path), tmp_path / "out"
    written = write(files, str(out))
    assert [written.images(number) for number in range(len(written.files))] == [3, 3, 3, 2]
    expected = epoch("tifffile", files, tmp_path)
    found = epoch("packed", files, tmp_path, shards=str(out))
    assert [labels for labels, _ in found] == [labels for labels, _ in expected]
    assert all(torch.equal(one.int(), other.int()) for (_, one), (_, other) in zip(found, expected, strict=True))
    before = {path: path.stat().st_mtime_ns for path in out.glob("chunk*")}
    first, second, *_ = sorted(before)
    first.unlink()
    second.write_bytes(b"half")
    caplog.set_level("INFO")
    write(files, str(out))
    assert "2 of 4 shards are to be written" in caplog.text
    kept = {path: path.stat().st_mtime_ns for path in out.glob("chunk*")}
    assert [path for path in sorted(before) if kept[path] == before[path]] == sorted(before)[2:]
    assert sorted(int(item["label"]) for item in _read_by_litdata(out)) == list(range(SIZE))


def test_shards_in_storage_are_written_on(storage: str, tmp_path: Path, caplog: Any) -> None:
    files, out = source("tiles", tmp_path), "s3://strobe/broken-off"
    upload(storage, {"makes-the-bucket": b""})
    written = write(files, out, storage)
    there = Storage(out, endpoint=storage)
    before = {name: there.read(name) for name in written.files}
    first, second, *_ = sorted(before)
    there._client()[0].delete(first)
    there.write(second, b"half")
    caplog.set_level("INFO")
    write(files, out, storage)
    assert "2 of 4 shards are to be written" in caplog.text
    assert {name: there.read(name) for name in written.files} == before


def _read_by_litdata(folder: Path) -> list[Any]:
    litdata = pytest.importorskip("litdata")
    return [dict(item) for item in litdata.StreamingDataset(str(folder))]


def test_what_is_no_pack_of_these_files_is_refused(tmp_path: Path) -> None:
    files, out = source("tiles", tmp_path), str(tmp_path / "out")
    assert "holds no strobe.json, so no shards; write them with: strobe pack --shards" in refusal(
        lambda: epoch("packed", files, tmp_path, shards=out)
    )
    write(files, out)
    (tmp_path / "other").mkdir()
    with pytest.raises(DataError, match="holds other images than"):
        epoch("packed", source("photos", tmp_path / "other"), tmp_path, shards=out)


def test_shards_in_storage_are_read_there_or_copied_once(storage: str, tmp_path: Path) -> None:
    files = source("tiles", tmp_path)
    there = from_storage(files, below(stored(storage, tmp_path, "sharded"), storage))
    out = "s3://strobe/shards"
    write(there, out, storage)
    expected = epoch("packed", files, tmp_path)
    for stream in (True, False):
        found = epoch("packed", there, tmp_path, shards=out, stream=stream)
        assert [labels for labels, _ in found] == [labels for labels, _ in expected]
        assert all(torch.equal(one.int(), other.int()) for (_, one), (_, other) in zip(found, expected, strict=True))
        assert len([*(tmp_path / "packed").glob("shards-*")]) == (not stream)
    (folder,) = (tmp_path / "packed").glob("shards-*")
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    epoch("packed", there, tmp_path, shards=out)
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before


def test_streamed_shards_are_read_by_workers_and_what_fails_is_one_sentence(
    storage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, out = source("tiles", tmp_path), "s3://strobe/streamed"
    root = stored(storage, tmp_path, "to-stream")
    there = from_storage(files, below(root, storage))
    written = write(there, out, storage)
    first = written.files[0]
    with Faulty(storage) as line:
        slow = from_storage(files, below(root, line.endpoint, timeout_seconds=3))
        data: Any = made("packed", slow, tmp_path / "packed", shards=out, stream=True)
        expected = epoch("packed", files, tmp_path)
        for engine, workers, options in (("litdata", 2, {}), ("torch", 1, {"persistent_workers": False})):
            for (pixels, labels), (known, wanted) in zip(
                loader(engine, data, batches(), workers, **options), expected, strict=True
            ):
                assert labels.tolist() == known
                assert torch.equal(pixels.int(), wanted.int()), engine
        line.cut, data.images.storage._open = 300, None  # with its connections
        assert f"{out}/{first} cannot be fetched: the connection failed" in refusal(lambda: data[0])
    whole = shards.place_of(out, {"endpoint": storage}).read(first)
    for length in (5, written.start(0) + shards.PREFIX + 100):  # before the first image's pixels, and within them
        data = made("packed", there, tmp_path, shards=out, stream=True)
        upload(storage, {f"streamed/{first}": whole[:length]})
        with pytest.raises(DataError, match=f"{out}/{first} has {length} bytes where at least .* it is truncated"):
            data[0]
        for stream in (True, False):
            said = f"{out}/{first} is missing or truncated; the same pack command writes it again"
            with pytest.raises(DataError, match=said):
                made("packed", there, tmp_path / "new", shards=out, stream=stream)
        upload(storage, {f"streamed/{first}": whole})
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "swordfish")
    told = refusal(lambda: made("packed", there, tmp_path, shards=out, stream=True))
    assert f"{out}/strobe.json: the storage refuses these credentials (SignatureDoesNotMatch); check AWS_ACCESS" in told


def test_the_command_writes_what_training_reads(
    train: Train, sample_root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "out")
    pack.main(["--shards", out, f"data.root={sample_root}", "data.tiles_per_class=10"])
    assert capsys.readouterr().out.startswith("100 images in ")
    ended = train("loader=packed", f"loader.shards={out}")
    assert ended.code == 0, ended.output


@pytest.mark.parametrize("stream", [True, False])
def test_files_on_the_disk_may_have_their_shards_in_storage(
    storage: str, sample_root: Path, tmp_path: Path, *, stream: bool
) -> None:
    out = f"s3://strobe/of-the-disk-{stream}"
    upload(storage, {"makes-the-bucket": b""})
    given = ["data=eurosat", f"data.root={sample_root / 'tiles/seed42-10'}", f"data.endpoint={storage}"]
    pack.main(["--shards", out, *given])
    packs = f"loader.directory={tmp_path / 'packs'}"
    there: Any = composed_data(*given, "loader=packed", packs, f"loader.shards={out}", f"loader.stream={stream}")
    here: Any = composed_data("data=eurosat", given[1], "loader=native")
    for data in (there, here):
        data.setup()
    assert there.in_storage == stream
    for (pixels, labels), (wanted, classes) in zip(there.val_dataloader(), here.val_dataloader(), strict=True):
        assert labels.tolist() == classes.tolist()
        assert torch.equal(pixels, wanted)


def test_credentials_in_the_address_of_shards_are_refused() -> None:
    told = refusal(lambda: pack.main(["--shards", "s3://key:swordfish@b/x"]), ConfigError)
    assert "--shards holds a password" in told
    assert "swordfish" not in told


def test_a_disk_that_is_too_small_for_shards_is_told_and_what_fits_is_kept(
    storage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, out, packs = source("tiles", tmp_path), "s3://strobe/for-a-small-disk", tmp_path / "packed"
    there = from_storage(files, below(stored(storage, tmp_path, "small-disk"), storage))
    sizes = [written.bytes(number) for written in [write(there, out, storage)] for number in range(len(written.files))]
    with full_disk(max(sizes) - 1):
        told = refusal(lambda: made("packed", there, packs, shards=out))
        assert f"loader.directory={packs} cannot hold the shards (File too large); make room" in told
        told = refusal(lambda: write(there, str(tmp_path / "out")))
        assert f"--shards {tmp_path / 'out'} cannot be written (File too large); make room" in told
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(packing.shutil, "disk_usage", lambda path: usage._replace(free=packing.SPARE))
    (folder,) = packs.glob("shards-*")
    kept = [path.stat().st_size for path in folder.iterdir() if not path.name.startswith(".")]
    assert kept in ([], [min(sizes)])  # the last one fits, if it came before another one failed
    told = refusal(lambda: made("packed", there, packs, shards=out))
    assert f"The shards need {decimal(sum(sizes) - sum(kept))} in loader.directory={packs}" in told
    assert told.endswith("copy nothing: loader.stream=true")


def copy_shards(barrier: Any, source: Any, out: str, endpoint: str, directory: Path) -> None:
    os.environ.update(CREDENTIALS)  # a process that forks may be older than the test
    barrier.wait(100)
    shards.open_shards(out, {"endpoint": endpoint}, contents_of(source), directory)


def test_of_two_processes_that_start_together_one_copies_the_shards(storage: str, tmp_path: Path) -> None:
    files, out, fresh = source("tiles", tmp_path), "s3://strobe/copied-once", multiprocessing.get_context("forkserver")
    upload(storage, {"makes-the-bucket": b""})
    write(files, out, storage)
    with SlowLine(storage, latency=0.1) as line:
        copy_shards(fresh.Barrier(1), files, out, line.endpoint, tmp_path / "alone")
        alone, line.requests = line.requests, 0
        given = fresh.Barrier(2), files, out, line.endpoint, tmp_path / "both"
        all_succeed([fresh.Process(target=copy_shards, args=given) for _ in range(2)])
        assert line.requests == alone + 1  # the other one reads their description
