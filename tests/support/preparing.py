"""Work that two processes share. Imports no torch, so that a process which is spawned begins soon."""

import time
from multiprocessing.synchronize import Barrier
from pathlib import Path

from strobe.app.data.download import extract_zip, fetch
from strobe.process.locks import locked
from support.server import MD5


def prepare(url: str, folder: Path, barrier: Barrier) -> None:
    """Download and extract, as each of two ranks does that start at once."""
    barrier.wait(300)
    with locked(folder / "locks" / ".lock"):
        archive = fetch(url, folder / "EuroSAT_MS.zip", md5=MD5)
        if not (folder / "EuroSAT_MS").exists():
            time.sleep(0.1)  # time for the other to be in the way
            extract_zip(archive, folder / "EuroSAT_MS")
