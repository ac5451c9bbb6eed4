"""This tree's entry points, as pip would write them, whatever is installed here."""

import os
import tomllib
from pathlib import Path

import pytest

from support.places import ROOT


def groups() -> dict[str, dict[str, str]]:
    """Names and what they lead to, by group."""
    found: dict[str, dict[str, str]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    return found


def write(site: Path, name: str, points: dict[str, dict[str, str]]) -> None:
    """Those of a distribution of this name."""
    info = site / f"{name}-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\n")
    lines = [line for group, names in points.items() for line in (f"[{group}]", *map(" = ".join, names.items()))]
    (info / "entry_points.txt").write_text("\n".join(lines))


def install(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process, and those that it starts, find them."""
    write(site, "lightning_strobe", groups())
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), str(ROOT / "src")]))
    monkeypatch.syspath_prepend(site)
