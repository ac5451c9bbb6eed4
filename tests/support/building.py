"""Libraries to compile."""

from pathlib import Path

import pytest

from strobe.app.native import tiles
from strobe.app.native.build import Library, missing


def needs_compiler() -> pytest.MarkDecorator:
    lacking = missing(tiles.LIBRARY)
    return pytest.mark.skipif(lacking is not None, reason=f"{lacking} is missing")


def library(sources: Path, name: str) -> Library:
    """A small one, quickly compiled: whether a process has loaded it, ``is_loaded`` tells."""
    (sources / f"{name}.cpp").write_text("int twice(int number) { return 2 * number; }\n")
    return Library(name, (f"{name}.cpp",))


def is_loaded(made: Library) -> bool:
    return f"/{made.name}-" in Path("/proc/self/maps").read_text()
