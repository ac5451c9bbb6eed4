"""``strobe doctor``, as a user starts it."""

import os
import platform
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from strobe import doctor
from strobe.app.native.system import lacks
from support.places import ROOT

NO_TORCH = """
import sys
from strobe.doctor import main
main([])
assert not {"torch", "hydra", "lightning", "numpy"} & sys.modules.keys()
"""


def asked(*command: str, path: str, folder: Path) -> tuple[int, str, str]:
    """Exit code and what it printed, in an environment that names nothing else."""
    environment = {"PATH": path, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, *command], env=environment, cwd=folder, capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout, done.stderr


def test_all_is_named_without_importing_torch(tmp_path: Path) -> None:
    code, said, _ = asked("-c", NO_TORCH, path="/usr/local/bin:/usr/bin:/bin", folder=tmp_path)
    assert code == 0
    lines = [line for line in said.splitlines() if line[:1] in "+-"]
    assert [line[2:16].strip() for line in lines] == [
        *("Python", "torch", "Lightning", "C++ compiler", "libjpeg", "FFmpeg"),
        *("GPU", "Cores", "Memory", "/dev/shm", "Room for runs"),
    ]
    assert platform.python_version() in lines[0]
    assert lines[1].split()[2] == version("torch")
    assert ("photos are decoded by Pillow" in said) == bool(lacks("jpeglib.h"))
    assert re.search(r"free of .* is page cache: read again without the disk", lines[8])
    assert str(tmp_path) in lines[-1]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", [("-m", "strobe.doctor"), ("-c", "from strobe.cli import main; main()", "doctor")])
def test_without_a_compiler_it_says_what_that_costs(tmp_path: Path, command: tuple[str, ...]) -> None:
    code, said, _ = asked(*command, path=str(tmp_path), folder=tmp_path)
    assert code == 0
    told = " ".join(said.split())
    assert "- C++ compiler missing: a C++ compiler (g++, c++ or clang++) no loader=native, tiles are" in told
    assert "-> sudo apt-get install g++ - libjpeg missing" in told
    assert "photos are decoded by Pillow -> sudo apt-get install g++ libjpeg-dev" in told


def test_a_tight_place_is_told(tmp_path: Path) -> None:
    if len(os.sched_getaffinity(0)) == 1:
        pytest.skip("intended: this machine has one core")
    one = f"import os; os.sched_setaffinity(0, {{{min(os.sched_getaffinity(0))}}})\n"
    code, said, _ = asked("-c", one + NO_TORCH, path=str(tmp_path), folder=tmp_path)
    assert code == 0
    assert re.search(r"\n- Cores +1 of \d+, by this process's affinity\n .*one core\n +-> taskset --cpu-list 0-", said)


def test_without_packages_it_says_what_is_needed(tmp_path: Path) -> None:
    code, said, errors = asked("-S", "-m", "strobe.doctor", path=str(tmp_path), folder=tmp_path)
    assert code == 1
    assert errors == "Needed, and missing: torch and Lightning\n"
    told = " ".join(said.split())
    assert "- torch missing nothing can be trained -> pip install torch" in told
    assert "-> pip install lightning" in told


def test_each_lack_is_told_with_what_it_costs_and_a_remedy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(doctor, "has_gpu", lambda: True)
    monkeypatch.setattr(doctor, "_for_gpus", lambda: False)
    monkeypatch.setattr(doctor, "LEAST_SHM", 1 << 60)
    monkeypatch.setattr(doctor, "LEAST_ROOM", 1 << 60)
    doctor.main([])
    told = " ".join(capsys.readouterr().out.split())
    assert "- GPU its driver is loaded it stays idle: this torch was built for CPUs -> pip install" in told
    assert "loader workers hand batches over in it; when it is full, they die ->" in told
    assert "a run may not find room for its record, traces and checkpoints -> strobe clean" in told


@pytest.mark.parametrize(("cores", "told"), [(2, True), (31, True), (32, False)])
def test_a_quota_of_less_than_half_of_the_cores_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], cores: int, told: bool
) -> None:
    monkeypatch.setattr(doctor, "usable_cores", lambda: cores)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    doctor.main([])
    said = " ".join(capsys.readouterr().out.split())
    quota = f"{cores} of 64, by a container's quota"
    costs = f"a quota leaves {cores} of the 64 cores to loading and training -> docker run --cpus=64 ..."
    assert (f"- Cores {quota} {costs}" if told else f"+ Cores {quota} + Memory") in said
