"""Suite ``loading``: its cells, wrong loaders, the same pixels by all, its input, and what is concluded."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from strobe.app.data.base import ImageData
from strobe.bench.harness.declare import Input, Request, Suite, Trial
from strobe.bench.suites import loading
from strobe.errors import ConfigError, StrobeError
from support.composing import bench_config
from support.photo_files import photograph
from support.refusals import refusal
from support.suite_records import record_of

BATCH = 4


pytestmark = pytest.mark.usefixtures("own_hydra")


@pytest.fixture(autouse=True)
def no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STROBE_DATA", raising=False)


def declared(*overrides: str) -> Suite:
    return loading.declare(bench_config("suite=loading", *overrides))


def found(data: str, scratch: Path, *overrides: str) -> Input:
    cfg = bench_config("suite=loading", f"data={data}", *overrides)
    own = tuple(override for override in overrides if not override.startswith("suite."))
    return loading._find(Request(cfg, data, own), scratch)


def photos(folder: Path, count: int) -> Path:
    folder.mkdir(parents=True)
    for number in range(count):
        photograph(50, 60 + number, number).save(folder / f"{number:02}.jpg", quality=95, subsampling=0)
    return folder


def test_the_modes_have_their_rows() -> None:
    quick = declared("quick=true")
    assert {(cell.row, cell.threads, cell.cache) for cell in quick.cells} == {
        ("1", 1, "warm"),
        ("32", 1, "warm"),
        ("32", 1, "cold"),
    }
    full = declared()
    assert {(cell.row, cell.threads) for cell in full.cells if cell.cache == "warm"} == {
        (size, threads) for size in ("1", "32", "64", "1024") for threads in (1, 4)
    }
    assert {cell.row for cell in full.cells if cell.cache == "cold"} == {"32"}
    columns = [loader.replace("loader.", "") for loader in loading.LOADERS["tiles"]]
    assert len(full.cells) == 9 * len(columns)
    names = {cell.name for cell in full.cells}
    for cell in full.cells:
        assert cell.column in columns
        assert (cell.against is None) == (cell.column == columns[0])
        assert cell.against is None or (cell.against in names and cell.row in cell.against)
    assert {cell.cache for cell in declared("data=cifar10").cells} == {None}
    assert "native dct_scaling=false" in {cell.column for cell in declared("data=image_folder").cells}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("suite.loaders=[]", "suite.loaders=[] must name one or more, each once; such as"),
        ("suite.loaders=[native,native]", "suite.loaders=[native,native] must name one or more, each once"),
        ("suite.loaders=[pil]", "pil is no loader of this data; loaders that fit: "),
        ('suite.loaders=["native threads=2"]', "'native threads=2' may set keys of its loader only; give native"),
    ],
)
def test_wrong_loaders_are_refused(given: str, said: str) -> None:
    assert said in refusal(lambda: declared(given), ConfigError)


@pytest.mark.parametrize(
    ("loader", "said"),
    [("native loader.thread=2", "loader.thread"), ("native loader.threads=0", "loader.threads=0 is out of range")],
)
def test_overrides_that_cannot_be_are_refused_before_measuring(
    sample_root: Path, tmp_path: Path, loader: str, said: str
) -> None:
    where = f"data.root={sample_root}"
    text = refusal(lambda: found("sample", tmp_path, where, f'suite.loaders=["{loader}"]'), ConfigError)
    assert text.startswith(f"suite.loaders: '{loader}' cannot be measured: ")
    assert said in text


def test_all_loaders_make_the_same_pixels(sample_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = ["skimage loader.scale=numpy", "tifffile", "packed"]
    listed = ",".join(f'"{loader}"' for loader in chosen)
    where = f"data.root={sample_root}"
    given = found("sample", tmp_path, where, f"suite.loaders=[{listed}]")
    assert list((tmp_path / "packs").iterdir())  # before anything is measured
    made: list[Tensor] = []
    normalise = ImageData.normalise

    def kept(data: ImageData, pixels: Tensor, *more: Any) -> Tensor:
        result = normalise(data, pixels, *more)
        made.append(result.clone())
        return result

    monkeypatch.setattr(ImageData, "normalise", kept)
    batches: dict[str, list[Tensor]] = {}
    trial = Trial(tmp_path, 0, (*given.overrides, where), given)
    for loader in chosen:
        with loading.load(trial, loader=loader, size=BATCH, batches=2, cold=False) as work:
            assert work.repeat() == 2 * BATCH
            assert work.files
        batches[loader], made[:] = list(made), []
    first = batches[chosen[0]]
    assert [(each.shape[0], each.dtype) for each in first] == [(BATCH, torch.float32)] * 2
    assert abs(float(torch.cat(first).mean())) < 3 < 100 * float(torch.cat(first).std())
    for loader in chosen[1:]:
        for one, other in zip(first, batches[loader], strict=True):
            torch.testing.assert_close(other, one, atol=1e-4, rtol=1e-4)


def test_a_cold_pack_is_not_read_by_its_warm_up(
    sample_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = f"data.root={sample_root}"
    given = found("sample", tmp_path, where, "suite.loaders=[packed]")
    monkeypatch.setattr("strobe.app.loaders.mapped.MappedPlanes.gather", lambda *_: pytest.fail("a page was touched"))
    with loading.load(
        Trial(tmp_path, 0, (*given.overrides, where), given), loader="packed", size=BATCH, batches=1, cold=True
    ) as work:
        assert work.warm_up is not None
        work.warm_up()
        assert work.once


def test_the_photos_of_strobe_data_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photos(tmp_path / "real" / "photos" / "any", 20)
    monkeypatch.setenv("STROBE_DATA", str(tmp_path / "real"))
    given = found("image_folder", tmp_path / "one", "suite.loaders=[pil]", "data.batch_size=4")
    assert given.facts["form"] == "photos"
    assert 10 < given.facts["images"] < 20  # of the training split
    assert given.told == f"20 photos: {given.facts['images']} images for training"
    for path in (tmp_path / "real" / "photos" / "any").glob("*.jpg"):
        if path.stem > "01":
            path.unlink()
    refusal(lambda: found("image_folder", tmp_path / "two", "suite.loaders=[pil]"), StrobeError)


def test_what_is_concluded_has_the_right_direction() -> None:
    suite = declared("suite.loaders=[skimage,native]", "suite.batch_sizes=[32]", "suite.threads=[1,4]")
    rates: dict[tuple[str, int, str], float] = {
        ("skimage", 1, "warm"): 100.0,
        ("native", 1, "warm"): 800.0,
        ("skimage", 4, "warm"): 100.0,
        ("native", 4, "warm"): 2400.0,
        ("skimage", 1, "cold"): 50.0,
        ("native", 1, "cold"): 80.0,
    }
    names = {(cell.column, cell.threads, cell.cache): cell.name for cell in suite.cells}
    record = record_of(suite, {names[key]: rate for key, rate in rates.items()})  # type: ignore[index]
    faster, cold, threads = loading.conclude(record)
    assert "Times as fast as skimage at batch 32, one thread: native " in faster
    told = {
        sentence: [part.split()[1] for part in sentence.partition(": ")[2].split(", ")] for sentence in (cold, threads)
    }
    assert faster.partition("native ")[2].startswith(("7.", "8."))
    assert cold.startswith("Cold files take this many times as long: ")
    assert [round(float(value)) for value in told[cold]] == [2, 10]
    assert threads.startswith("4 threads instead of 1")
    assert [round(float(value)) for value in told[threads]] == [1, 3]
