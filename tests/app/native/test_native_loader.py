"""``loader=native`` on tiles: workers of each kind, files of other forms, and what a user is told."""

import logging
from pathlib import Path

import numpy as np
import pytest
import tifffile
import torch
from numpy.typing import NDArray

from strobe.app.engines.sampler import EpochSampler, ShardedBatches
from strobe.app.loaders import native
from strobe.app.loaders.base import Batch, BatchData, LoadedData
from strobe.app.loaders.sources import PathTable, TileSource
from support.pipeline_parts import loader

SHAPE = (13, 16, 32)


def source(paths: list[Path], shape: tuple[int, int, int] = SHAPE) -> TileSource:
    everything = torch.arange(len(paths))
    return TileSource(PathTable([str(path) for path in paths]), everything, everything, shape, (3, 12, 1), 4000.0)


def dataset(paths: list[Path], *, shape: tuple[int, int, int] = SHAPE, threads: int | None = None) -> BatchData:
    """By a loader of its own, which has said nothing yet."""
    loaded = native.NativeLoader(scale="device", threads=threads, dct_scaling=True).dataset(source(paths, shape))
    assert isinstance(loaded, BatchData)
    return loaded


def image(seed: int = 0) -> NDArray[np.uint16]:
    """Pixels (H, W, bands), which compress well."""
    return np.random.default_rng(seed).integers(0, 9, (*SHAPE[1:], SHAPE[0]), dtype=np.uint16)


OTHER = {
    "LZW": {"compression": "lzw"},
    "LZW with a predictor": {"compression": "lzw", "predictor": True},
    "deflate": {"compression": "zlib"},
    "zstd": {"compression": "zstd"},
    "tiled": {"tile": (16, 16)},
    "big-endian": {"byteorder": ">"},
    "BigTIFF": {"bigtiff": True},
}


@pytest.mark.parametrize("options", OTHER.values(), ids=OTHER)
def test_other_forms_give_the_same_pixels_and_are_named_once(
    options: dict[str, object], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(3):
        form = {} if number == 0 else options
        tifffile.imwrite(tmp_path / f"{number}.tif", image(number), planarconfig="contig", **form)
    loaded = dataset([tmp_path / f"{number}.tif" for number in range(3)])
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            pixels, labels = loaded.__getitems__([2, 0, 1])
    assert labels.tolist() == [2, 0, 1]
    for place, number in enumerate([2, 0, 1]):
        np.testing.assert_array_equal(pixels[place], np.moveaxis(image(number)[..., [3, 12, 1]], -1, 0))
    (said,) = caplog.messages
    assert said.startswith(str(tmp_path / "2.tif"))
    assert "rio convert" in said


def test_the_remedy_that_is_named_helps(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from rasterio.rio.main import main_group

    tifffile.imwrite(tmp_path / "OLD.tif", image(), planarconfig="contig", compression="lzw", tile=(16, 16))
    dataset([tmp_path / "OLD.tif"])[0]
    command = caplog.messages[0].rpartition("rio ")[2].split()
    names = [str(tmp_path / word) if word.endswith(".tif") else word for word in command]
    with pytest.warns(match="no geotransform"):
        main_group(names, standalone_mode=False)
    caplog.clear()
    pixels, _ = dataset([tmp_path / "NEW.tif"])[0]
    np.testing.assert_array_equal(pixels, np.moveaxis(image()[..., [3, 12, 1]], -1, 0))
    assert not caplog.messages


def epoch(loaded: LoadedData, workers: int, start: str | None) -> list[Batch]:
    """All batches of three, by workers that end with them."""
    order = ShardedBatches(EpochSampler(len(loaded), shuffle=False, seed=0), 3)
    return list(loader("torch", loaded, order, workers, persistent_workers=False, multiprocessing_context=start))


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_workers_name_other_files_once_a_run(tmp_path: Path) -> None:
    """Each file comes to another worker, and in each epoch to new ones."""
    for number in range(4):
        tifffile.imwrite(tmp_path / f"{number}.tif", image(number), planarconfig="contig", compression="zlib")
    by_one = native.NativeLoader(scale="device", threads=1, dct_scaling=True)
    splits = [by_one.dataset(source([tmp_path / f"{number}.tif"])) for number in range(4)]
    said = logging.FileHandler(tmp_path / "log")
    logging.getLogger("strobe.app.loaders").addHandler(said)
    try:
        for _ in range(2):
            for split in splits:
                epoch(split, 1, "fork")
    finally:
        logging.getLogger("strobe.app.loaders").removeHandler(said)
        said.close()
    (line,) = (tmp_path / "log").read_text().splitlines()
    assert line.startswith(f"{tmp_path / '0.tif'} and possibly others are compressed")


@pytest.mark.parametrize(
    ("start", "workers"), [(None, 0), ("fork", 2), pytest.param("spawn", 1, marks=pytest.mark.slow)]
)
def test_each_kind_of_worker_reads(start: str | None, workers: int, tiles: Path) -> None:
    paths = sorted(tiles.glob("*/*.tif"))[::20]
    loaded = dataset(paths, shape=(13, 64, 64), threads=2)
    loaded.__getitems__([0, 1])  # the pool has its threads before workers are forked
    seen = []
    for pixels, labels in epoch(loaded, workers, start):
        for tile, label in zip(pixels, labels.tolist(), strict=True):
            expected = tifffile.imread(paths[label])[..., [3, 12, 1]]
            np.testing.assert_array_equal(tile, np.moveaxis(expected, -1, 0))
            seen.append(label)
    assert seen == list(range(len(paths)))
