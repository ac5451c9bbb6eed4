"""How operators are compiled, where they lie, and what a user is told when that cannot be."""

import os
import platform
import shutil
from collections.abc import Callable
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import pytest
import torch

from strobe.app.native import build, photos
from strobe.app.native.build import Library, cache_folder, compiled, install, load, missing
from strobe.app.native.system import compiler
from strobe.app.native.tiles import LIBRARY
from support.building import needs_compiler
from support.files import names
from support.interruptions import full_disk, raising
from support.refusals import refusal
from support.runs import Ended


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


def library(sources: Path, name: str) -> Library:
    """A small one, quickly compiled: whether a process has loaded it, ``is_loaded`` tells."""
    (sources / f"{name}.cpp").write_text("int twice(int number) { return 2 * number; }\n")
    return Library(name, (f"{name}.cpp",))


def is_loaded(made: Library) -> bool:
    return f"/{made.name}-" in Path("/proc/self/maps").read_text()


@pytest.mark.usefixtures("cache", "no_compiler")
def test_without_a_compiler_training_ends_with_that_sentence_and_other_loaders_train(
    train: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "_loaded", set())  # as in a new process
    ended = train("loader=native", name="native")
    assert ended.code == 1
    (line,) = [line for line in ended.output.splitlines() if "cannot be compiled" in line]
    assert line.endswith(
        "The operators for tiles cannot be compiled: a C++ compiler (g++, c++ or clang++) is missing; install it "
        "(sudo apt-get install g++), or choose another loader than native"
    )
    assert "Traceback" not in ended.output
    assert train("loader=tifffile", name="tifffile").code == 0


@needs_compiler()
@pytest.mark.usefixtures("cache")
def test_a_missing_header_is_named() -> None:
    lacking = replace(LIBRARY, header="no_such_header.h", packages=("g++", "libnothing-dev"))
    assert missing(lacking) == "the header no_such_header.h"
    text = refusal(lambda: compiled(lacking))
    assert "the header no_such_header.h is missing; install it (sudo apt-get install g++ libnothing-dev)" in text
    assert install(lacking) == "sudo apt-get install g++ libnothing-dev"
    assert missing(replace(LIBRARY, header="vector")) is None


@needs_compiler()
def test_a_compiler_that_fails_is_quoted(cache: Path, sources: Path) -> None:
    (sources / "bad.cpp").write_text('#error "too old"\n')
    text = refusal(lambda: compiled(Library("bad", ("bad.cpp",))))
    assert "too old" in text
    assert "CXX" in text
    assert names(cache) == [".bad.lock"]


NAMED = {"clang++": "clang++", "ccache c++ -m64": "c++", "c++ -isystem clang++": "c++", "  ": "g++", "ccache": "g++"}


@pytest.mark.parametrize(("named", "expected"), NAMED.items())
def test_the_variable_names_the_compiler(
    named: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("g++", "c++", "clang++", "ccache"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CXX", named)
    assert compiler() == str(tmp_path / expected)


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("named", ["no-such-g++", "ccache no-such-g++ -m64"])
def test_a_named_compiler_that_is_not_there_is_said(named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", named)
    assert compiler() is None
    assert "the compiler no-such-g++ (variable CXX) is missing; install it" in refusal(lambda: compiled(LIBRARY))


@needs_compiler()
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_eight_processes_compile_once(
    cache: Path, sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted, real = tmp_path / "g++", compiler()
    counted.write_text(f'#!/bin/sh\necho >> {tmp_path}/calls\nexec {real} "$@"\n')
    counted.chmod(0o755)
    monkeypatch.setenv("CXX", str(counted))
    made, context = library(sources, "eight"), get_context("fork")
    together = context.Barrier(8)

    def child() -> None:
        together.wait(60)
        load(made)
        assert is_loaded(made)

    children = [context.Process(target=child) for _ in range(8)]
    for process in children:
        process.start()
    for process in children:
        process.join(300)
    assert [process.exitcode for process in children] == [0] * 8
    assert len((tmp_path / "calls").read_text().splitlines()) == 1
    assert names(cache) == [".eight.lock", compiled(made).name]


@needs_compiler()
def test_libraries_do_not_need_each_other(cache: Path, sources: Path) -> None:
    first, second = library(sources, "first"), library(sources, "second")
    (sources / "first.cpp").write_text("#error")
    refusal(lambda: load(first))
    load(second)
    assert is_loaded(second)
    assert not is_loaded(first)


@needs_compiler()
def test_a_full_disk_leaves_no_half_library(cache: Path, sources: Path) -> None:
    made = library(sources, "full")
    with full_disk(1000):
        assert "cannot be compiled" in refusal(lambda: compiled(made))
    assert names(cache) == [".full.lock"]
    assert compiled(made).exists()


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
    assert f"although {compiler()} has just compiled them" in text
    assert "variable CXX" in text


def test_the_name_changes_with_all_that_it_depends_on(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = library(sources, "keyed")
    (sources / "part.h").write_text("")
    changes: list[Callable[[], object]] = [
        lambda: (sources / "keyed.cpp").write_text("//"),
        lambda: (sources / "part.h").write_text("//"),
        lambda: monkeypatch.setenv("CXX", "another-g++"),
        lambda: monkeypatch.setattr(torch, "__version__", "99.0"),
        lambda: monkeypatch.setattr(platform, "machine", lambda: "riscv64"),
        lambda: monkeypatch.setattr(build, "FLAGS", ()),
    ]
    seen = {build._file_name(made), build._file_name(made)}
    for number, change in enumerate(changes, start=1):
        assert len(seen) == number
        change()
        seen.add(build._file_name(made))
    (sources / "other.cpp").write_text("of another library")
    assert build._file_name(made) in seen
    assert len(seen) == len(changes) + 1


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
    error = RuntimeError("Could not determine home directory.")
    monkeypatch.setattr(Path, "home", lambda: raising(error))
    assert cache_folder().parent == tmp_path
