"""Small loading work, in threads and processes, for the tests of its spans."""

import multiprocessing
import threading
from collections.abc import Callable
from pathlib import Path

from strobe.callbacks.spans import SpanFolder, span

EVER = (0, 1 << 62)


def rings(directory: Path) -> list[Path]:
    return sorted(directory.glob("*/*.ring"))


def names(folder: SpanFolder) -> list[str]:
    return [s.name for track in folder.read(*EVER) for s in track.spans]


def in_child(work: Callable[[], None]) -> int:
    """Run in a forked process; its exit code."""
    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join()
    assert child.exitcode is not None
    return child.exitcode


def in_thread(work: Callable[[], None], name: str) -> None:
    thread = threading.Thread(target=work, name=name)
    thread.start()
    thread.join()


def work(name: str = "read") -> None:
    with span(name, 1):
        pass
