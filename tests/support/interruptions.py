"""What comes in the way of work: Ctrl-C, a full disk, a lock that another holds, an error in a step."""

import contextlib
import logging
import os
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn

import pytest

from strobe.process.locks import locked


def interrupt_once(ready: Callable[[], bool]) -> None:
    """Press Ctrl-C as soon as ``ready``, from another thread."""
    deadline = time.monotonic() + 60
    while not ready() and time.monotonic() < deadline:
        time.sleep(0.001)
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


@contextlib.contextmanager
def own_signals() -> Iterator[None]:
    """Lightning leaves SIGINT ignored, and our commands end the process at any request while they exit."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def before_each_step(monkeypatch: pytest.MonkeyPatch, act: Callable[[Any, Any], object]) -> None:
    """Let the application's models ``act(model, batch)`` at the beginning of each training step."""
    from strobe.app.model.classifier import ImageClassifier  # imports torch, which not every process needs

    step = ImageClassifier.training_step

    def training_step(self: ImageClassifier, batch: Any, batch_idx: int) -> Any:
        act(self, batch)
        return step(self, batch, batch_idx)

    monkeypatch.setattr(ImageClassifier, "training_step", training_step)


def raising(error: BaseException) -> NoReturn:
    """As a function."""
    raise error


@contextlib.contextmanager
def waiting(work: Callable[[], object], lock: Path, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Hold ``lock`` while ``work``, which wants it too, waits in another thread; then let it end."""
    caplog.set_level(logging.INFO, "strobe.process.locks")
    with ThreadPoolExecutor(1) as pool:
        with locked(lock):
            working = pool.submit(work)
            while "Waiting for another process" not in caplog.text and not working.done():
                time.sleep(0.01)
            assert not working.done()
            yield
        working.result()


@contextlib.contextmanager
def full_disk(limit: int) -> Iterator[None]:
    """Let no file of this process grow beyond ``limit`` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)


@contextlib.contextmanager
def small_disk(place: Path, megabytes: int) -> Iterator[Path]:
    """A disk of that size in a new folder; skips the test where nobody may mount one."""
    place.mkdir()
    options = ("-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(place))
    if os.geteuid() or subprocess.run(["mount", *options], check=False, capture_output=True).returncode:
        pytest.skip("intended: no disk can be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(disk: Path) -> None:
    """Leave no free byte on it."""
    with contextlib.suppress(OSError), (disk / "filler").open("ab", buffering=0) as file:
        while True:
            file.write(bytes(4096))
