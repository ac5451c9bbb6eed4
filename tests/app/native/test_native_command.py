"""``strobe native``: says what is ready, and installs what is missing where it may."""

import os
import re
from pathlib import Path

import pytest

from strobe.app.native import command
from strobe.app.native.build import compiled, missing

MISSING = {"g++": ["loader=native for tiles", "suite=convolution"], "ffmpeg": ["loader=spdl"]}


@pytest.fixture
def apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An ``apt-get`` that writes down how it was called, and fails unless ``tmp_path/works`` is there."""
    script = tmp_path / "apt-get"
    script.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\n'
        f'[ -e {tmp_path}/works ] || {{ echo "E: no network" >&2; exit 100; }}\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return tmp_path


def calls(apt: Path) -> list[str]:
    known = ("install", "update")
    return [next(word for word in line.split() if word in known) for line in (apt / "calls").read_text().splitlines()]


def test_each_library_has_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    ready = [not missing(library) for library in command.LIBRARIES]
    assert command.main([]) == (0 if all(ready) else 1)
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["tiles", "photos", "convolution", "ffmpeg"]
    for library, there, line in zip(command.LIBRARIES, ready, lines, strict=False):
        assert (str(compiled(library)) if there else "sudo apt-get install") in line


def test_what_is_there_is_not_installed(apt: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "has_ffmpeg", lambda: True)
    monkeypatch.setattr(command, "missing", lambda library: None)
    assert command.needed() == {}
    assert command.main(["--install"]) == 0
    assert not (apt / "calls").exists()


def test_what_is_missing_is_installed_by_root(apt: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (apt / "works").touch()
    assert command.install_packages(MISSING) == "install: g++ ffmpeg: done"
    assert calls(apt) == ["install"]
    assert (apt / "calls").read_text().rstrip().endswith("--yes --no-install-recommends g++ ffmpeg")
    said = capsys.readouterr().out
    assert re.search(r"g\+\+ +for loader=native for tiles, suite=convolution\n +ffmpeg +for loader=spdl\n", said)
    assert "running apt-get install g++ ffmpeg as root (to leave this out: make setup SYSTEM=no)" in said


def test_each_package_is_named_with_its_purpose(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without libjpeg's header all but the photo operators works."""
    monkeypatch.setattr(command, "has_ffmpeg", lambda: True)
    monkeypatch.setattr(command, "missing", lambda library: library.header and f"the header {library.header}")
    monkeypatch.setattr(command, "compiler", lambda: "/usr/bin/g++")
    assert command.needed() == {"libjpeg-dev": ["loader=native for photos"]}
    monkeypatch.setattr(command, "browser", lambda: None)
    assert command.needed(tests=True).keys() == {"libjpeg-dev", "chromium"}


def test_a_failed_installation_fails_no_setup(
    apt: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "has_ffmpeg", lambda: False)
    assert "ffmpeg" in command.needed()
    assert command.main(["--install"]) == 0
    assert calls(apt) == ["install", "update", "install"]
    output = capsys.readouterr().out
    assert "could not be installed (E: no network); type: sudo apt-get install" in output
    assert "ffmpeg: its libraries are missing; only loader=spdl needs them" in output


def test_without_root_it_says_what_to_type(apt: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    answer = command.install_packages(MISSING)
    assert answer == "install: only root can install them; type: sudo apt-get install g++ ffmpeg"
    assert not (apt / "calls").exists()


def test_without_apt_it_names_the_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "no apt-get; install what Debian calls g++ ffmpeg" in command.install_packages(MISSING)
