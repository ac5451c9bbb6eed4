"""Photos in class folders: which are found, in which split, and what is said of a folder that does not do."""

import os
from collections import Counter
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import torch
from torchvision import datasets

from strobe.app.data.base import SPLITS
from strobe.app.data.folders import files_of_classes
from strobe.app.storage.local import LocalFolder
from support.composing import composed_data
from support.files import NO_FILES, no_file, plant
from support.photo_files import black_png, photograph, save
from support.refusals import refusal
from support.runs import Train


def image_folder(root: Path, *overrides: str) -> Any:
    return composed_data("data=image_folder", f"data.root={root}", "data.size=16", "data.batch_size=4", *overrides)


def found(root: Path, *overrides: str) -> dict[str, list[tuple[str, str]]]:
    """Each split's photos below ``root``, with their classes."""
    data = image_folder(root, *overrides)
    data.setup()
    return {
        split: [
            (str(Path(source.path(index)).relative_to(root)), data.classes[label])
            for index, label in enumerate(source.labels.tolist())
        ]
        for split, source in data.found.items()
    }


def refused(root: Path) -> str:
    return refusal(image_folder(root).setup)


def names(folder: str, count: int, suffix: str = "jpg") -> dict[str, bytes]:
    """Files that hold nothing: to find photos, none is opened."""
    return {f"{folder}/{number}.{suffix}": b"" for number in range(count)}


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    plant(tmp_path / "pets", names("cat", 20) | names("dog", 30, "PNG") | names("cow/brown/old", 10, "Jpeg"))
    return tmp_path / "pets"


@pytest.fixture
def imagenet(tmp_path: Path) -> Path:
    root = tmp_path / "imagenet"
    plant(root, names("train/n1", 7, "JPEG") | names("train/n2", 5, "JPEG"))
    plant(root, names("val/n1", 2, "JPEG") | names("val/n2", 3, "JPEG"))
    return root


def test_class_folders_are_split_by_class(plain: Path) -> None:
    splits = found(plain)
    everything = sorted(file for split in SPLITS for file, _ in splits[split])
    assert everything == sorted(str(path.relative_to(plain)) for path in plain.rglob("*.*"))
    assert all(file.startswith(f"{kind}/") for split in SPLITS for file, kind in splits[split])
    counts = {split: Counter(kind for _, kind in splits[split]) for split in SPLITS}
    assert counts == {
        "train": {"cat": 16, "dog": 24, "cow": 8},
        "val": {"cat": 2, "dog": 3, "cow": 1},
        "test": {"cat": 2, "dog": 3, "cow": 1},
    }
    assert found(plain, "seed=7") == splits
    assert found(plain, "data.seed=43") != splits
    assert len(found(plain, "data.train_fraction=0.5")["train"]) == 30


def test_the_order_and_the_labels_are_torchvisions(plain: Path) -> None:
    data = image_folder(plain)
    data.setup()
    source = data.found["train"]
    theirs = datasets.ImageFolder(plain, loader=str)
    assert list(source.paths) == [path for path, _ in theirs.samples]
    assert source.targets.tolist() == theirs.targets
    assert list(data.classes) == theirs.classes == ["cat", "cow", "dog"]
    assert data.title == "your images in pets/"


def test_what_is_hidden_or_no_photo_is_not_seen(plain: Path) -> None:
    expected = found(plain)
    plant(plain, {"cat/._1.jpg": b"", "cat/notes.txt": b"", ".thumbnails/1.jpg": b"", "cat/.cache/1.jpg": b""})
    plant(plain, {"README.jpg": b"", "cat/1.jpg.txt": b"", "cat/photo.tif": b""})
    assert found(plain) == expected


def test_a_folder_of_packs_is_no_class(plain: Path) -> None:
    plant(plain, {"packed/pets-photos-16-00000000/manifest.json": b"{}"})
    data = image_folder(plain)
    data.setup()
    assert data.classes == ("cat", "cow", "dog")


