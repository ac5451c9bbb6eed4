"""CIFAR-10 from its batch files: real ones where there are some, and always generated ones of the same layout."""

import hashlib
import os
import pickle
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from support.cifar10_files import FOLDER, NAMES, TRAINING, generated, publish, published_form
from support.composing import composed_data
from support.files import NO_FILES, no_file
from support.places import DATA
from support.refusals import refusal


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return generated(tmp_path / "generated")


def cifar10(root: Path, *overrides: str) -> Any:
    return composed_data("data=cifar10", f"data.root={root}", *overrides)


def unverified(root: Path, *overrides: str) -> Any:
    data = cifar10(root, "data.verify=false", *overrides)
    data.setup()
    return data


REAL = DATA / "cifar10"


@pytest.fixture(params=["generated", *(["real"] if REAL.is_dir() else [])])
def any_root(request: pytest.FixtureRequest, root: Path) -> Path:
    return root if request.param == "generated" else REAL


def content(root: Path, files: list[str]) -> tuple[NDArray[np.uint8], list[int]]:
    """What the files hold, read as CIFAR-10's home page says."""
    pixels, labels = [], []
    for name in files:
        batch = pickle.loads((root / FOLDER / name).read_bytes(), encoding="bytes")
        pixels.append(batch[b"data"].reshape(-1, 3, 32, 32))
        labels += batch[b"labels"]
    return np.concatenate(pixels), labels


def test_images_and_labels_are_the_files(any_root: Path) -> None:
    data = unverified(any_root)
    sources = {split: data.datasets[split].source for split in ("train", "val", "test")}
    pixels, labels = content(any_root, [*TRAINING, "test_batch"])
    trained = len(content(any_root, TRAINING)[1])
    indices = sorted([*sources["train"].indices.tolist(), *sources["val"].indices.tolist()])
    assert indices == list(range(trained))
    assert sources["test"].indices.tolist() == list(range(trained, len(labels)))
    for source in sources.values():
        assert source.images.dtype == torch.uint8
        assert source.images.data_ptr() == sources["train"].images.data_ptr()  # one tensor for all
        np.testing.assert_array_equal(source.images.numpy(), pixels)
        assert source.targets.tolist() == labels
    assert list(data.classes) == NAMES


def test_a_batch_is_standardised_pixels(any_root: Path) -> None:
    data = unverified(any_root, "data.val_batch_size=8")
    images, labels = data.on_after_batch_transfer(next(iter(data.test_dataloader())), 0)
    pixels, expected_labels = content(any_root, ["test_batch"])
    mean, std = ([[[value]] for value in values] for values in ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)))
    np.testing.assert_allclose(images, (pixels[:8] / 255 - mean) / std, rtol=1e-4, atol=1e-5)
    assert labels.tolist() == expected_labels[:8]
    torch.testing.assert_close(data.to_rgb(images), torch.from_numpy(pixels[:8] / 255).float())


@pytest.mark.parametrize("fraction", [0.1, 0.25])
def test_validation_has_its_share_of_each_class(any_root: Path, fraction: float) -> None:
    data = unverified(any_root, f"data.val_fraction={fraction}")
    counts = {split: Counter(data.datasets[split].source.labels.tolist()) for split in ("train", "val")}
    for label in range(10):
        held_out, whole = counts["val"][label], counts["val"][label] + counts["train"][label]
        assert held_out == pytest.approx(fraction * whole, abs=1.01)  # a class makes up for the one before
    everything = counts["val"].total() + counts["train"].total()
    assert counts["val"].total() == pytest.approx(fraction * everything, abs=0.51)
    again = unverified(any_root, f"data.val_fraction={fraction}", "data.seed=43")
    assert set(again.datasets["val"].source.indices.tolist()) != set(data.datasets["val"].source.indices.tolist())


@pytest.mark.parametrize("place", [".", FOLDER, ".."])
def test_the_folder_is_found(root: Path, place: str) -> None:
    assert len(unverified(root / place).datasets["test"]) == 20


