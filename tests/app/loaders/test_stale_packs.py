"""A pack is used as long as it fits the files, and is made anew when it does not."""

import json
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from strobe.app.loaders import packing
from strobe.app.loaders.packed import PackedLoader
from strobe.app.loaders.packing import MANIFEST
from support.files import names, tree
from support.packs import SIZE, Set, changeable


@pytest.fixture
def some(tiles: Path, tmp_path: Path) -> Set:
    return changeable(tiles, tmp_path)


def add(some: Set) -> None:
    shutil.copy(some.paths[0], some.folder / "B" / "new.tif")


def remove(some: Set) -> None:
    Path(some.paths[3]).unlink()


def rename(some: Set) -> None:
    path = Path(some.paths[0])
    path.rename(path.with_name("z.tif"))


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
        (add, "there are 13 files instead of 12"),
        (remove, "there are 11 files instead of 12"),
        (rename, "there are other files, or they are in another order"),
        (change, "a file has changed"),
        (swap, "a file has changed"),
    ],
)
def test_a_changed_set_is_packed_anew(
    some: Set, alter: Callable[[Set], None], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "strobe.app.loaders.packing")
    made_at_once(some)
    np.testing.assert_array_equal(some.load(), some.expected())
    assert "none is there yet" in caplog.text
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


def write_manifest(text: str) -> Callable[[Set], None]:
    return lambda some: (some.pack / MANIFEST).write_text(text) and None


def edit_layout(**changes: object) -> Callable[[Set], None]:
    def edit(some: Set) -> None:
        layout = json.loads((some.pack / MANIFEST).read_text())["layout"]
        edit_manifest(layout=layout | changes)(some)

    return edit


def lose_pixels(some: Set) -> None:
    os.truncate(some.pixels, SIZE - 1)


@pytest.mark.parametrize(
    "damage",
    [
        write_manifest("{"),
        write_manifest("[]"),
        write_manifest("\0"),
        edit_manifest(version=0),
        edit_manifest(layout=None),
        edit_layout(shape=[13, 32, 128]),
        edit_layout(bands=[3, 2, 1]),
        edit_layout(dtype=">u2"),
        edit_manifest(sources={}),
        edit_manifest(checksum="0"),
        lose_pixels,
        lambda some: (some.pack / MANIFEST).unlink(),
        lambda some: some.pixels.unlink(),
        lambda some: shutil.rmtree(some.pack),
    ],
)
def test_a_damaged_pack_is_made_anew(some: Set, damage: Callable[[Set], None]) -> None:
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