@pytest.mark.parametrize("kind", NO_FILES)
def test_what_is_no_file_is_named_and_not_waited_for(plain: Path, kind: str) -> None:
    strange = no_file(plain / "cow" / "brown" / "x.jpg", kind)
    assert refused(plain).startswith(f"{strange} is a pipe, a socket or a link to nothing, and no file; remove it")


def test_a_folder_may_be_called_like_a_photo(plain: Path) -> None:
    plant(plain, names("cat/x.jpg", 3))
    (plain / "cat" / "y.jpg").symlink_to(plain / "cat" / "x.jpg")
    assert len([file for split in found(plain).values() for file, _ in split]) == 63


def test_a_photo_of_too_many_pixels_does_not_decide_the_size(tmp_path: Path) -> None:
    for kind in ("one", "two"):
        plant(tmp_path / kind, {"0.png": black_png(9_500, 9_500), "1.png": black_png(20_000, 10_000)})
        save(tmp_path / kind / "2.jpg", photograph(40, 50))
    data = composed_data("data=image_folder", f"data.root={tmp_path}")
    data.setup()
    assert data.size == 40


def test_links_are_followed_but_not_in_circles(plain: Path) -> None:
    expected = found(plain)
    linked = plain.parent / "linked"
    linked.mkdir()
    for kind in ("cat", "cow", "dog"):
        (linked / kind).symlink_to(plain / kind)
    assert found(linked) == expected
    (plain / "cow" / "brown" / "herd").symlink_to(plain / "cow")
    (plain / "cow" / "self").symlink_to(plain / "cow" / "self")
    (plain / "cat" / "album").mkdir()
    (plain / "cat" / "album" / "20.jpg").symlink_to(plain / "cat" / "1.jpg")
    assert len([file for split in found(plain).values() for file, _ in split]) == 61


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("links", [1, 2])
def test_siblings_that_link_to_each_other_are_entered_once(tmp_path: Path, links: int) -> None:
    """In another process: without an end it would outlive any test."""
    plant(tmp_path, names("a", 3) | names("b/deep", 4))
    for number in range(links):
        (tmp_path / "a" / f"more{number}").symlink_to("../b")
        (tmp_path / "b" / f"more{number}").symlink_to("../a")
    with get_context("fork").Pool(1) as pool:
        given = (LocalFolder(tmp_path), (".jpg",))
        found = pool.apply_async(files_of_classes, given, {"below": True}).get(30)
    own = [[f"a/{number}.jpg" for number in range(3)], [f"b/deep/{number}.jpg" for number in range(4)]]
    expected = {
        "a": own[0] + [f"a/more0/deep/{number}.jpg" for number in range(4)],
        "b": own[1] + [f"b/more0/{number}.jpg" for number in range(3)],
    }
    assert {kind: list(files) for kind, files in found.items()} == {
        kind: [str(tmp_path / name) for name in files] for kind, files in expected.items()
    }


def test_a_folder_of_two_ways_counts_where_it_lies(plain: Path) -> None:
    expected = found(plain)
    (plain / "cow" / "aged").symlink_to(plain / "cow" / "brown" / "old")
    assert found(plain) == expected


def test_imagenets_folders_are_the_split(imagenet: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "strobe.app.data.image_folder")
    splits = found(imagenet)
    assert [file for file, _ in splits["train"]] == [
        f"train/n{n}/{i}.JPEG" for n, m in ((1, 7), (2, 5)) for i in range(m)
    ]
    assert Counter(kind for _, kind in splits["val"]) == {"n1": 2, "n2": 3}
    assert splits["test"] == splits["val"]
    assert "the test is on the validation photos" in caplog.text


