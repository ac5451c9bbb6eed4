"""What several tests look at or provoke."""

import contextlib
import logging
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir

from conftest import ROOT
from strobe.app.config.register import register
from strobe.errors import DataError
from strobe.process.locks import locked


def composed_data(*overrides: str) -> Any:
    """The DataModule that ``train.py`` would build with these overrides, not yet set up."""
    from strobe.app.build.instantiate import (
        build_data,  # torch and Lightning, which processes of other tests can do without
    )

    register()
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        return build_data(compose("config", list(overrides)))


def plant(folder: Path, files: dict[str, bytes]) -> None:
    """The opposite of ``tree``."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def refusal(call: Callable[[], object], error: type[Exception] = DataError) -> str:
    """The one line with which ``call`` is refused."""
    with pytest.raises(error) as caught:
        call()
    text = str(caught.value)
    del caught  # and with it the error's frames and what they hold, such as a connection
    assert "\n" not in text
    return text


def interrupt_once(ready: Callable[[], bool]) -> None:
    """Press Ctrl-C as soon as ``ready``, from another thread."""
    deadline = time.monotonic() + 5
    while not ready() and time.monotonic() < deadline:
        time.sleep(0.001)
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


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
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
