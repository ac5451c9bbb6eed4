"""The directory of a sweep: one process at a time, and nothing lost that a completed run wrote."""

import contextlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from strobe.errors import ConfigError
from strobe.records.run import read_summary
from strobe.records.sweep import NAME


def require_unused(folder: Path) -> None:
    """Raise a ConfigError for a directory with runs that no ``sweep.json`` tells of: they would be written over."""
    if _holds_runs(folder):
        raise ConfigError(
            f"hydra.sweep.dir={folder} holds runs and no {NAME}, so that nobody knows which cells they are; "
            "give another folder"
        )


def require_new(folder: Path, launcher: str) -> None:
    """Raise a ConfigError for a directory with runs or a sweep, which this launcher would write over."""
    if (folder / NAME).exists() or _holds_runs(folder):
        raise ConfigError(
            f"hydra.sweep.dir={folder} holds runs already, and hydra/launcher={launcher} would write over them; "
            "give another folder"
        )


def require_free(folder: Path, names: Iterable[str], taken: Iterable[str]) -> None:
    """Raise a ConfigError unless each name is a directory of its own, new and below the folder.

    Args:
        folder: the sweep's.
        names: of directories relative to it, of runs that come.
        taken: those of runs that were.
    """
    ours = {PurePosixPath(name) for name in taken}
    above = {parent for path in ours for parent in path.parents}
    for name in names:
        path = PurePosixPath(name)
        if not path.parts or path.is_absolute() or ".." in path.parts:
            raise ConfigError(f"hydra.sweep.subdir={name} is not below hydra.sweep.dir={folder}; give a relative one")
        if path in ours or path in above or ours & set(path.parents) or os.path.lexists(folder / path):
            raise ConfigError(
                f"{folder / path} is there already or is another run's; give a hydra.sweep.subdir that differs "
                "between cells, such as one with ${hydra.job.num}, or another hydra.sweep.dir"
            )
        ours.add(path)
        above |= set(path.parents)


def _holds_runs(folder: Path) -> bool:
    return any(folder.glob("*/summary.json")) or any(folder.glob("*/.hydra"))


def completed(run: Path) -> bool:
    """Whether a run's own record says that it completed."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return read_summary(run / "summary.json").get("status") == "completed"
    return False


def make_empty(run: Path) -> None:
    """Remove what a run that did not complete has left."""
    assert not completed(run)
    if run.is_symlink():
        run.unlink()
    elif run.is_dir():
        shutil.rmtree(run)
    else:
        run.unlink(missing_ok=True)
