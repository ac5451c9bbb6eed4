"""Libraries to compile: small ones, in sources and caches of a test's own."""

from pathlib import Path

import pytest

from strobe.app.native import build, tiles
from strobe.app.native.build import Library, missing

OPERATOR = """
#include <torch/csrc/stable/library.h>
int64_t twice(int64_t number) { return 2 * number; }
STABLE_TORCH_LIBRARY_FRAGMENT(strobe_NAME, m) { m.def("twice(int number) -> int"); }
STABLE_TORCH_LIBRARY_IMPL(strobe_NAME, CompositeExplicitAutograd, m) { m.impl("twice", TORCH_BOX(&twice)); }
"""


def needs_compiler() -> pytest.MarkDecorator:
    lacking = missing(tiles.LIBRARY)
    return pytest.mark.skipif(lacking is not None, reason=f"{lacking} is missing")


def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which compiled operators will lie."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path / "cache" / "strobe" / "native"


def empty_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of sources to change."""
    folder = tmp_path / "sources"
    folder.mkdir()
    monkeypatch.setattr(build, "SOURCES", folder)
    return folder


def library(sources: Path, name: str) -> Library:
    """One with an operator of its own, ``twice``."""
    (sources / f"{name}.cpp").write_text(OPERATOR.replace("NAME", name))
    return Library(name, (f"{name}.cpp",))
