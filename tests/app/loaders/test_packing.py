"""Packing is done once, tells what stands in its way, and leaves nothing half done."""

import multiprocessing
import os
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from strobe.app.loaders import packing
from strobe.app.loaders.packed import tiles as tile_contents
from strobe.app.loaders.packing import MANIFEST, SPARE, Contents, packed
from support.files import names, plant
from support.interruptions import full_disk, interrupt_once
from support.packs import COUNT, SIZE, Set, changeable
from support.refusals import refusal

FORK = multiprocessing.get_context("fork")


@pytest.fixture
def some(tiles: Path, tmp_path: Path) -> Set:
    return changeable(tiles, tmp_path)


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

    children = [FORK.Process(target=work) for _ in range(4)]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
        assert child.exitcode == 0
        child.close()
    assert noted.value == COUNT
    assert [found.get() for _ in children] == [some.pixels] * 4
    found.close()


def test_a_damaged_tile_is_named_and_nothing_stays(some: Set) -> None:
    bad = Path(some.paths[-1])
    bad.write_bytes(bad.read_bytes()[:1000])
    assert f"{bad} cannot be read as a tile" in refusal(some.load)
    assert [path.suffix for path in some.packs.iterdir()] == [".lock"]


def test_ctrl_c_leaves_nothing(some: Set) -> None:
    begun: list[str] = []

    def slow(path: str) -> None:
        begun.append(path)
        interrupt_once(lambda: True) if len(begun) == 3 else time.sleep(0.02)

    with pytest.raises(KeyboardInterrupt):
        packed(some.packs, slowed(some, slow), verify=False)
    assert [path.suffix for path in some.packs.iterdir()] == [".lock"]


def test_a_disk_that_is_too_small_is_told_before_anything_is_read(some: Set, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(some.folder)
    monkeypatch.setattr(packing.shutil, "disk_usage", lambda path: usage._replace(free=SIZE + SPARE - 1))
    text = refusal(some.load)
    assert f"loader.directory={some.packs}" in text
    assert "68.4 MB" in text
    assert [path.suffix for path in some.packs.iterdir()] == [".lock"]
    monkeypatch.setattr(packing.shutil, "disk_usage", lambda path: usage._replace(free=SIZE + SPARE))
    some.load()


def test_a_full_disk_is_told_in_a_sentence(some: Set) -> None:
    with full_disk(SIZE - 1):
        text = refusal(some.load)
    assert f"loader.directory={some.packs} cannot hold the pack (File too large)" in text
    assert [path.suffix for path in some.packs.iterdir()] == [".lock"]


def test_a_directory_that_is_none_is_told_in_a_sentence(some: Set) -> None:
    plant(some.packs.parent, {"packs": b""})
    assert f"loader.directory={some.packs} cannot hold the pack" in refusal(some.load)