def test_a_hidden_folder_is_none(root: Path, tmp_path: Path) -> None:
    root.rename(tmp_path / ".trash")
    assert f"holds no folder {FOLDER}" in refusal(cifar10(tmp_path).setup)


@pytest.fixture
def published(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    publish(root, monkeypatch)
    return root


@pytest.mark.parametrize("name", ["data_batch_1", "data_batch_5", "test_batch", "batches.meta"])
@pytest.mark.parametrize("fault", ["altered", "missing"])
def test_each_file_is_verified(published: Path, name: str, fault: str) -> None:
    cifar10(published).setup()
    path = published / FOLDER / name
    whole = path.read_bytes()
    path.unlink()
    if fault == "altered":
        path.write_bytes(whole + b" ")  # an unpickler does not look behind the end
    text = refusal(cifar10(published).setup)
    assert all(word in text for word in (str(path), hashlib.md5(whole).hexdigest(), "data.verify=false"))
    if fault == "altered":
        unverified(published)


@pytest.mark.parametrize("kind", NO_FILES)
def test_what_is_no_file_is_named_and_not_waited_for(root: Path, kind: str) -> None:
    path = root / FOLDER / "data_batch_2"
    path.unlink()
    strange = no_file(path, kind)
    assert refusal(lambda: unverified(root)).startswith(f"{strange} is a pipe, a socket or a link to nothing")


def test_a_class_with_one_training_image(root: Path) -> None:
    for name in TRAINING:
        labels = [0] * 5 + [3] * (name == TRAINING[0])
        (root / FOLDER / name).write_bytes(published_form(np.zeros((len(labels), 3072), np.uint8), labels))
    text = refusal(lambda: unverified(root))
    assert str(root / FOLDER) in text
    assert "single training image of class cat" in text


class Runs:
    """Runs a command when it is unpickled by a reader that trusts it."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return os.system, (self.command,)


@pytest.mark.parametrize("name", ["data_batch_2", "batches.meta"])
def test_a_file_that_runs_code_is_refused(root: Path, tmp_path: Path, name: str) -> None:
    harm = pickle.dumps({"data": Runs(f"touch {tmp_path}/harm"), "labels": [1]})
    (root / FOLDER / name).write_bytes(harm)
    text = refusal(lambda: unverified(root))
    assert str(root / FOLDER / name) in text
    assert "system" in text
    assert not (tmp_path / "harm").exists()
    pickle.loads(harm)
    assert (tmp_path / "harm").exists()  # or the file would have been harmless


PIXELS = np.zeros((2, 3072), np.uint8)


@pytest.mark.parametrize(
    "batch",
    [
        b"",
        b"no pickle",
        published_form(PIXELS, [0, 1])[:-3000],
        [1, 2],
        {"data": PIXELS},
        {"labels": [0, 1]},
        {"data": PIXELS, "labels": None},
        {"data": PIXELS, "labels": [0]},
        {"data": PIXELS, "labels": [0, 10]},
        {"data": PIXELS, "labels": [0, -1]},
        {"data": PIXELS, "labels": [0, "cat"]},
        {"data": PIXELS[:, 1:], "labels": [0, 1]},
        {"data": PIXELS / 255, "labels": [0, 1]},
        {"data": [[1], [2, 3]], "labels": [0, 1]},
    ],
    ids=lambda batch: str(batch)[:12] if isinstance(batch, bytes) else None,
)
def test_a_batch_of_something_else_is_named(root: Path, batch: Any) -> None:
    path = root / FOLDER / "data_batch_3"
    path.write_bytes(batch if isinstance(batch, bytes) else pickle.dumps(batch))
    assert str(path) in refusal(lambda: unverified(root))


@pytest.mark.parametrize("meta", [[], {}, {"label_names": None}, {"label_names": []}], ids=str)
def test_a_file_without_class_names_is_named(root: Path, meta: object) -> None:
    path = root / FOLDER / "batches.meta"
    path.write_bytes(pickle.dumps(meta))
    assert str(path) in refusal(lambda: unverified(root))
