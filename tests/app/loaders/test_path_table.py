"""Paths in one buffer: the same paths, whatever their names, and not copied into workers that are spawned."""

import os
import pickle
from multiprocessing.reduction import ForkingPickler

import pytest

from strobe.app.loaders.sources import PathTable

NAMES = ["a.jpg", "sub/b c.jpg", "\n.jpg", "größe.jpg", os.fsdecode(b"\xff.jpg"), "", "x" * 200]


@pytest.mark.parametrize("folder", ["", "/data/cats", "gelände"])
def test_paths_come_back(folder: str) -> None:
    table = PathTable(NAMES, folder)
    assert list(table) == [f"{folder}/{name}" if folder else name for name in NAMES]
    assert table[-2:] == list(table)[-2:]
    with pytest.raises(IndexError):
        table[len(NAMES)]


def test_tables_are_joined_and_pickled() -> None:
    whole = PathTable.joined([PathTable(NAMES, "/a"), PathTable(()), PathTable(NAMES[::-1])])
    assert list(whole) == [*(f"/a/{name}" for name in NAMES), *NAMES[::-1]]
    assert list(pickle.loads(pickle.dumps(whole))) == list(whole)


def test_a_spawned_worker_shares_the_buffer() -> None:
    many = PathTable([f"{number:0100}" for number in range(2_000)])
    assert len(ForkingPickler.dumps(many)) < 2_000
