"""Sources to compile and a cache of a test's own."""

from pathlib import Path

import pytest

from strobe.app.native import build


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which compiled operators will lie."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path / "cache" / "strobe" / "native"


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of sources to change."""
    folder = tmp_path / "sources"
    folder.mkdir()
    monkeypatch.setattr(build, "SOURCES", folder)
    return folder


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
