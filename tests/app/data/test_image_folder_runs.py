"""Runs of the application on photos in class folders."""

from pathlib import Path

import pytest

from support.files import plant
from support.photo_files import photograph, save
from support.runs import Train


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["data.size=4"], ["data.size=4", "at least 8 and at most 4096"]),
        (["data.framing=crop"], ["data.framing=crop", "resize, random_crop, random_resized_crop"]),
        (["data.size=32", "data.batch_size=1"], ["data.batch_size=1", "model.stem=cifar"]),
        (["loader=skimage"], ["loader=skimage", "data=image_folder", "pil", "torchvision"]),
    ],
    ids=",".join,
)
def test_what_cannot_work_is_refused_before_a_run(train: Train, overrides: list[str], words: list[str]) -> None:
    ended = train("data=image_folder", *overrides, quick=False)
    assert ended.code == 1
    assert not ended.directory.exists()
    assert "Traceback" not in ended.output
    for word in words:
        assert word in ended.output


@pytest.mark.parametrize("workers", [0, 2])
def test_it_trains(train: Train, tmp_path: Path, workers: int) -> None:
    for kind in ("one", "two"):
        (tmp_path / "set" / kind).mkdir(parents=True)
        for number in range(12):
            save(tmp_path / "set" / kind / f"{number}.jpg", photograph(40, 50, number))
    ended = train("data=image_folder", f"data.root={tmp_path}/set", "data.size=32", f"engine.num_workers={workers}")
    assert ended.code == 0, ended.output
    assert "images of set, resnet18, loader pil" in ended.output.replace("\n", " ")
    assert ended.summary["choices"]["data"] == "image_folder"
    for broken in (tmp_path / "set").rglob("*.jpg"):
        broken.write_text("no photo")
    ended = train("data=image_folder", f"data.root={tmp_path}/set", f"engine.num_workers={workers}", name="broken")
    assert ended.code == 1
    assert ".jpg cannot be read as a photo" in ended.output
    assert "Traceback" not in ended.output


def test_more_classes_than_a_picture_shows(train: Train, tmp_path: Path) -> None:
    save(tmp_path / "photo.jpg", photograph(40, 50))
    photo = (tmp_path / "photo.jpg").read_bytes()
    for split in ("train", "val"):
        plant(tmp_path / "set" / split, {f"n{number:04d}/photo.jpg": photo for number in range(201)})
    ended = train("data=image_folder", f"data.root={tmp_path}/set", "data.size=32", "test=true")
    assert ended.code == 0, ended.output
    assert "confusion matrix is not drawn: 201 classes" in ended.output
    assert ended.summary["metrics"].keys() >= {"test/accuracy/n0000", "test/accuracy/n0200"}
