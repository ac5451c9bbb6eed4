"""The benchmark of input pipelines: what it compares does the same work, and its ratios are those of its rates."""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import names
from hydra.core.hydra_config import HydraConfig
from photo_files import photograph
from PIL import Image

from strobe.bench import pipelines
from strobe.bench.contest import Entrant, contest, table
from strobe.bench.crop_pipeline import COLOURS, OFFSETS, Step, prepare
from strobe.bench.photo_parts import CROP, DECODERS
from strobe.errors import DataError


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


@pytest.mark.parametrize("name", DECODERS)
def test_every_decoder_gives_the_same_crop(name: str, tmp_path: Path) -> None:
    path = tmp_path / "photo.jpg"
    photograph(300, 340).save(path, quality=90, subsampling=2)
    expected = torch.from_numpy(np.array(Image.open(path))).permute(2, 0, 1)[:, 14 : 14 + CROP, 30 : 30 + CROP]
    try:
        decode = DECODERS[name]()
    except DataError as error:
        pytest.skip(str(error))
    crop = decode(path.read_bytes(), 14, 30)
    if name == "spdl.io":  # FFmpeg's pixels differ a little
        assert (crop.int() - expected.int()).abs().float().mean() < 6
    else:
        assert torch.equal(crop, expected)


def test_the_published_pipeline_masks_and_changes_colours() -> None:
    crop = torch.full((3, 64, 64), 200, dtype=torch.uint8)
    made = prepare(crop, np.random.default_rng(0))
    grey = (COLOURS.sum(1) * 200 + OFFSETS.flatten()) / 255
    masked = (made - OFFSETS / 255).abs().amax(0) < 1e-6
    free = (made - grey.view(3, 1, 1)).abs().amax(0) < 1e-6
    assert bool((masked ^ free).all())
    assert 0.7 < masked.float().mean() < 0.82  # 1 - 0.75 ** 5: itself or one of four neighbours
    assert crop.unique().tolist() == [200]
    Step()(made.expand(2, -1, -1, -1))


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
    parts = ["tiles", "crops", "framings"]
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


def test_what_is_missing_is_said(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (files / "photos").rename(files / "elsewhere")
    monkeypatch.setattr(sys, "argv", ["pipelines", "crops"])
    with pytest.raises(SystemExit, match=r"crops: .*photos holds no JPEG; name the folder above it in .*STROBE_DATA"):
        pipelines.main()
