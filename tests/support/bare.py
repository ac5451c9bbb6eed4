"""The wheel, and environments with what it asks for and nothing else."""

import importlib.metadata
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterable
from email import message_from_bytes
from pathlib import Path

import pytest
from packaging.requirements import Requirement


def built(source: Path, folder: Path, target: str) -> Path:
    """The wheel, or the source distribution (``sdist``), of a tree; no network is used."""
    pytest.importorskip("hatchling.build")
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", folder]
    subprocess.run(command, cwd=source, check=True, capture_output=True, timeout=120)
    [made] = folder.iterdir()
    return made


def requirements(wheel: Path) -> list[Requirement]:
    """What a wheel asks for, without its extras."""
    with zipfile.ZipFile(wheel) as archive:
        [name] = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        told = message_from_bytes(archive.read(name)).get_all("Requires-Dist", [])
    return _needed(told, "")


def without_network(folder: Path, wheel: Path, *wanted: str) -> Path:
    """An environment with the wheel, what is wanted beside it, and all that these require, linked from this one.

    Returns its Python.

    Raises:
        PackageNotFoundError: one of them is not installed here.
    """
    venv.create(folder, symlinks=True)
    [site] = folder.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    waiting, seen = [*requirements(wheel), *map(Requirement, wanted)], set()
    while waiting:
        asked = waiting.pop()
        for extra in ("", *asked.extras):
            if (asked.name, extra) not in seen:
                seen.add((asked.name, extra))
                installed = importlib.metadata.distribution(asked.name)
                waiting += _needed(installed.requires or [], extra)
                _link(installed, site)
    return folder / "bin" / "python"


def with_network(folder: Path, wheel: Path, wanted: str, resolution: str, version: str = sys.executable) -> Path:
    """The same of the index's versions, the ``highest`` or ``lowest-direct``; some gigabytes are downloaded.

    ``version`` is the Python: a path, or such as ``3.13``.
    """
    uv, lowest = [sys.executable, "-m", "uv"], resolution != "highest"
    old = ["setuptools==69.*"] * lowest  # whose pkg_resources Lightning 2.2 imports, without asking for it
    given = [*map(str, requirements(wheel)), wanted, *old]
    subprocess.run([*uv, "venv", "--quiet", "--python", version, folder], check=True)
    python = folder / "bin" / "python"
    install = [*uv, "pip", "install", "--quiet", "--python", python, "--only-binary=:all:"]
    subprocess.run([*install, f"--resolution={resolution}", *given], check=True)
    subprocess.run([*install, wheel], check=True)
    return python


def _needed(told: Iterable[str], extra: str) -> list[Requirement]:
    asked = map(Requirement, told)
    return [one for one in asked if one.marker is None or one.marker.evaluate({"extra": extra})]


def _link(distribution: importlib.metadata.Distribution, site: Path) -> None:
    for top in {path.parts[0] for path in distribution.files or []} - {"..", "__pycache__"}:
        if not (site / top).exists():
            (site / top).symlink_to(Path(str(distribution.locate_file(top))))
