"""Suite ``loading``: its cells, wrong loaders, the same pixels by all, its input, and what is concluded."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from strobe.app.data.base import ImageData
from strobe.bench.harness.declare import Input, Request, Trial
from strobe.bench.suites.loading import cells
from strobe.bench.suites.loading import suite as loading
from strobe.errors import StrobeError
from support.composing import bench_config
from support.photo_files import photograph
from support.refusals import refusal
from support.suite_parts import declared
from support.suite_records import record_of

BATCH = 4
FEW = "data.tiles_per_class=10"


@pytest.fixture(autouse=True)
def no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STROBE_DATA", raising=False)


def found(data: str, scratch: Path, *overrides: str) -> Input:
    cfg = bench_config("suite=loading", f"data={data}", *overrides)
    own = tuple(override for override in overrides if not override.startswith("suite."))
    return loading._find(Request(cfg, data, own), scratch)


def trial_of(root: Path, folder: Path, *overrides: str) -> Trial:
    """On ten tiles a class."""
    where = (f"data.root={root}", FEW)
    given = found("sample", folder, *where, *overrides)
    return Trial(folder, 0, (*given.overrides, *where), given, folder)


def photos(folder: Path, count: int, height: int = 50) -> Path:
    folder.mkdir(parents=True)
    for number in range(count):
        photograph(height, height + 10 + number, number).save(folder / f"{number:02}.jpg", quality=95, subsampling=0)
    return folder


def test_the_modes_have_their_rows() -> None:
    quick = [cell for cell in declared("loading", "quick=true").cells if cell.table == "load"]
    assert {(cell.row, cell.cache) for cell in quick} == {("1", "warm"), ("32", "warm"), ("32", "cold")}
    full = [cell for cell in declared("loading").cells if cell.table == "load"]
    assert {(cell.row, cell.threads) for cell in full if cell.cache == "warm"} == {
        (size, threads) for size in ("1", "32", "64", "1024") for threads in (1, 4)
    }
    assert {cell.row for cell in full if cell.cache == "cold"} == {"32"}
    columns = [loader.replace("loader.", "") for loader in loading.LOADERS["tiles"]]
    assert len(full) == 9 * len(columns)
    for cell in full:
        assert cell.column in columns
        assert (cell.against is None) == (cell.column == columns[0])
        assert cell.against is None or cell.row in cell.against
    assert {cell.cache for cell in declared("loading", "data=cifar10").cells} == {None}


def test_tiles_are_loaded_beside_floors_and_photos_by_crop_policy() -> None:
    floors = [cell for cell in declared("loading", "suite.tables=[floors]").cells if cell.row == "256"]
    assert [cell.column for cell in floors] == [
        *("skimage", "native", "packed", "rasterio", "tifffile"),
        *(loading.PLAIN, loading.FLOOR, loading.COPY),
    ]
    assert {cell.against for cell in floors[1:]} == {floors[0].name}
    crops = declared("loading", "suite.tables=[crop_policies]", "data=image_folder").cells
    columns = {policy: [cell.column for cell in crops if cell.row == policy] for policy in loading.CROP_POLICIES}
    assert columns["random_crop"] == ["pil", "native", "spdl", "torchvision"]
    assert columns["random_resized_crop"] == [*columns["random_crop"], "native dct_scaling=false"]
    assert set(columns["resize"]) == {*columns["random_resized_crop"], "packed"}


def test_all_loaders_make_the_same_pixels(sample_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = ["skimage loader.scale=numpy", "tifffile", "packed"]
    listed = ",".join(f'"{loader}"' for loader in chosen)
    trial = trial_of(sample_root, tmp_path, f"suite.loaders=[{listed}]")
    assert list((tmp_path / "packs").iterdir())  # before anything is measured
    made: list[Tensor] = []
    normalise = ImageData.normalise

    def kept(data: ImageData, pixels: Tensor, *more: Any) -> Tensor:
        result = normalise(data, pixels, *more)
        made.append(result.clone())
        return result

    monkeypatch.setattr(ImageData, "normalise", kept)
    batches: dict[str, list[Tensor]] = {}
    for loader in chosen:
        with cells.load(trial, loader=loader, size=BATCH, batches=2, cold=False) as work:
            assert work.repeat() == 2 * BATCH
            assert work.files
        batches[loader], made[:] = list(made), []
    first = batches[chosen[0]]
    assert [(each.shape[0], each.dtype) for each in first] == [(BATCH, torch.float32)] * 2
    assert abs(float(torch.cat(first).mean())) < 3 < 100 * float(torch.cat(first).std())
    for loader in chosen[1:]:
        for one, other in zip(first, batches[loader], strict=True):
            torch.testing.assert_close(other, one, atol=1e-4, rtol=1e-4)


def test_floors_read_files_whole_or_copy_the_packs_bytes(sample_root: Path, tmp_path: Path) -> None:
    trial = trial_of(sample_root, tmp_path, "suite.tables=[floors]")
    for kind in (loading.PLAIN, loading.FLOOR, loading.COPY):
        with cells.floor(trial, kind=kind, size=32) as work:
            assert [work.repeat() for _ in range(4)] == [32] * 4  # more than an epoch of 80
            assert len(work.files) == (0 if kind == loading.COPY else 80)
    with cells.raw(trial, loader="packed", size=32) as work:
        assert work.repeat() == 32
        assert [Path(path).parents[1] for path in work.files] == [tmp_path / "packs"]


@pytest.mark.parametrize(("policy", "side"), loading.CROP_POLICIES.items())
def test_squares_of_photos_have_the_policys_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str, side: int
) -> None:
    folder = photos(tmp_path / "photos" / "a", 10, height=260)
    photos(folder.with_name("b"), 10, height=260)
    cell = next(
        cell for cell in declared("loading", "data=image_folder").cells if (cell.row, cell.column) == (policy, "pil")
    )
    made: list[Tensor] = []
    whole = cells.WholeBatches.__getitems__
    monkeypatch.setattr(
        cells.WholeBatches, "__getitems__", lambda *given: (made.append(whole(*given)[0]), whole(*given))[1]
    )
    found = Input("photos", facts={"packs": str(tmp_path / "packs")})
    with cell.make(Trial(tmp_path, 0, ("data=image_folder", f"data.root={folder.parent}"), found, tmp_path)) as work:
        assert work.repeat() == 16  # all there are for training
    assert {(each.shape[1:], each.dtype) for each in made} == {((3, side, side), torch.uint8)}


def test_a_cold_pack_is_not_read_by_its_warm_up(
    sample_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = trial_of(sample_root, tmp_path, "suite.loaders=[packed]")
    monkeypatch.setattr("strobe.app.loaders.packing.MappedImages.gather", lambda *_: pytest.fail("a page was touched"))
    with cells.load(trial, loader="packed", size=BATCH, batches=1, cold=True) as work:
        assert work.warm_up is not None
        work.warm_up()
        assert work.once


def test_the_photos_of_strobe_data_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photos(tmp_path / "real" / "photos" / "any", 20)
    monkeypatch.setenv("STROBE_DATA", str(tmp_path / "real"))
    given = found("image_folder", tmp_path / "one", "suite.loaders=[pil]", "data.batch_size=4")
    assert 10 < given.facts["images"] < 20  # of the training split
    assert given.title == f"20 photos: {given.facts['images']} images for training"
    for path in (tmp_path / "real" / "photos" / "any").glob("*.jpg"):
        if path.stem > "01":
            path.unlink()
    refusal(lambda: found("image_folder", tmp_path / "two", "suite.loaders=[pil]"), StrobeError)


def test_what_is_concluded_has_the_right_direction() -> None:
    suite = declared(
        "loading",
        "suite.loaders=[skimage,native]",
        "suite.batch_sizes=[32]",
        "suite.threads=[1,4]",
        "suite.tables=[load]",
    )
    rates = {("skimage", 1, "warm"): 100.0, ("skimage", 4, "warm"): 100.0, ("skimage", 1, "cold"): 50.0}
    rates |= {("native", 1, "warm"): 800.0, ("native", 4, "warm"): 2400.0, ("native", 1, "cold"): 80.0}
    names = {(cell.column, cell.threads, cell.cache): cell.name for cell in suite.cells}
    record = record_of(suite, {names[key]: rate for key, rate in rates.items()})
    faster, cold, threads = loading.conclude(record)
    assert faster.startswith("Batches of 32 on one thread, the fastest is native: ")
    told = {
        sentence: [part.split()[1] for part in sentence.partition(": ")[2].split(", ")] for sentence in (cold, threads)
    }
    assert faster.partition("native: ")[2].startswith(("7.", "8."))
    assert cold.startswith("Cold files take this many times as long: ")
    assert [round(float(value)) for value in told[cold]] == [2, 10]
    assert threads.startswith("4 threads instead of 1")
    assert [round(float(value)) for value in told[threads]] == [1, 3]


def test_loaders_are_held_against_their_floors() -> None:
    suite = declared("loading", "suite.tables=[floors]")
    rates = {"skimage": 100.0, "native": 1000.0, "packed": 9000.0, loading.FLOOR: 2000.0, loading.COPY: 10_000.0}
    names = {cell.column: cell.name for cell in suite.cells if cell.row == "32"}
    files, pack = loading.conclude(record_of(suite, {names[column]: rate for column, rate in rates.items()}))
    assert files.startswith("Batches of 32: native takes ")
    assert round(float(files.split()[5])) == 2
    assert files.endswith("times as long as opening, reading and closing the files alone.")
    assert round(float(pack.split()[5]), 1) == 1.1
