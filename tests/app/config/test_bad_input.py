"""Each mistake gets one clear line that names the key or file, the value and the remedy, and no traceback."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import tifffile
import torch

from strobe.app.build.checkpoint import require_fitting
from strobe.app.model.resnet import build_resnet18
from strobe.errors import ConfigError
from support.cifar10_files import generated
from support.runs import CHECKPOINTS, Ended

Train = Callable[..., Ended]


@pytest.fixture
def own_tiles(sample_root: Path, tmp_path: Path) -> Iterator[Path]:
    """A small set that a test may damage."""
    folder = tmp_path / "own"
    for kind in sorted((sample_root / "tiles" / "seed42-10").glob("*/"))[:3]:
        shutil.copytree(kind, folder / kind.name)
    yield folder
    shutil.rmtree(folder)


def refused(ended: Ended, *words: str) -> str:
    assert ended.code == 1, ended.output
    assert "Traceback" not in ended.output
    for word in words:
        assert word in ended.output
    return ended.output


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["data.batchsize=3"], ["batchsize", "Could not override"]),
        (["trainer.max_epoch=3"], ["max_epoch", "Could not override"]),
        (["data=eurosatt"], ["eurosatt", "Available options", "eurosat"]),
        (["experiment=nothing"], ["nothing", "eurosat_13band"]),
        (["data.batch_size=many"], ["many", "data.batch_size", "Integer"]),
        (["data.batch_size=0"], ["data.batch_size=0", "at least 1"]),
        (["data.batch_size=-4"], ["data.batch_size=-4", "at least 1"]),
        (["data.val_batch_size=0"], ["data.val_batch_size=0", "at least 1"]),
        (["engine.num_workers=-1"], ["engine.num_workers=-1", "at least 0"]),
        (["data.train_fraction=1.0"], ["data.train_fraction=1.0", "greater than 0 and less than 1"]),
        (["model.lr=0"], ["model.lr=0", "greater than 0"]),
        (["model.optimizer=lion"], ["model.optimizer=lion", "adam, adamw, sgd"]),
        (["loader.scale=gpu"], ["loader.scale=gpu", "device, numpy, torch"]),
        (["profiler.active=0"], ["profiler.active=0", "at least 1"]),
        (["seed=-1"], ["seed=-1", "at least 0"]),
        (["seed=99999999999"], ["seed=99999999999", "at most"]),
        (["data.bands=[true]"], ["data.bands=[True]", "list"]),
        (["data=cifar10", "data.batch_size=1"], ["data.batch_size=1", "model.stem=cifar"]),
        (["data.bands=red"], ["data.bands=red", "rgb, all"]),
        (["data.bands=[]"], ["data.bands=[]", "list"]),
        (["data.bands=[1,1]"], ["data.bands=[1, 1]", "different"]),
        (["data.bands=[-1]"], ["data.bands=[-1]", "from 0"]),
        (["data=cifar10", "loader=rasterio"], ["loader=rasterio", "data=cifar10", "memory"]),
        (["data=eurosat", "loader=memory"], ["loader=memory", "data=eurosat", "rasterio, skimage, tifffile"]),
        (["model.stem=cifar", "model.weights=imagenet"], ["model.weights=imagenet", "model.stem=cifar"]),
        (["ckpt_path=nowhere.ckpt"], ["ckpt_path=nowhere.ckpt", "ckpt_path=last"]),
        (["threads=9999"], ["threads=9999", "at most"]),
        (["loader=native", "loader.threads=9999"], ["loader.threads=9999", "at most"]),
        (["engine.num_workers=99999"], ["engine.num_workers=99999", "at most"]),
        (["data=image_folder", "engine=resident"], ["engine=resident", "random_resized_crop", "data.framing=resize"]),
        (
            ["data=image_folder", "loader=packed", "data.framing=random_crop"],
            ["loader=packed", "data.framing=random_crop", "data.framing=resize"],
        ),
        (
            ["engine=spdl", "engine.ordered=false", "trainer.deterministic=true"],
            ["engine.ordered=false", "ordered=true"],
        ),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, list) else None,
)
def test_configuration(train: Train, overrides: list[str], words: list[str]) -> None:
    ended = train(*overrides, quick=False)
    refused(ended, *words)
    assert not ended.directory.exists()  # refused before a run begins


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["trainer.accelerator=tpu"], ["trainer.accelerator=tpu"]),
        (["trainer.precision=7"], ["trainer.precision=7"]),
        (["trainer.devices=0"], ["trainer.devices=0"]),
        (["trainer.devices=99"], ["trainer.devices=99", "cores"]),
        (["+trainer.max_epoch=3"], ["trainer.max_epoch=3", "remove it"]),
        (["trainer.accumulate_grad_batches=0"], ["trainer.accumulate_grad_batches=0", "at least 1"]),
        (["trainer.max_epochs=soon"], ["trainer", "soon"]),
        (["trainer.limit_train_batches=-3"], ["limit_train_batches", "-3"]),
        (["data.bands=[3,20]"], ["data.bands=[3,20]", "band 20", "13 bands", "0 to 12"]),
        (["model.weights=nowhere.pt"], ["model.weights=nowhere.pt", "null"]),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, list) else None,
)
def test_what_only_building_finds(train: Train, overrides: list[str], words: list[str]) -> None:
    refused(train(*overrides, whole=True), *words)


@pytest.mark.skipif(torch.cuda.is_available(), reason="intended: needs a machine without a GPU")
def test_no_gpu(train: Train) -> None:
    refused(train("trainer=gpu", "trainer.accelerator=gpu"), "trainer.accelerator=gpu", "trainer=cpu")


def test_missing_root(train: Train, tmp_path: Path) -> None:
    ended = train("data=eurosat", f"data.root={tmp_path}/none")
    refused(ended, f"data.root={tmp_path}/none", "zenodo.org", "2.1 GB", "data.download=true", "data=sample")
    assert ended.summary["status"] == "failed"
    assert ended.summary["error"]["type"] == "DataError"


def test_missing_cifar10(train: Train, tmp_path: Path) -> None:
    ended = train("data=cifar10", f"data.root={tmp_path}")
    refused(ended, f"data.root={tmp_path}", "cifar-10-batches-py", "data.download=true", "data=sample")


def test_several_sets_of_tiles(train: Train, own_tiles: Path, tmp_path: Path) -> None:
    shutil.copytree(own_tiles, tmp_path / "other")
    refused(train("data=eurosat", f"data.root={tmp_path}"), "other, own", "data.root")


def test_an_empty_class_folder(train: Train, own_tiles: Path) -> None:
    (own_tiles / "Empty").mkdir()
    refused(train("data=eurosat", f"data.root={own_tiles}"), str(own_tiles / "Empty"), "no .tif file", "remove")


@pytest.mark.parametrize("count", [1, 2])
def test_a_class_with_too_few_images(train: Train, own_tiles: Path, count: int) -> None:
    (own_tiles / "Few").mkdir()
    for index, tile in enumerate(sorted(own_tiles.glob("AnnualCrop/*.tif"))[:count]):
        shutil.copy(tile, own_tiles / "Few" / f"Few_{index}.tif")
    ended = train("data=eurosat", f"data.root={own_tiles}")
    refused(ended, str(own_tiles / "Few"), f"{count} tile", "at least 3")


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("loader", ["rasterio", "skimage", "tifffile"])
def test_a_truncated_tile(train: Train, own_tiles: Path, loader: str, workers: int) -> None:
    for tile in own_tiles.glob("*/*.tif"):
        tile.write_bytes(tile.read_bytes()[:60_000])
    ended = train("data=eurosat", f"data.root={own_tiles}", f"loader={loader}", f"engine.num_workers={workers}")
    output = refused(ended, ".tif cannot be read as a tile", "replace or remove")
    assert str(own_tiles) in output
    assert ended.summary["status"] == "failed"
    assert "\n" not in ended.summary["error"]["message"]


def test_a_first_tile_that_is_no_image(train: Train, own_tiles: Path) -> None:
    first = min(own_tiles.glob("*/*.tif"))
    first.write_text("no image")
    refused(train("data=eurosat", f"data.root={own_tiles}"), str(first), "cannot be read as a tile")


def test_a_tile_of_another_type(train: Train, own_tiles: Path) -> None:
    for tile in sorted(own_tiles.glob("*/*.tif"))[1:]:
        tifffile.imwrite(tile, np.zeros((64, 64, 13), np.float32), planarconfig="contig")
    refused(train("data=eurosat", f"data.root={own_tiles}"), "float32 pixels", "uint16", "convert")


def test_a_single_class(train: Train, own_tiles: Path) -> None:
    for kind in sorted(own_tiles.glob("*/"))[1:]:
        shutil.rmtree(kind)
    refused(train("data=eurosat", f"data.root={own_tiles}"), "one class", "at least two")


@pytest.mark.parametrize("shape", [(32, 32, 13), (64, 64, 4)], ids=str)
def test_tiles_of_two_shapes(train: Train, own_tiles: Path, shape: tuple[int, int, int]) -> None:
    _, *others = sorted(own_tiles.glob("*/*.tif"))
    for tile in others:
        tifffile.imwrite(tile, np.zeros(shape, np.uint16), planarconfig="contig")
    output = refused(train("data=eurosat", f"data.root={own_tiles}"), "13 bands of 64x64", "has shape")
    assert sum(str(other) in output for other in others) == 1


def test_a_checkpoint_of_another_model(train: Train) -> None:
    first = train("trainer.limit_train_batches=1", name="first", whole=True)
    assert first.code == 0, first.output
    last = first.directory / "checkpoints" / "last.ckpt"
    ended = train(f"ckpt_path={last}", "model.stem=cifar", name="second", whole=True)
    refused(ended, str(last), "network.conv1.weight", "64x3x7x7", "64x3x3x3")


def test_a_checkpoint_that_is_none(train: Train, tmp_path: Path) -> None:
    path = tmp_path / "note.ckpt"
    path.write_text("no checkpoint")
    refused(train(f"ckpt_path={path}"), str(path), "cannot be read as a checkpoint")


def test_a_checkpoint_of_other_classes(tmp_path: Path) -> None:
    path = tmp_path / "ten.ckpt"
    torch.save({"state_dict": build_resnet18(channels=3, classes=10).state_dict()}, path)
    with pytest.raises(ConfigError, match=r"fc\.weight is 10x512 there and 7x512 here"):
        require_fitting(path, build_resnet18(channels=3, classes=7))


def test_a_checkpoint_of_other_data(train: Train, own_tiles: Path) -> None:
    first = train(CHECKPOINTS, name="first")
    last = first.directory / "checkpoints" / "last.ckpt"
    ended = train("data=eurosat", f"data.root={own_tiles}", f"ckpt_path={last}", name="second")
    refused(ended, str(last), "tells apart", "SeaLake", "the data has AnnualCrop, Forest, HerbaceousVegetation")


def test_no_last_checkpoint(train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    refused(train("ckpt_path=last"), "ckpt_path=last", "last.ckpt")


def test_no_space_for_outputs(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage("/")._replace(free=5_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    refused(
        train(CHECKPOINTS), "hydra.run.dir=", "5 MB free", "hydra.run.dir=FOLDER", "trainer.enable_checkpointing=false"
    )


def test_a_directory_that_cannot_be_made(train: Train, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ended = train(f"hydra.run.dir={tmp_path}/file/run")
    refused(ended, f"hydra.run.dir={tmp_path}/file/run", "Not a directory", "hydra.run.dir=FOLDER")


def test_an_altered_cifar10(train: Train, tmp_path: Path) -> None:
    root = generated(tmp_path)
    refused(train("data=cifar10", f"data.root={root}"), "data_batch_1", "md5", "data.verify=false")
