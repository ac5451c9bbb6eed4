"""Where compiled operators lie, how they are found again, and what becomes of those that cannot be loaded."""

import os
import platform
import shutil
from pathlib import Path

import pytest
import torch

from strobe.app.native import build, photos
from strobe.app.native.build import Library, cache_folder, compiled, load
from support.building import is_loaded, library, needs_compiler
from support.refusals import refusal


@needs_compiler()
def test_what_was_compiled_is_found_again(cache: Path, sources: Path, request: pytest.FixtureRequest) -> None:
    made = library(sources, "kept")
    first = compiled(made)
    written = first.stat().st_mtime_ns
    request.getfixturevalue("no_compiler")
    load(made)
    assert is_loaded(made)
    assert compiled(made) == first
    assert first.stat().st_mtime_ns == written


@pytest.mark.usefixtures("no_compiler")
def test_what_lies_where_nobody_may_write_is_found(cache: Path, sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in an image that is run read-only."""
    made, access = library(sources, "baked"), os.access
    path = cache / build._file_name(made)
    cache.mkdir(parents=True)
    path.touch()
    monkeypatch.setattr(os, "access", lambda where, mode: where != cache and access(where, mode))  # root may always
    assert cache_folder() != cache
    assert compiled(made) == path
    path.unlink()
    assert "cannot be compiled" in refusal(lambda: compiled(made))


@pytest.mark.skipif(os.geteuid() != 0, reason="intended: only root can give a file away")
@pytest.mark.usefixtures("no_compiler", "cache")
@pytest.mark.parametrize("given", ["file", "folder"])
def test_what_others_have_put_there_is_not_loaded(given: str, sources: Path, tmp_path: Path) -> None:
    made = library(sources, "planted")
    folder = tmp_path / f"strobe-{os.geteuid()}-native"
    folder.mkdir()
    path = folder / build._file_name(made)
    path.touch()
    assert compiled(made) == path
    os.chown(path if given == "file" else folder, 12345, 12345)
    assert "cannot be compiled" in refusal(lambda: compiled(made))


@needs_compiler()
def test_a_damaged_file_is_made_anew(cache: Path, sources: Path) -> None:
    made = library(sources, "damaged")
    path = compiled(made)
    path.write_bytes(b"\x7fELF and nothing more")
    load(made)
    assert is_loaded(made)
    assert path.stat().st_size > 1000


@needs_compiler()
def test_what_another_process_has_made_anew_stays(cache: Path, sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = library(sources, "repaired")
    path = compiled(made)
    whole = path.read_bytes()
    path.write_bytes(b"")
    real = build._alone

    def late(library: Library, folder: Path) -> object:
        path.write_bytes(whole)  # while this process waited for the lock
        return real(library, folder)

    monkeypatch.setattr(build, "_alone", late)
    monkeypatch.setattr(build, "_compile", lambda library, path: pytest.fail("compiled once more"))
    load(made)
    assert is_loaded(made)


@needs_compiler()
def test_what_cannot_be_loaded_even_so_is_said(cache: Path, sources: Path) -> None:
    made = library(sources, "lacking")
    with (sources / "lacking.cpp").open("a") as source:
        source.write("int nowhere(); int here = nowhere();\n")
    text = refusal(lambda: load(made))
    assert str(compiled(made)) in text
    assert "nowhere" in text
    assert f"although {build.compiler()} has just compiled them" in text
    assert "variable CXX" in text


def test_the_name_changes_with_all_that_it_depends_on(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = library(sources, "keyed")
    (sources / "part.h").write_text("")
    seen = {build._file_name(made)}

    def changed() -> bool:
        before = len(seen)
        seen.add(build._file_name(made))
        return len(seen) == before + 1

    assert not changed()
    (sources / "keyed.cpp").write_text("//")
    assert changed()
    (sources / "part.h").write_text("//")
    assert changed()
    monkeypatch.setenv("CXX", "another-g++")
    assert changed()
    monkeypatch.setattr(torch, "__version__", "99.0")
    assert changed()
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert changed()
    monkeypatch.setattr(build, "FLAGS", ())
    assert changed()
    (sources / "other.cpp").write_text("of another library")
    assert not changed()


def test_the_name_changes_with_a_system_library(monkeypatch: pytest.MonkeyPatch) -> None:
    before = build._file_name(photos.LIBRARY)
    monkeypatch.setattr(build, "find_library", lambda name: f"lib{name}.so.99")
    assert build._file_name(photos.LIBRARY) != before


def test_a_cache_that_cannot_be_written_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = cache_folder()
    assert folder == tmp_path / f"strobe-{os.geteuid()}-native"
    assert folder.stat().st_mode & 0o777 == 0o700
    shutil.rmtree(folder)
    folder.write_text("in the way")
    assert "XDG_CACHE_HOME" in refusal(cache_folder)


def test_a_user_without_a_home_has_a_folder_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    assert cache_folder().parent == tmp_path
