"""How operators are compiled, and what a user is told when they cannot be."""

from collections.abc import Callable
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import pytest

from strobe.app.native import build
from strobe.app.native.build import Library, compiled, install, load, missing
from strobe.app.native.tiles import LIBRARY
from support.building import is_loaded, library, needs_compiler
from support.files import names
from support.interruptions import full_disk
from support.refusals import refusal
from support.runs import Ended


@pytest.mark.usefixtures("cache", "no_compiler")
def test_without_a_compiler_the_loader_says_what_to_install() -> None:
    text = refusal(lambda: compiled(LIBRARY))
    assert text == (
        f"The operators for {LIBRARY.name} cannot be compiled: a C++ compiler (g++, c++ or clang++) is missing; "
        "install it (sudo apt-get install g++), or choose another loader than native"
    )


@pytest.mark.usefixtures("cache", "no_compiler")
def test_without_a_compiler_training_ends_with_that_sentence_and_other_loaders_train(
    train: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "_loaded", set())  # as in a new process
    ended = train("loader=native", name="native")
    assert ended.code == 1
    (line,) = [line for line in ended.output.splitlines() if "cannot be compiled" in line]
    assert line.endswith("install it (sudo apt-get install g++), or choose another loader than native")
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
    assert build.compiler() == str(tmp_path / expected)


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("named", ["no-such-g++", "ccache no-such-g++ -m64"])
def test_a_named_compiler_that_is_not_there_is_said(named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", named)
    assert build.compiler() is None
    assert "the compiler no-such-g++ (variable CXX) is missing; install it" in refusal(lambda: compiled(LIBRARY))


@needs_compiler()
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_eight_processes_compile_once(
    cache: Path, sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted, real = tmp_path / "g++", build.compiler()
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
        process.join(60)
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
