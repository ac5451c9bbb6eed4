"""Packing is done once, and again when the set has changed, and leaves nothing half done."""

import json
import logging
import multiprocessing
import os
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import tifffile
import torch
from numpy.typing import NDArray

from strobe.app.loaders import packing
from strobe.app.loaders.packed import PackedLoader
from strobe.app.loaders.packed import tiles as tile_contents
from strobe.app.loaders.packing import MANIFEST, SPARE, Contents, packed
from strobe.app.loaders.sources import PathTable, TileSource
from support.files import names, plant, tree
from support.interruptions import full_disk, interrupt_once
from support.processes import all_succeed
from support.refusals import refusal

FORK = multiprocessing.get_context("fork")
COUNT = 12
SIZE = COUNT * 13 * 64 * 64 * 2


class Set(NamedTuple):
    """Tiles that may be changed, in two classes, and where they are packed."""

    folder: Path
    packs: Path

    @property
    def paths(self) -> list[str]:
        return sorted(str(path) for path in self.folder.rglob("*.tif"))

    @property
    def source(self) -> TileSource:
        every = torch.arange(len(self.paths))
        return TileSource(PathTable(self.paths), every, every, (13, 64, 64), (3, 2, 1), 4000.0)

    @property
    def pack(self) -> Path:
        (folder,) = (path for path in self.packs.iterdir() if path.is_dir())
        return folder

    @property
    def pixels(self) -> Path:
        (path,) = self.pack.glob("*.pixels")
        return path

    def load(self, **options: bool) -> NDArray[np.uint16]:
        loader = PackedLoader(directory=str(self.packs), scale="device", **{"verify": False, **options})
        data = loader.dataset(self.source)
        return data.__getitems__(range(len(data)))[0].numpy()

    def expected(self) -> NDArray[np.uint16]:
        return np.stack([np.moveaxis(tifffile.imread(path)[..., [3, 2, 1]], -1, 0) for path in self.paths])


@pytest.fixture
def some(tiles: Path, tmp_path: Path) -> Set:
    for number, path in enumerate(sorted(tiles.glob("*/*.tif"))[::7][:COUNT]):
        plant(tmp_path / "set", {f"{'AB'[number % 2]}/{number}.tif": path.read_bytes()})
    return Set(tmp_path / "set", tmp_path / "below" / "packs")


def nothing_stays(some: Set) -> bool:
    return [path.suffix for path in some.packs.iterdir()] == [".lock"]


def slowed(some: Set, note: Callable[[str], None]) -> Contents:
    contents = tile_contents(some.source)

    def read(path: str) -> NDArray[np.uint16]:
        note(path)
        return contents.read(path)

    return replace(contents, read=read)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_killed_packing_leaves_nothing_that_is_used(some: Set) -> None:
    stuck = FORK.Event()

    def hang(path: str) -> None:
        if path == some.paths[-1]:
            stuck.set()
            time.sleep(60)

    child = FORK.Process(target=packed, args=(some.packs, slowed(some, hang)), kwargs={"verify": False})
    child.start()
    assert stuck.wait(30)
    os.kill(child.pid or 0, signal.SIGKILL)
    child.join()
    child.close()
    assert names(some.pack) == ["pixels.partial"]
    np.testing.assert_array_equal(some.load(), some.expected())
    assert names(some.pack) == sorted([MANIFEST, some.pixels.name])


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_four_processes_at_once_pack_once(some: Set) -> None:
    barrier, noted, found = FORK.Barrier(4), FORK.Value("i", 0), FORK.SimpleQueue()

    def count(path: str) -> None:
        time.sleep(0.01)  # time for the others to be in the way
        with noted.get_lock():
            noted.value += 1

    def work() -> None:
        barrier.wait(30)
        found.put(packed(some.packs, slowed(some, count), verify=False)[0])

    all_succeed([FORK.Process(target=work) for _ in range(4)])
    assert noted.value == COUNT
    assert [found.get() for _ in range(4)] == [some.pixels] * 4
    found.close()


def test_a_damaged_tile_is_named_and_nothing_stays(some: Set) -> None:
    bad = Path(some.paths[-1])
    bad.write_bytes(bad.read_bytes()[:1000])
    assert f"{bad} cannot be read as a tile" in refusal(some.load)
    assert nothing_stays(some)


def test_ctrl_c_leaves_nothing(some: Set) -> None:
    begun: list[str] = []

    def slow(path: str) -> None:
        begun.append(path)
        interrupt_once(lambda: True) if len(begun) == 3 else time.sleep(0.02)

    with pytest.raises(KeyboardInterrupt):
        packed(some.packs, slowed(some, slow), verify=False)
    assert nothing_stays(some)


