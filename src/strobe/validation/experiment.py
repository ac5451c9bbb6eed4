"""What the experiments have in common: their arguments, and the folder that they write to."""

import argparse
import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path


def arguments(module: str, about: str, *, seed: str) -> argparse.ArgumentParser:
    """A parser that knows ``--keep`` and ``--seed``, which is ``seed``, such as "of the order of cells"."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=about)
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep what is written here")
    parser.add_argument("--seed", type=int, default=0, help=f"{seed} (0)")
    return parser


@contextlib.contextmanager
def folder_of(keep: Path | None) -> Iterator[Path]:
    """Where an experiment writes: what the user has named, or a folder that is deleted after the block."""
    if keep is not None:
        yield keep.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="strobe-") as scratch:
        yield Path(scratch)


def overrides_among(given: Sequence[str]) -> list[str]:
    """Those of the arguments that are overrides: KEY=VALUE, or ~KEY."""
    return [text for text in given if "=" in text or text.startswith("~")]
