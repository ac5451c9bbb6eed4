"""Work that two processes share is done once."""

import fcntl
import multiprocessing
from collections.abc import Iterator
from pathlib import Path

import pytest

from strobe.process.locks import locked
from support.files import names
from support.processes import all_succeed
from support.refusals import refusal
from support.server import Server, prepare, serving


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


def test_two_processes_do_the_work_once(server: Server, tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(2)
    all_succeed([context.Process(target=prepare, args=(server.url, tmp_path, barrier)) for _ in range(2)])
    assert server.asked == [None]
    assert names(tmp_path) == ["EuroSAT_MS", "EuroSAT_MS.zip", "locks"]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_lock_ends_although_a_forked_child_lives(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    release = context.Event()
    with locked(tmp_path / "lock"):
        child = context.Process(target=release.wait, args=(10,))
        child.start()
    try:
        with (tmp_path / "lock").open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        release.set()
        child.join()
        child.close()


def test_a_lock_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    def lock() -> None:
        with locked(tmp_path / "file" / "lock"):
            raise AssertionError("not reached")

    assert f"Cannot lock {tmp_path / 'file' / 'lock'}: " in refusal(lock)


def test_an_error_under_the_lock_passes_unchanged(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), locked(tmp_path / "lock"):
        (tmp_path / "missing").stat()
    with locked(tmp_path / "lock"):
        pass
