"""How much of the training files the page cache held when training began."""

import os
from pathlib import Path

import pytest

from strobe.measure import pagecache
from support import cifar10_files
from support.composing import composed_data
from support.runs import Ended


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    paths = [tmp_path / f"{number}.bin" for number in range(10)]
    for path in paths:
        path.write_bytes(os.urandom(40_000))
        pagecache.evict(str(path))
    if pagecache.resident([str(paths[0])]) != 0:
        pytest.skip("intended: the file system of the temporary folder keeps its files in memory")
    return [str(path) for path in paths]


def test_the_share_of_small_files_is_exact(files: list[str]) -> None:
    assert pagecache.resident(files) == 0
    pagecache.bring(files[:5], "warm")
    assert pagecache.resident(files) == pytest.approx(0.5)
    assert pagecache.resident(files, seconds=0) in (0, 1)  # there was time for one file


def test_the_share_of_a_long_file_is_estimated_from_windows(
    files: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, part = tmp_path / "pack", 1 << 20
    path.write_bytes(bytes(64 * part))
    pagecache.evict(str(path))
    with path.open("rb", buffering=0) as file:
        for _ in range(32):
            file.read(part)
    estimate = pagecache.resident([str(path)])
    monkeypatch.setattr(pagecache, "WINDOWS", 1 << 20)  # the whole file
    assert estimate == pytest.approx(pagecache.resident([str(path)]), abs=0.1)


def test_what_cannot_be_known_is_not_told(files: list[str], tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert pagecache.resident([]) is None
    assert pagecache.resident([str(tmp_path / "empty")]) is None
    assert pagecache.resident([*files, str(tmp_path / "gone")]) is None


def test_a_run_records_it_of_its_tiles_or_their_pack(finished_run: Ended, sample_root: Path, tmp_path: Path) -> None:
    assert 0 <= finished_run.summary["environment"]["page_cache"] <= 1
    given = f"data.root={sample_root}", "data.tiles_per_class=10", "loader=packed", f"loader.directory={tmp_path}"
    data = composed_data(*given)
    data.setup()
    (pack,) = data.training_files(200)
    assert tmp_path in Path(pack).parents


def test_of_images_in_memory_it_is_not_told(tmp_path: Path) -> None:
    root = cifar10_files.generated(tmp_path / "cifar")
    data = composed_data("data=cifar10", f"data.root={root}", "data.verify=false")
    data.setup()
    assert data.training_files(200) == []