def test_imagenets_test_folder_counts_when_it_has_classes(imagenet: Path) -> None:
    plant(imagenet, names("test", 4, "JPEG"))  # ImageNet's own: no labels
    splits = found(imagenet)
    assert splits["test"] == splits["val"]
    plant(imagenet, names("test/n1", 1, "JPEG") | names("test/n2", 1, "JPEG"))
    assert found(imagenet)["test"] == [("test/n1/0.JPEG", "n1"), ("test/n2/0.JPEG", "n2")]


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    plant(tmp_path, names("car", 4) | names("train", 4))
    assert {kind for _, kind in found(tmp_path)["train"]} == {"car", "train"}


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, ["holds no class folders", "at least two classes"]),
        (names(".", 3), ["holds no class folders"]),
        (names("cat", 5), ["holds one class, cat"]),
        (names("cat", 5) | {"dog/notes.txt": b""}, ["/dog holds no .jpg, .jpeg, .png file", "remove the folder"]),
        (names("cat", 5) | names("dog", 2), ["/dog holds 2 photos, but at least 3", "add photos"]),
        (names("cat", 5) | names("dog", 1), ["/dog holds 1 photo, but"]),
        (names("train/cat", 5) | names("train/dog", 5), ["holds train, but no val", "validation photos val"]),
        (names("train/cat", 5) | names("test/cat", 5), ["holds test, train, but no val"]),
        (names("train/cat", 5) | names("train/dog", 5) | names("val", 5), ["/val holds no class folders"]),
        (
            names("train/cat", 5) | names("train/dog", 5) | names("val/cat", 5) | names("val/cow", 5),
            ["/val holds the class cow, but", "/train does not (2 classes differ)"],
        ),
        (
            names("train/cat", 1)
            | names("train/dog", 1)
            | names("train/ant", 1)
            | names("val/cat", 1)
            | names("val/dog", 1),
            ["/train holds the class ant, but", "/val does not (1 class differs)"],
        ),
    ],
    ids=lambda value: ",".join(sorted({name.rpartition("/")[0] for name in value})) if isinstance(value, dict) else "",
)
def test_a_folder_that_does_not_do_is_refused(tmp_path: Path, files: dict[str, bytes], words: list[str]) -> None:
    plant(tmp_path, files)
    text = refused(tmp_path)
    assert str(tmp_path) in text
    for word in words:
        assert word in text


@pytest.mark.parametrize("kind", ["missing", "a file"])
def test_a_missing_folder_is_named(tmp_path: Path, kind: str) -> None:
    if kind == "a file":
        (tmp_path / "none").touch()
    assert f"data.root={tmp_path}/none is not a folder" in refused(tmp_path / "none")


@pytest.mark.skipif(os.geteuid() == 0, reason="intended: root may read everything")
def test_a_folder_that_may_not_be_read_is_said(plain: Path, caplog: pytest.LogCaptureFixture) -> None:
    (plain / "cat").chmod(0)
    try:
        assert "/cat holds no" in refused(plain)
    finally:
        (plain / "cat").chmod(0o755)
    assert "cannot be read" in caplog.text


@pytest.mark.parametrize("augment", [True, False])
@pytest.mark.parametrize("framing", ["resize", "random_crop", "random_resized_crop"])
def test_only_training_photos_are_framed_at_random(plain: Path, framing: str, augment: bool) -> None:
    data = image_folder(plain, f"data.framing={framing}", f"data.augment={augment}", "seed=9")
    data.setup()
    for split in SPLITS:
        given = data.found[split].framing
        assert (given.kind, given.size, given.seed) == (framing, 16, 9)
        assert given.random == (augment and split == "train")


def test_colours_are_standardised_by_imagenets() -> None:
    data = image_folder(Path("anywhere"))
    white = data.normalise(torch.full((1, 3, 2, 2), 255, dtype=torch.uint8))
    expected = (1 - torch.tensor([0.485, 0.456, 0.406])) / torch.tensor([0.229, 0.224, 0.225])
    torch.testing.assert_close(white[0, :, 0, 0], expected)
    torch.testing.assert_close(data.to_rgb(white), torch.ones(1, 3, 2, 2))


def test_augmenting_mirrors() -> None:
    images = torch.arange(320.0).view(20, 1, 4, 4)
    changed = image_folder(Path("anywhere")).augment(images.clone(), torch.Generator().manual_seed(3))
    mirrored = [torch.equal(new, old.flip(-1)) for new, old in zip(changed, images, strict=True)]
    assert {True, False} == set(mirrored)
    assert all(m or torch.equal(new, old) for m, new, old in zip(mirrored, changed, images, strict=True))


