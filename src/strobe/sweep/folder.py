"""The directory of a sweep: one process at a time, and nothing lost that a completed run wrote."""

import contextlib
import shutil
from pathlib import Path

from strobe.errors import ConfigError
from strobe.record import read_summary
from strobe.sweep.record import NAME


def require_unused(folder: Path) -> None:
    """Raise a ConfigError for a directory with runs that no ``sweep.json`` tells of: they would be written over."""
    if any(folder.glob("*/summary.json")) or any(folder.glob("*/.hydra")):
        raise ConfigError(
            f"hydra.sweep.dir={folder} holds runs and no {NAME}, so that nobody knows which cells they are; "
            "give another folder"
        )


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