def test_a_disk_that_is_too_small_is_told_before_anything_is_read(some: Set, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(some.folder)
    monkeypatch.setattr(packing.shutil, "disk_usage", lambda path: usage._replace(free=SIZE + SPARE - 1))
    text = refusal(some.load)
    assert f"loader.directory={some.packs}" in text
    assert "68.4 MB" in text
    assert nothing_stays(some)
    monkeypatch.setattr(packing.shutil, "disk_usage", lambda path: usage._replace(free=SIZE + SPARE))
    some.load()


def test_a_full_disk_is_told_in_a_sentence(some: Set) -> None:
    with full_disk(SIZE - 1):
        text = refusal(some.load)
    assert f"loader.directory={some.packs} cannot hold the pack (File too large)" in text
    assert nothing_stays(some)


def test_a_directory_that_is_none_is_told_in_a_sentence(some: Set) -> None:
    plant(some.packs.parent, {"packs": b""})
    assert f"loader.directory={some.packs} cannot hold the pack" in refusal(some.load)


def change(some: Set) -> None:
    """Only its pixels and its time of change, which becomes an older one."""
    path = Path(some.paths[5])
    old = path.stat().st_mtime_ns
    path.write_bytes(Path(some.paths[4]).read_bytes())
    os.utime(path, ns=(old, old - 10**12))


def made_at_once(some: Set) -> None:
    """As files that were unpacked from an archive."""
    for path in some.paths:
        os.utime(path, (10**9, 10**9))


def swap(some: Set) -> None:
    """Two tiles of one size and, as ``made_at_once`` left them, of one time of change."""
    first, second = (Path(path) for path in some.paths[:2])
    spare = first.with_name("spare")
    first.rename(spare)
    second.rename(first)
    spare.rename(second)
    assert (first.stat().st_size, first.stat().st_mtime_ns) == (second.stat().st_size, second.stat().st_mtime_ns)


@pytest.mark.parametrize(
    ("alter", "reason"),
    [
        (lambda some: shutil.copy(some.paths[0], some.folder / "B" / "new.tif"), "there are 13 files instead of 12"),
        (lambda some: Path(some.paths[3]).unlink(), "there are 11 files instead of 12"),
        (
            lambda some: Path(some.paths[0]).rename(some.folder / "A" / "z.tif"),
            "there are other files, or they are in another order",
        ),
        (change, "a file has changed"),
        (swap, "a file has changed"),
    ],
)
def test_a_changed_set_is_packed_anew(
    some: Set, alter: Callable[[Set], object], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "strobe.app.loaders.packing")
    made_at_once(some)
    np.testing.assert_array_equal(some.load(), some.expected())
    assert "there is none yet" in caplog.text
    alter(some)
    np.testing.assert_array_equal(some.load(), some.expected())
    assert [record.message for record in caplog.records if reason in record.message] == [caplog.messages[-2]]
    assert names(some.pack) == sorted([MANIFEST, some.pixels.name])


def test_an_unchanged_set_is_packed_once(some: Set) -> None:
    some.load()
    before = tree(some.packs), some.pixels.stat()
    assert some.pixels.stat().st_size == SIZE
    some.load()
    some.load(verify=True)
    assert (tree(some.packs), some.pixels.stat()) == before


def edit_manifest(**changes: object) -> Callable[[Set], None]:
    def edit(some: Set) -> None:
        path = some.pack / MANIFEST
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return edit


def edit_layout(**changes: object) -> Callable[[Set], None]:
    def edit(some: Set) -> None:
        layout = json.loads((some.pack / MANIFEST).read_text())["layout"]
        edit_manifest(layout=layout | changes)(some)

    return edit


@pytest.mark.parametrize(
    "damage",
    [
        lambda some: (some.pack / MANIFEST).write_text("{"),
        lambda some: (some.pack / MANIFEST).write_text("[]"),
        lambda some: (some.pack / MANIFEST).write_text("\0"),
        edit_manifest(version=0),
        edit_manifest(layout=None),
        edit_layout(shape=[13, 32, 128]),
        edit_layout(bands=[3, 2, 1]),
        edit_layout(dtype=">u2"),
        edit_manifest(sources={}),
        edit_manifest(checksum="0"),
        lambda some: os.truncate(some.pixels, SIZE - 1),
        lambda some: (some.pack / MANIFEST).unlink(),
        lambda some: some.pixels.unlink(),
        lambda some: shutil.rmtree(some.pack),
    ],
)
def test_a_damaged_pack_is_made_anew(some: Set, damage: Callable[[Set], object]) -> None:
    some.load()
    before = tree(some.packs)
    damage(some)
    assert tree(some.packs) != before
    np.testing.assert_array_equal(some.load(), some.expected())
    assert tree(some.packs) == before


def test_wrong_pixels_are_found_when_that_is_asked_for(some: Set) -> None:
    some.load()
    right = some.pixels.read_bytes()
    some.pixels.write_bytes(bytes([right[0] ^ 1]) + right[1:])
    assert not np.array_equal(some.load(), some.expected())
    np.testing.assert_array_equal(some.load(verify=True), some.expected())
    assert some.pixels.read_bytes() == right


def test_a_replaced_pack_keeps_its_pixels_for_who_uses_it(some: Set) -> None:
    data = PackedLoader(directory=str(some.packs), scale="device", verify=False).dataset(some.source)
    before, first = some.expected(), some.pixels
    change(some)
    some.load()
    assert not first.exists()
    np.testing.assert_array_equal(data.__getitems__(range(len(data)))[0].numpy(), before)


def test_a_pack_that_fits_is_used_without_writing(some: Set, monkeypatch: pytest.MonkeyPatch) -> None:
    some.load()

    def read_only(path: Path) -> None:
        raise AssertionError(f"{path} would be written")

    monkeypatch.setattr(packing, "locked", read_only)  # permissions do not stop root
    for path in (some.pack, some.packs):
        path.chmod(0o555)
    try:
        np.testing.assert_array_equal(some.load(), some.expected())
    finally:
        for path in (some.packs, some.pack):
            path.chmod(0o755)