def test_it_trains(train: Train, tmp_path: Path) -> None:
    for kind in ("for ${f}", os.fsdecode(b"caf\xe9")):  # which is no UTF-8
        (tmp_path / "set" / kind).mkdir(parents=True)
        for number in range(12):
            save(tmp_path / "set" / kind / f"{number}.jpg", photograph(40, 50, number))
    ended = train("data=image_folder", f"data.root={tmp_path}/set", "data.size=32", "engine.num_workers=2", "test=true")
    assert ended.code == 0, ended.output
    assert {"test/accuracy/for ${f}", r"test/accuracy/caf\xe9"} <= ended.summary["metrics"].keys()
    assert "Traceback" not in ended.output
    assert "your images in set/, SmallClassifier, loader pil" in ended.output.replace("\n", " ")
    assert ended.summary["choices"]["data"] == "image_folder"
    (tmp_path / "set" / os.fsdecode(b"caf\xe9")).rename(tmp_path / "set" / "two")
    for broken in (tmp_path / "set").rglob("*.jpg"):
        broken.write_text("no photo")
    ended = train("data=image_folder", f"data.root={tmp_path}/set", "engine.num_workers=2", name="broken")
    assert ended.code == 1
    assert ".jpg cannot be read as a photo" in ended.output
    assert "Traceback" not in ended.output


@pytest.mark.parametrize(
    ("stored", "asked", "told"),
    [
        ((64, 80), "null null 64 resize", ["Files are 64x80, so data.size is 64 and data.framing is resize"]),
        ((300, 400), "null null 224 random_resized_crop", []),
        ((64, 64), "224 random_crop 224 random_crop", ["64x64 files, enlarged to 224: 12 times the pixels"]),
        ((64, 64), "72 null 72 resize", ["Files are 64x64, so data.framing is resize"]),
    ],
)
def test_photos_are_enlarged_only_if_asked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, stored: tuple[int, int], asked: str, told: list[str]
) -> None:
    *given, size, framing = asked.split()
    caplog.set_level("INFO", "strobe.app.data.image_folder")
    for kind in ("one", "two"):
        (tmp_path / kind).mkdir()
        for number in range(3):
            save(tmp_path / kind / f"{number}.jpg", photograph(*stored, number))
        (tmp_path / kind / "3.jpg").write_text("no photo")  # which its loader names
    data = image_folder(tmp_path, f"data.size={given[0]}", f"data.framing={given[1]}")
    data.setup()
    assert {(source.framing.size, source.framing.kind) for source in data.found.values()} == {(int(size), framing)}
    assert [line for line in caplog.messages if "test/<Class>" not in line] == told


def test_more_classes_than_a_picture_shows(train: Train, tmp_path: Path) -> None:
    save(tmp_path / "photo.jpg", photograph(40, 50))
    photo = (tmp_path / "photo.jpg").read_bytes()
    for split in ("train", "val"):
        plant(tmp_path / "set" / split, {f"n{number:04d}/photo.jpg": photo for number in range(201)})
    ended = train("data=image_folder", f"data.root={tmp_path}/set", "data.size=32", "test=true")
    assert ended.code == 0, ended.output
    assert "confusion matrix is not drawn: 201 classes" in ended.output
    assert "test/accuracy/n0000" in ended.summary["metrics"]
    assert "test/accuracy/n0200" not in ended.summary["metrics"]  # none of its images was tested


def test_a_single_small_photo_is_no_batch_for_the_imagenet_stem(train: Train, tmp_path: Path) -> None:
    for kind in ("one", "two"):
        (tmp_path / "set" / kind).mkdir(parents=True)
        for number in range(4):
            save(tmp_path / "set" / kind / f"{number}.jpg", photograph(32, 32, number))
    ended = train("data=image_folder", f"data.root={tmp_path}/set", "data.batch_size=1", "model.stem=imagenet")
    assert ended.code == 2
    assert "data.batch_size=1 does not fit model.stem=imagenet" in ended.output
    assert "Traceback" not in ended.output
