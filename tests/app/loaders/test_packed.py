"""``loader=packed`` gives the pixels that the other loaders give, from one file, to all who read at once."""

import pickle
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from strobe.app.loaders.crop_policy import CropPolicy
from strobe.app.loaders.packed import PackedLoader
from strobe.app.loaders.sources import PathTable, TileSource
from strobe.app.loaders.tifffile import TifffileLoader
from strobe.errors import ConfigError
from support.files import names, tree
from support.photo_files import photo_source, photograph, save
from support.refusals import refusal
from support.runs import Ended


@pytest.fixture
def paths(tiles: Path) -> PathTable:
    return PathTable([str(path) for path in sorted(tiles.glob("*/*.tif"))[::5]])


@pytest.fixture
def loader(tmp_path: Path) -> PackedLoader:
    return PackedLoader(directory=str(tmp_path / "packs"), verify=False, scale="device")


def split(paths: PathTable, chosen: list[int] | None = None, bands: tuple[int, ...] = (3, 2, 1)) -> TileSource:
    every = torch.arange(len(paths))
    indices = every if chosen is None else torch.tensor(chosen)
    return TileSource(paths, every + 100, indices, (13, 64, 64), bands, 4000.0)


def expected(source: TileSource, indices: list[int]) -> NDArray[np.uint16]:
    data = TifffileLoader(scale="device").dataset(source)
    return np.stack([data[index][0].numpy() for index in indices])


def packs(loader: PackedLoader) -> list[str]:
    return names(Path(loader.directory))


def test_any_bands_come_from_one_pack(paths: PathTable, loader: PackedLoader) -> None:
    first = loader.dataset(split(paths))
    before = tree(Path(loader.directory))
    wanted = [4, 0, 4, len(paths) - 1]
    for bands in [(3, 2, 1), tuple(range(13)), (12, 0), (2,), (1, 2, 3), (3, 2), (2, 1, 0)]:
        source = split(paths, bands=bands)
        data = PackedLoader(directory=loader.directory, verify=False, scale="device").dataset(source)
        pixels, labels = data.__getitems__(wanted)
        np.testing.assert_array_equal(pixels.numpy(), expected(source, wanted))
        assert labels.tolist() == [100 + index for index in wanted]
    assert tree(Path(loader.directory)) == before
    assert first.images.layout.bands[:3] == (3, 2, 1)  # side by side: one piece of an image


def test_splits_share_a_pack_and_keep_their_order(paths: PathTable, loader: PackedLoader) -> None:
    parts = [[7, 3, 9], [0, 1], [8]]
    made = [loader.dataset(split(paths, part)) for part in parts]
    for part, data in zip(parts, made, strict=True):
        assert len(data) == len(part)
        backwards = list(range(len(part)))[::-1]
        pixels, labels = data.__getitems__(backwards)
        np.testing.assert_array_equal(pixels.numpy(), expected(split(paths, part), backwards))
        assert labels.tolist() == [100 + index for index in part[::-1]]
    assert len({id(data.images) for data in made}) == 1
    assert len([name for name in packs(loader) if not name.startswith(".")]) == 1


def test_threads_load_at_once(paths: PathTable, loader: PackedLoader) -> None:
    source = split(paths)
    data, whole = loader.dataset(source), expected(source, list(range(len(paths))))
    orders = [np.random.default_rng(seed).permutation(len(paths))[:20].tolist() for seed in range(200)]
    with ThreadPoolExecutor(4) as pool:
        for order, (pixels, _) in zip(orders, pool.map(data.__getitems__, orders), strict=True):
            np.testing.assert_array_equal(pixels.numpy(), whole[order])


def test_what_workers_are_sent_is_small(paths: PathTable, loader: PackedLoader) -> None:
    data = loader.dataset(split(paths))
    sent = pickle.dumps(data)
    assert str(paths[0]).encode() not in sent
    assert len(sent) < 4096 + 16 * len(paths)
    np.testing.assert_array_equal(pickle.loads(sent)[3][0].numpy(), data[3][0].numpy())


def test_a_pack_that_has_gone_is_told_in_a_sentence(paths: PathTable, loader: PackedLoader) -> None:
    sent = pickle.dumps(loader.dataset(split(paths)))
    shutil.rmtree(loader.directory)
    assert "cannot be mapped (" in refusal(lambda: pickle.loads(sent))


@pytest.fixture
def photos(tmp_path: Path) -> list[str]:
    shapes = [(40, 60), (60, 40), (33, 91), (48, 48)]
    (tmp_path / "photos").mkdir()
    return [
        save(tmp_path / "photos" / f"{number}.{'jpg' if number % 2 else 'png'}", photograph(*shape, seed=number))
        for number, shape in enumerate(shapes)
    ]


def test_each_size_of_photos_has_its_pack(photos: list[str], loader: PackedLoader) -> None:
    small = photo_source(photos, CropPolicy("resize", 31))
    large = replace(small, framing=CropPolicy("resize", 48))
    assert [loader.dataset(source)[0][0].shape[-1] for source in (large, small, large)] == [48, 31, 48]
    assert [name.split("-")[1:3] for name in packs(loader) if name[0] != "."] == [["photos", "31"], ["photos", "48"]]


@pytest.mark.parametrize("kind", ["random_crop", "random_resized_crop"])
@pytest.mark.parametrize("random", [False, True])
def test_photos_that_differ_each_time_are_refused(
    photos: list[str], loader: PackedLoader, kind: str, random: bool
) -> None:
    source = photo_source(photos, CropPolicy(kind, 32, random=random))
    text = refusal(lambda: loader.dataset(source), ConfigError)
    assert f"data.framing={kind}" in text
    assert "data.framing=resize" in text
    assert not Path(loader.directory).exists()


def test_a_run_trains_from_a_pack(train: Callable[..., Ended], tmp_path: Path) -> None:
    ended = train("loader=packed", f"loader.directory={tmp_path / 'packs'}", "trainer.limit_train_batches=1")
    assert (ended.code, ended.summary["status"]) == (0, "completed")
    assert "Packing 100 tiles (10.6 MB, about 0:00)" in (ended.directory / "train.log").read_text()
