"""Registers the schemas and the resolvers with Hydra. Imports no torch."""

import inspect
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

from hydra import initialize_config_dir
from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf

from strobe.app.config import schema, suites
from strobe.overrides import split
from strobe.process.launch import started_by_torchrun

CONF = Path(__file__).parents[2] / "conf"  # a link to the repository's
MAX_NAME = 100  # characters; leaves room in a 255-byte file name for the time and the sweep's number


def workers_beside(engine: Any) -> int:
    """How many processes or threads load data beside training, for this ``engine``; 0 for a resident one."""
    return int(engine.num_workers) if "prefetch_factor" in engine else 0


def schemas() -> Iterator[type]:
    """All schemas; ``conf/`` names them by their class names."""
    known = (vars(schema) | vars(suites)).values()
    yield from (kind for kind in known if isinstance(kind, type) and is_dataclass(kind))


@cache
def meanings(kind: type) -> dict[str, str]:
    """What the fields of a schema mean: the comment behind each, or above it if the line is full."""
    comments: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        if each.__module__ in (schema.__name__, suites.__name__):
            lines = [line.strip() for line in inspect.getsource(each).splitlines()]
            for above, line in zip(["", *lines], lines, strict=False):
                if field := re.match(r"(\w+): .*?(?:  # (.+))?$", line):
                    comment = field[2] or (above.removeprefix("# ") if above.startswith("# ") else "")
                    comments |= {field[1]: comment} if comment else {}
    return comments


class _Shared(dict[str, Any]):
    """The store's content, shared where Hydra would copy all of it for each group that it lists.

    Copying took most of the time of ``--help``, and ``ConfigStore.load`` copies the node that it returns anyway.
    """

    def __deepcopy__(self, memo: dict[int, Any]) -> "_Shared":
        return self


def register() -> None:
    """Register the schemas, by their class names, and the resolvers with Hydra; conf/ builds on them.

    A second call does nothing.
    """
    store = ConfigStore.instance()
    if isinstance(store.repo, _Shared):
        return
    store.repo = _Shared(store.repo)
    for kind in schemas():
        store.store(name=kind.__name__, node=kind)
    OmegaConf.register_new_resolver("start_time", start_time, use_cache=True, replace=True)
    OmegaConf.register_new_resolver("run_name", run_name, replace=True)


@contextmanager
def composing() -> Iterator[None]:
    """A block in which Hydra's ``compose`` takes configurations from ``conf/``."""
    register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        yield


def start_time(form: str) -> str:
    """The local time at which the run started; under torchrun that of the ranks' parent, so that all ranks agree."""
    seconds = _process_start(os.getppid()) if started_by_torchrun() else time.time()
    return time.strftime(form, time.localtime(seconds))


def _process_start(pid: int) -> float:
    """Seconds since the epoch at which a process started (proc(5): field 22 of stat, in clock ticks)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    boot = re.search(r"^btime (\d+)", Path("/proc/stat").read_text(), re.MULTILINE)
    assert boot is not None
    return int(boot[1]) + int(fields[19]) / os.sysconf("SC_CLK_TCK")


def run_name(overrides: Sequence[str]) -> str:
    """Overrides as part of a directory's name, such as ``-loader-skimage+devices-1``; empty without any.

    It needs no quotes in ``ckpt_path=PATH``, in the shell or in Hydra. Paths say little and are left out.
    """
    parts = []
    for override in overrides:
        key, value = split(override)
        if key == "ckpt_path" or key.startswith(("hydra", "sweep.")) or "/" in value:
            continue
        parts.append(re.sub(r"[^\w.-]+", "_", f"{key.rpartition('.')[2]}-{value}", flags=re.ASCII).strip("_"))
    return ("-" + "+".join(parts))[:MAX_NAME] if parts else ""
