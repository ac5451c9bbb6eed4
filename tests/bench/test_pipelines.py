"""The benchmark of input pipelines: what it compares does the same work, and its ratios are those of its rates."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hydra.core.hydra_config import HydraConfig

from strobe.bench import pipelines
from strobe.bench.contest import Entrant, contest, table
from strobe.errors import DataError
from support.files import names
from support.photo_files import photograph


def test_all_take_turns_and_one_that_cannot_is_a_row() -> None:
    turns: list[str] = []

    def entrant(name: str, images: int) -> Entrant:
        return Entrant(name, lambda: lambda: (turns.append(name), images)[1])

    def broken() -> None:
        raise DataError("no library; install it")

    results = contest([entrant("a", 1), Entrant("b", broken), entrant("c", 3)], rounds=4, seconds=0)  # type: ignore[arg-type]
    assert [len(result.rates) for result in results] == [4, 0, 4]
    assert results[1].reason == "no library; install it"
    per_turn = 2  # one piece that is not timed, and one that is
    whole_rounds = [turns[start : start + 2 * per_turn] for start in range(0, len(turns), 2 * per_turn)]
    assert [sorted(each) for each in whole_rounds] == [["a", "a", "c", "c"]] * 5  # a first round is a warm-up
    assert len({tuple(each) for each in whole_rounds}) == 2  # in either order
    results[0].rates, results[2].rates = [10.0, 20.0, 40.0], [30.0, 40.0, 160.0]
    cells = {str(column.header): list(column.cells) for column in table("title", results, ["a", "b"]).columns}
    assert list(cells) == ["", "images/s", "95% interval", "/ a"]
    assert cells["/ a"] == ["1.00 (1.00 to 1.00)", "", "3.00 (2.00 to 4.00)"]
    assert "not measured: no library; install it" in cells["images/s"]


@pytest.fixture
def files(tmp_path: Path, tiles: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for STROBE_DATA: tiles and a few photos."""
    (tmp_path / "EuroSAT_MS").symlink_to(tiles)
    (tmp_path / "photos").mkdir()
    for number in range(20):
        photograph(260, 270 + number).save(tmp_path / "photos" / f"{number:02}.jpg")
    monkeypatch.setenv("STROBE_DATA", str(tmp_path))
    before = HydraConfig.instance().cfg
    yield tmp_path
    HydraConfig.instance().cfg = before


def test_it_prints_a_row_for_every_loader(
    files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here = names(Path())
    parts = ["tiles", "framings"]
    monkeypatch.setattr("strobe.bench.loading_parts.TILE_BATCHES", (8,))
    monkeypatch.setattr("strobe.bench.photo_parts.PHOTO_BATCH", 2)
    monkeypatch.setattr(sys, "argv", ["pipelines", *parts, "rounds=1", "seconds=0.01"])
    pipelines.main()
    text = capsys.readouterr().out
    for row in ("rasterio", "tifffile", "native", "packed", "pil", "torchvision"):
        assert f"loader={row}" in text
    assert "open, read, close" in text
    assert "tiles, batches of 8, one thread" in text
    assert "random_resized_crop, 224" in text
    assert names(Path()) == here  # packs lie elsewhere, and are gone


def test_a_mistyped_part_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["pipelines", "tiles", "steps"])
    with pytest.raises(SystemExit, match=r"steps is neither a part nor KEY=VALUE; parts: tiles, framings, "):
        pipelines.main()


def test_what_is_missing_is_said(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (files / "photos").rename(files / "elsewhere")
    monkeypatch.setattr(sys, "argv", ["pipelines", "framings"])
    with pytest.raises(
        SystemExit, match=r"framings: .*photos holds no JPEG; name the folder above it in .*STROBE_DATA"
    ):
        pipelines.main()
