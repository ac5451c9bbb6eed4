"""How operators are compiled, found again and loaded, and what a user is told when they cannot be."""

import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import Ended
from helpers import full_disk, names, refusal

from strobe.native import build
from strobe.native.build import Library, cache_folder, compiled, install, load, missing
from strobe.native.tiles import LIBRARY

OPERATOR = """
#include <torch/csrc/stable/library.h>
int64_t twice(int64_t number) { return 2 * number; }
STABLE_TORCH_LIBRARY_FRAGMENT(strobe_NAME, m) { m.def("twice(int number) -> int"); }
STABLE_TORCH_LIBRARY_IMPL(strobe_NAME, CompositeExplicitAutograd, m) { m.impl("twice", TORCH_BOX(&twice)); }
"""

EIGHT = """
import os
import torch
from strobe.native.build import load
from strobe.native.tiles import LIBRARY
begin, go = os.pipe()
children = []
for _ in range(8):
    if (child := os.fork()) == 0:
        os.close(go)
        os.read(begin, 1)  # returns when the parent has closed its end
        load(LIBRARY)
        os._exit(0 if hasattr(torch.ops.strobe, "read_tiles") else 1)
    children.append(child)
os.close(go)
print([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children])
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for compiled operators."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "strobe" / "native"


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of sources to change."""
    folder = tmp_path / "sources"
    folder.mkdir()
    monkeypatch.setattr(build, "SOURCES", folder)
    return folder


def library(sources: Path, name: str) -> Library:
    (sources / f"{name}.cpp").write_text(OPERATOR.replace("NAME", name))
    return Library(name, (f"{name}.cpp",))


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)


@pytest.mark.usefixtures("cache", "no_compiler")
def test_without_a_compiler_the_loader_says_what_to_install() -> None:
    text = refusal(lambda: compiled(LIBRARY))
    assert text == (
        "The operators of loader=native cannot be compiled: a C++ compiler (g++, c++ or clang++) is missing; "
        "install it (sudo apt-get install g++), or choose another loader"
    )


@pytest.mark.usefixtures("cache", "no_compiler")
def test_without_a_compiler_training_ends_with_that_sentence_and_other_loaders_train(
    train: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "_loaded", set())  # as in a new process
    ended = train("loader=native", name="native")
    assert ended.code == 1
    (line,) = [line for line in ended.output.splitlines() if "cannot be compiled" in line]
    assert line.endswith("install it (sudo apt-get install g++), or choose another loader")
    assert "Traceback" not in ended.output
    assert train("loader=tifffile", name="tifffile").code == 0


@pytest.mark.usefixtures("cache")
def test_a_missing_header_is_named() -> None:
    lacking = replace(LIBRARY, header="no_such_header.h", packages=("g++", "libnothing-dev"))
    assert missing(lacking) == "the header no_such_header.h"
    text = refusal(lambda: compiled(lacking))
    assert "the header no_such_header.h is missing; install it (sudo apt-get install g++ libnothing-dev)" in text
    assert install(lacking) == "sudo apt-get install g++ libnothing-dev"
    assert missing(replace(LIBRARY, header="vector")) is None


def test_a_compiler_that_fails_is_quoted(cache: Path, sources: Path) -> None:
    (sources / "bad.cpp").write_text('#error "too old"\n')
    text = refusal(lambda: compiled(Library("bad", ("bad.cpp",))))
    assert "too old" in text
    assert "CXX" in text
    assert names(cache) == [".bad.lock"]


@pytest.mark.parametrize("named", ["clang++", "ccache c++ -m64", "  "])
def test_the_variable_names_the_compiler(named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("g++", "c++", "clang++", "ccache"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CXX", named)
    expected = {"clang++": "clang++", "ccache c++ -m64": "c++"}.get(named, "g++")
    assert build.compiler() == str(tmp_path / expected)


def test_eight_processes_compile_once(cache: Path, tmp_path: Path) -> None:
    counted, real = tmp_path / "g++", build.compiler()
    counted.write_text(f'#!/bin/sh\necho >> {tmp_path}/calls\nexec {real} "$@"\n')
    counted.chmod(0o755)
    environment = {**os.environ, "CXX": str(counted)}
    printed = subprocess.check_output([sys.executable, "-c", EIGHT], env=environment, text=True, timeout=120)
    assert printed == f"{[0] * 8}\n"
    assert len((tmp_path / "calls").read_text().splitlines()) == 1
    assert [name for name in names(cache) if not name.startswith(".")] == [compiled(LIBRARY).name]
    assert names(cache)[0] == ".tiles.lock"


def test_what_was_compiled_is_found_again(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = compiled(LIBRARY)
    monkeypatch.setenv("PATH", "")  # no compiler any more
    assert compiled(LIBRARY) == first
    start = time.perf_counter()
    load(LIBRARY)
    print(f"loaded in {(time.perf_counter() - start) * 1e3:.1f} ms")


def test_a_damaged_file_is_removed_and_made_anew(cache: Path, sources: Path) -> None:
    made = library(sources, "damaged")
    path = compiled(made)
    path.write_bytes(b"\x7fELF and nothing more")
    text = refusal(lambda: load(made))
    assert str(path) in text
    assert "the file was removed, start again" in text
    assert not path.exists()
    load(made)
    assert torch.ops.strobe_damaged.twice(21) == 42


def test_the_name_changes_with_all_that_it_depends_on(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = library(sources, "keyed")
    (sources / "part.h").write_text("")
    seen = {build._key(made)}

    def changed() -> bool:
        before = len(seen)
        seen.add(build._key(made))
        return len(seen) == before + 1

    assert not changed()
    (sources / "keyed.cpp").write_text("//")
    assert changed()
    (sources / "part.h").write_text("//")
    assert changed()
    monkeypatch.setattr(torch, "__version__", "99.0")
    assert changed()
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert changed()
    monkeypatch.setattr(build, "FLAGS", ())
    assert changed()
    (sources / "other.cpp").write_text("of another library")
    assert not changed()


def test_libraries_do_not_need_each_other(cache: Path, sources: Path) -> None:
    first, second = library(sources, "first"), library(sources, "second")
    load(second)
    assert torch.ops.strobe_second.twice(4) == 8
    (sources / "first.cpp").write_text("#error")
    refusal(lambda: load(first))
    assert torch.ops.strobe_second.twice(5) == 10


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


def test_a_full_disk_leaves_no_half_library(cache: Path, sources: Path) -> None:
    made = library(sources, "full")
    with full_disk(1000):
        assert "cannot be compiled" in refusal(lambda: compiled(made))
    assert names(cache) == [".full.lock"]
    assert compiled(made).exists()
