"""Which threads count as others that compute beside training."""

import _thread
import ctypes
import threading
import time
from pathlib import Path

import pytest

from strobe.callbacks.threads import EVERY, Threads

PR_SET_NAME = 15  # <linux/prctl.h>


@pytest.mark.parametrize(("name", "others"), [(b"pt_autograd_0", 0), (b"opencv", 1)])
def test_autograds_own_thread_is_none_beside_training(name: bytes, others: int, tmp_path: Path) -> None:
    """Python did not begin it; a hook in it that asks for its thread makes it known all the same, as Dummy-1."""
    computed, looked = threading.Event(), threading.Event()

    def compute() -> None:
        ctypes.CDLL(None).prctl(PR_SET_NAME, name)
        threading.current_thread()
        while time.thread_time() < 0.02:
            pass
        computed.set()
        looked.wait()
        del threading._active[threading.get_ident()]  # type: ignore[attr-defined]

    threads, now = Threads(lambda: "forward", lambda: 0.0, tmp_path), time.monotonic()
    threads.look(now)
    _thread.start_new_thread(compute, ())
    computed.wait()
    try:
        threads.look(now + 2 * EVERY)
    finally:
        looked.set()
        threads.end()
    assert sum(one["name"].startswith("Dummy-") for one in threads.cores()) == others
