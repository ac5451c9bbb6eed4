"""The distribution: which names an installation gets, and that a wheel is the same whichever way it is built."""

import re
import tarfile
import zipfile
from pathlib import Path

from support.bare import built
from support.places import ROOT


def contents(wheel: Path) -> dict[str, bytes]:
    """Each file of a wheel; of its own record only the name, because that has the others' checksums."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/RECORD")}


def test_a_wheel_holds_strobe_and_hydras_plugin(tmp_path: Path) -> None:
    files = contents(built(ROOT, tmp_path / "wheel", "wheel"))
    tops = {name.partition("/")[0] for name in files}
    [about] = tops - {"strobe", "hydra_plugins"}
    assert re.fullmatch(r"lightning_strobe-[\d.]+\.dist-info", about)
    assert f"{about}/licenses/LICENSE" in files
    for path in (path for folder in ("src", "callbacks", "conf") for path in (ROOT / folder).rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            name = path.relative_to(ROOT).as_posix().removeprefix("src/")
            name = f"strobe/{name}" if name.startswith(("callbacks/", "conf/")) else name
            assert files.get(name) == path.read_bytes(), name

    with tarfile.open(built(ROOT, tmp_path / "source", "sdist")) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    [tree] = (tmp_path / "unpacked").iterdir()
    assert contents(built(tree, tmp_path / "again", "wheel")) == files
