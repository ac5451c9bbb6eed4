"""In which lines the workers of DataLoaders are, by looks at their stacks as at the training thread's."""

import atexit
import json
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from .columns import LOADING, LOOKS_FOLDER
from .lines import Lines, Looks, core_seconds, seconds_without_core

MOST = 64  # workers, after which none is looked at any more: they may start anew in each epoch
PATIENCE = 1.0  # seconds for the last look
COMPUTES = 0.5  # of the time in which it makes samples: a thread that computes less waits for others
LOOP = "_worker_loop"  # the function that each worker runs
MODULES = ("torch.utils.data._utils.worker", "torchdata.stateful_dataloader.stateful_dataloader")  # which have one


class WorkerLines:
    """Looks at workers that are started from now on, until ``end``; ``looks`` has those at all of them.

    ``computed`` has the core-seconds of the threads in which they make samples, and of those that Python does not know:
    a library's, such as NumPy's OpenBLAS.

    Loaders let nobody in but by the function that each worker runs: that one is called with a thread beside it, which
    writes what it saw into a folder that is made within ``directory`` until the end. Workers that are started where no
    gradients are computed, as for a validation, are left alone, and so are those of a loader into which somebody else
    has put a function.
    """

    def __init__(self, directory: Path) -> None:
        self.looks, self.computed = Looks(), (0.0, 0.0)
        self._put: list[_LookedAt] = []
        self._owner = os.getpid()
        modules = [module for name in MODULES if (module := sys.modules.get(name)) and _is_its_own(module)]
        if not modules:
            return
        with suppress(OSError):
            self._folder = Path(tempfile.mkdtemp(prefix=LOOKS_FOLDER, dir=directory.absolute()))
            self._put = [_LookedAt(module, str(self._folder)) for module in modules]
            atexit.register(self.end)
        for one in self._put:
            setattr(one.module, LOOP, one)

    def end(self) -> None:
        """Look at no further worker, and read what was seen. A second call does nothing."""
        put, self._put = self._put, []
        for one in put:
            if getattr(one.module, LOOP) is one:
                setattr(one.module, LOOP, one.loop)
        if not put or self._owner != os.getpid():
            return
        atexit.unregister(self.end)
        for path in self._folder.glob("*.json"):
            with suppress(OSError):
                kept = json.loads(path.read_text())
                self.looks.add(_places(kept["looks"]))
                self.computed = self.computed[0] + kept["own"], self.computed[1] + kept["libraries"]
        shutil.rmtree(self._folder, ignore_errors=True)


class _LookedAt:
    """The function of a worker, as the process has it that starts workers."""

    def __init__(self, module: ModuleType, folder: str) -> None:
        self.module, self.folder = module, folder
        self.loop: Callable[..., None] = getattr(module, LOOP)

    def __call__(self, *args: Any) -> None:  # in a process that was forked
        _work(self._wanted(), self.loop, *args)

    def __reduce__(self) -> Any:  # for one that was not
        return partial, (_work, self._wanted(), self.module.__name__)

    def _wanted(self) -> str | None:
        return self.folder if torch.is_grad_enabled() else None


def _work(folder: str | None, loop: Callable[..., None] | str, *args: Any) -> None:
    lines = None
    with suppress(Exception):  # the user's training goes on without
        if folder is not None and len(list(Path(folder).iterdir())) < MOST:
            path, own = Path(folder, f"{os.getpid()}.json"), threading.get_native_id()
            before = _computed(own)  # one that was not forked has imported modules until now
            lines = Lines(lambda: LOADING, keep=partial(_keep, path, own, before))
    try:
        run: Callable[..., None] = getattr(import_module(loop), LOOP) if isinstance(loop, str) else loop
        run(*args)
    finally:
        if lines is not None:
            lines.end()
            lines.thread.join(PATIENCE)


def _is_its_own(module: ModuleType) -> bool:
    return getattr(getattr(module, LOOP, None), "__name__", None) == LOOP


def _keep(path: Path, own: int, before: tuple[float, float], looks: Looks) -> None:
    computed, libraries = (now - then for now, then in zip(_computed(own), before, strict=True))
    waited = seconds_without_core(f"self/task/{own}")
    beside = not computed + waited < COMPUTES * looks.seconds  # or it only waits for a library's result
    kept = {"looks": looks.counts(), "own": computed, "libraries": libraries if beside else 0.0}
    with suppress(OSError):  # nobody wants them any more
        draft = path.with_suffix(".draft")
        draft.write_text(json.dumps(kept))
        draft.replace(path)


def _computed(own: int) -> tuple[float, float]:
    """Core-seconds of a thread, and those of the threads that Python does not know."""
    known, numbers = {thread.native_id for thread in threading.enumerate()}, set[int]()
    with suppress(OSError):  # where Linux does not list them
        numbers = {int(folder.name) for folder in Path("/proc/self/task").iterdir()}
    return core_seconds(own) or 0.0, sum(core_seconds(number) or 0.0 for number in numbers - known)


def _places(read: Any) -> Any:
    return [((phase, line and tuple(line), library), *counts) for (phase, line, library), *counts in read]
