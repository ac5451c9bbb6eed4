"""The names of a run's directory: when it started, and with which overrides. Hydra's resolvers; imports no torch."""

import os
import re
import time
from collections.abc import Sequence
from pathlib import Path

from strobe.overrides import split
from strobe.process.launch import started_by_torchrun

MAX_NAME = 100  # characters; leaves room in a 255-byte file name for the time and the sweep's number


def start_time(form: str) -> str:
    """The local time at which the run started, the same in all its processes on one machine.

    Under torchrun each rank composes its own configuration, a moment apart: the start of their
    common parent is what they agree on.
    """
    seconds = _process_start(os.getppid()) if started_by_torchrun() else time.time()
    return time.strftime(form, time.localtime(seconds))


def _process_start(pid: int) -> float:
    """Seconds since the epoch at which a process started (proc(5): field 22 of stat, in clock ticks)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    boot = re.search(r"^btime (\d+)", Path("/proc/stat").read_text(), re.MULTILINE)
    assert boot is not None
    return int(boot[1]) + int(fields[19]) / os.sysconf("SC_CLK_TCK")


def run_name(overrides: Sequence[str]) -> str:
    """Overrides as part of a directory's name, empty for none, such as ``-loader-skimage+devices-1``.

    It holds no character that the shell or Hydra's own grammar would need quoted, so that a checkpoint's
    path can be given back as ``ckpt_path=PATH``. Paths say little and are left out.
    """
    parts = []
    for override in overrides:
        key, value = split(override)
        if key == "ckpt_path" or key.startswith(("hydra", "sweep.")) or "/" in value:
            continue
        parts.append(re.sub(r"[^\w.-]+", "_", f"{key.rpartition('.')[2]}-{value}", flags=re.ASCII).strip("_"))
    return ("-" + "+".join(parts))[:MAX_NAME] if parts else ""
