"""Compiles the operators, once for each torch version and machine, and loads them.

A library is kept in the user's cache; its name changes with everything that it depends on. It uses torch's stable ABI
(https://docs.pytorch.org/docs/stable/notes/libtorch_stable_abi.html) and no instruction that only some machines have.
"""

import contextlib
import hashlib
import logging
import os
import platform
import stat
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from ctypes.util import find_library
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from strobe.app.native import system
from strobe.app.native.system import compiler
from strobe.errors import DataError
from strobe.process.locks import locked

_log = logging.getLogger(__name__)

SOURCES = Path(__file__).parent
FLAGS = ("-std=c++20", "-O3", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread")
TORCH = Path(torch.__file__).parent

_loaded: set["Library"] = set()
_loading = threading.Lock()


@dataclass(frozen=True)
class Library:
    """Operators that are compiled together."""

    name: str
    sources: tuple[str, ...]  # in this folder
    links: tuple[str, ...] = ()  # system libraries
    header: str | None = None  # of theirs
    packages: tuple[str, ...] = ("g++",)  # of Debian and Ubuntu, with all that is needed
    serves: str = field(default="loader=native", repr=False)  # what cannot be used without them
    instead: str = "choose another loader than native"  # what to do without them
    fakes: tuple[tuple[str, Callable[..., Any]], ...] = field(default=(), compare=False, repr=False)
    """What an operator returns for tensors without data, for ``torch.compile``, by the operator's full name."""


def operators(library: Library) -> Any:
    """``torch.ops.strobe``, in which the library's operators are; raises as :func:`load`."""
    load(library)
    return torch.ops.strobe


def load(library: Library) -> None:
    """Register the library's operators with torch, after compiling them if needed.

    Of several processes that start at once, one compiles and the others wait. A second call costs nothing. A process
    must call it before it uses an operator, unless it was forked from one that did. A DataError says what to install.
    """
    if library in _loaded:
        return
    with _loading:
        if library not in _loaded:
            path = compiled(library)
            try:
                _register(path)
            except OSError as error:
                _log.info("Compiling the operators again: those in %s cannot be loaded (%s)", path, _line(error))
                _load_anew(library)
            for name, fake in library.fakes:
                torch.library.register_fake(name, fake)
            _loaded.add(library)


def _register(path: Path) -> None:
    torch.ops.load_library(path)  # type: ignore[no-untyped-call]


def _load_anew(library: Library) -> None:
    """Replace a file that is damaged, or was compiled on a machine with other system libraries, and load that."""
    path = cache_folder() / _file_name(library)
    with _alone(library, path.parent):
        with contextlib.suppress(OSError):  # what another process has made meanwhile
            _register(path)
            return
        _compile(library, path)
        try:
            _register(path)
        except OSError as error:
            raise DataError(
                f"The operators in {path} cannot be loaded, although {compiler()} has just compiled them "
                f"({_line(error)}); name another compiler in the variable CXX, one as old as the C++ library "
                f"that this Python loads, or install what the operators need: {install(library)}"
            ) from error


def compiled(library: Library) -> Path:
    """The compiled library, compiled first if needed. An existing one may lie in a read-only folder."""
    name = _file_name(library)
    for folder in _cache_folders():
        if _trusted(folder, stat.S_IFDIR) and _trusted(folder / name, stat.S_IFREG):
            return folder / name
    path = cache_folder() / name
    with _alone(library, path.parent):
        if not path.exists():
            _compile(library, path)
    return path


def missing(library: Library) -> str | None:
    """What is missing to compile the library; None if nothing is missing."""
    return system.lacks(library.header)


def install(library: Library) -> str:
    """The command that installs what the library needs, on Debian and Ubuntu."""
    return system.install(library.packages)


def cache_folder() -> Path:
    """The folder of compiled libraries: below ``XDG_CACHE_HOME``, or a private folder if that cannot be written to."""
    for folder in _cache_folders():
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError:
            continue
        if os.access(folder, os.W_OK) and folder.stat().st_uid == os.geteuid():
            return folder
    raise DataError("No folder for compiled operators can be written to; set XDG_CACHE_HOME to one that can")


def _cache_folders() -> Iterator[Path]:
    home = os.environ.get("XDG_CACHE_HOME")
    with contextlib.suppress(RuntimeError):  # a user without a home
        yield (Path(home) if home else Path.home() / ".cache") / "strobe" / "native"
    yield Path(tempfile.gettempdir()) / f"strobe-{os.geteuid()}-native"


def _trusted(path: Path, kind: int) -> bool:
    """Whether it exists, is of that kind, and belongs to this user or root: others may plant files."""
    try:
        state = path.stat()
    except OSError:
        return False
    return stat.S_IFMT(state.st_mode) == kind and state.st_uid in (0, os.geteuid())


def _alone(library: Library, folder: Path) -> contextlib.AbstractContextManager[None]:
    """Lets only one process at a time make the library in this folder."""
    return locked(folder / f".{library.name}.lock")


def _file_name(library: Library) -> str:
    """A name that changes with everything the compiled library depends on.

    All headers count for all libraries: better to compile once too often than to miss one. Of the compiler only ``CXX``
    counts, because none is needed once a library exists.
    """
    machine = (platform.machine(), platform.libc_ver(), [find_library(name) for name in library.links])
    build = (library, FLAGS, torch.__version__, os.environ.get("CXX", "").split())
    digest = hashlib.sha256(repr((build, machine)).encode())
    for path in sorted(SOURCES.glob("*.h")) + [SOURCES / name for name in library.sources]:
        digest.update(path.read_bytes())
    return f"{library.name}-{digest.hexdigest()[:16]}.so"


def _compile(library: Library, path: Path) -> None:
    """Compile into a file beside ``path``, and move it there when it is complete."""
    lacking, command = missing(library), compiler()
    if lacking or command is None:
        raise DataError(
            f"The operators for {library.name} cannot be compiled: {lacking} is missing; install it "
            f"({install(library)}), or {library.instead}"
        )
    _log.info("Compiling the operators for %s, once on this machine: about 10 s", library.name)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".compiling-") as folder:
        made = Path(folder) / path.name
        headers = [f"-isystem{TORCH / 'include'}", f"-isystem{TORCH / 'include/torch/csrc/api/include'}"]
        sources = [str(SOURCES / name) for name in library.sources]
        links = [f"-L{TORCH / 'lib'}", "-ltorch_cpu", "-ltorch", "-lc10", *(f"-l{name}" for name in library.links)]
        arguments = [command, *FLAGS, *headers, *sources, "-o", str(made), *links]
        done = subprocess.run(arguments, capture_output=True, text=True, check=False)
        if done.returncode:
            lines = done.stderr.splitlines() or ["no message"]
            reason = next((line for line in lines if "error" in line), lines[-1])
            raise DataError(
                f"The operators for {library.name} cannot be compiled by {command}: {reason}; "
                f"install a newer one ({install(library)}) or name it in the variable CXX, or {library.instead}"
            )
        made.rename(path)


def _line(error: Exception) -> str:
    return " ".join(str(error.__cause__ or error).split())  # torch's message hides the dynamic linker's
