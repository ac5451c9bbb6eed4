"""The operators on photos, and the data set of loader=native that is made of them."""

import logging
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from strobe.app.engines.sampler import EpochSampler, Indices, ShardedBatches
from strobe.app.loaders import native
from strobe.app.loaders.crop_policy import CropPolicy
from strobe.app.loaders.native import NativeLoader, NativePhotos
from strobe.app.loaders.pil import PilLoader
from strobe.app.loaders.sources import PathTable, PhotoSource
from strobe.app.native.build import load
from strobe.app.native.files import Files
from strobe.app.native.photos import LIBRARY, measure_photos, read_photos
from support.jpegs import by_pillow, needs_compiler, picture, whole
from support.pipeline_parts import loader
from support.places import DATA

pytestmark = needs_compiler()
SHAPES = [(40, 60), (61, 33), (16, 16), (200, 100), (33, 32), (70, 71)]


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    found = [tmp_path / f"{number}.jpg" for number in range(len(SHAPES))]
    for number, (path, shape) in enumerate(zip(found, SHAPES, strict=True)):
        kind = {"progressive": number % 2 == 1, "subsampling": number % 3}
        path.write_bytes(by_pillow(picture(*shape, 1 if number == 4 else 3), **kind))
    return [str(path) for path in found]


def source(paths: list[str], kind: str = "random_crop", size: int = 32, random: bool = True) -> PhotoSource:
    everything = torch.arange(len(paths))
    return PhotoSource(PathTable(paths), everything * 10, everything, CropPolicy(kind, size, random))


def dataset(paths: list[str], threads: int | None = 1, dct_scaling: bool = False, **framing: object) -> NativePhotos:
    made = NativeLoader(scale="device", threads=threads, dct_scaling=dct_scaling).dataset(source(paths, **framing))
    assert isinstance(made, NativePhotos)
    return made


def batch(paths: list[str], epoch: int = 0, **options: object) -> Tensor:
    order = Indices(range(len(paths)), epoch=epoch, split="train", number=0)
    return dataset(paths, **options).__getitems__(order)[0]


def expected(paths: list[str], epoch: int = 0, **framing: object) -> Tensor:
    order = Indices(range(len(paths)), epoch=epoch, split="train", number=0)
    pixels: Tensor = PilLoader(scale="device").dataset(source(paths, **framing)).__getitems__(order)[0]
    return pixels


@pytest.mark.parametrize("kind", ["resize", "random_resized_crop", "random_crop"])
def test_resized_boxes_nearly_equal_pillow(paths: list[str], kind: str) -> None:
    difference = batch(paths, kind=kind).int() - expected(paths, kind=kind).int()
    assert difference.abs().max() <= 1


def test_many_threads_and_real_photos(paths: list[str]) -> None:
    """Real ones where there are some."""
    real = [str(path) for path in sorted((DATA / "photos").glob("*.jpg"))[:24]]
    found, size = (real, 256) if real else (paths, 16)
    assert torch.equal(batch(found, size=size, threads=4), expected(found, size=size))


def test_a_copy_in_another_process_reads_on(paths: list[str]) -> None:
    data = dataset(paths)
    first = data.__getitems__([0, 1, 2])[0].clone()
    copy = pickle.loads(pickle.dumps(data))
    assert torch.equal(copy.__getitems__([0, 1, 2])[0], first)


def test_sizes_are_measured_once(paths: list[str]) -> None:
    data = dataset(paths)
    data.__getitems__([0, 3])
    assert data.sizes.tolist() == [list(SHAPES[0]), [0, 0], [0, 0], list(SHAPES[3]), [0, 0], [0, 0]]
    data.sizes[0] = -1  # as if measured: goes through Pillow
    assert torch.equal(data.__getitems__([0])[0], expected(paths)[:1])


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_workers_share_the_sizes(paths: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two in each epoch, which end with it; a photo that comes to another worker in the second is not opened twice."""

    def noted(files: Files, *, threads: int) -> Tensor:
        with (tmp_path / "measured").open("a") as file:
            file.write("".join(f"{photo}\n" for photo in files.chosen.tolist()))
        return measure_photos(files, threads=threads)

    monkeypatch.setattr(native.photos, "measure_photos", noted)
    data = dataset(paths)
    for seed in (1, 2):
        epoch(data, "fork", seed)
        measured = sorted((tmp_path / "measured").read_text().split())
        assert measured == [str(photo) for photo in range(len(paths))]


def test_a_spawned_worker_leaves_the_sizes(paths: list[str]) -> None:
    data = dataset(paths)
    epoch(data, "spawn", 0, workers=1)
    assert data.sizes.tolist() == [list(shape) for shape in SHAPES]


def epoch(data: NativePhotos, start: str, seed: int, workers: int = 2) -> None:
    """All photos, in batches of one, by workers that end with them."""
    order = ShardedBatches(EpochSampler(len(data), shuffle=True, seed=seed), 1)
    options = {"persistent_workers": False, "multiprocessing_context": start}
    assert len(list(loader("torch", data, order, workers, **options))) == len(data)


def test_what_the_operators_do_not_read_goes_through_pillow(
    paths: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    others = [str(tmp_path / "cmyk.jpg"), str(tmp_path / "photo.png")]
    Path(others[0]).write_bytes(by_pillow(picture(50, 50, 4)))
    Image.fromarray(picture(50, 50)).save(others[1])
    mixed = [paths[0], *others]
    data = dataset(mixed)
    with caplog.at_level(logging.WARNING):
        for epoch in (0, 1):
            pixels, _ = data.__getitems__(Indices(range(3), epoch=epoch, split="train", number=0))
            assert torch.equal(pixels, expected(mixed, epoch))
    (said,) = [record.getMessage() for record in caplog.records if record.name == native.__name__]
    assert "cmyk.jpg and possibly others" in said
    assert "\n" not in said


def test_a_photo_that_changed_since_it_was_measured(paths: list[str]) -> None:
    data = dataset(paths)
    data.__getitems__([3])
    Path(paths[3]).write_bytes(by_pillow(picture(40, 40)))
    assert torch.equal(data.__getitems__([3])[0][0], expected(paths)[3])


def table(paths: list[str]) -> Files:
    return source(paths).files(torch.arange(len(paths)), None)


def test_measuring(paths: list[str], tmp_path: Path) -> None:
    large = tmp_path / "large.jpg"
    exif = b"Exif\0\0" + bytes(60_000)  # its sizes come after the first 64 KiB
    photo = by_pillow(picture(20, 30))
    segment = b"\xff\xe1" + (len(exif) + 2).to_bytes(2, "big") + exif
    large.write_bytes(photo[:2] + segment + segment + photo[2:])
    files = [*paths, str(large), str(tmp_path / "missing.jpg")]
    sizes = measure_photos(table(files), threads=2)
    assert sizes.tolist() == [*map(list, SHAPES), [20, 30], [0, 0]]


def test_each_photo_fails_alone(paths: list[str]) -> None:
    out = torch.empty(3, 3, 16, 16, dtype=torch.uint8)
    boxes = torch.tensor([[0, 0, 16, 16], [0, 0, 16, 999], [0, 0, 16, 16]])
    assert read_photos(out, table(paths[:3]), boxes, scaled=False, threads=2).tolist() == [0, 1, 0]
    assert torch.equal(out[2], whole(Path(paths[2]).read_bytes()))


@pytest.mark.parametrize(
    "change",
    [
        {"out": torch.empty(1, 3, 8, 9, dtype=torch.uint8)},
        {"out": torch.empty(1, 1, 8, 8, dtype=torch.uint8)},
        {"out": torch.empty(1, 3, 8, 8)},
        {"out": torch.empty(2, 3, 8, 8, dtype=torch.uint8)},
        {"out": torch.empty(1, 3, 8, 16, dtype=torch.uint8)[..., ::2]},
        {"chosen": torch.tensor([6])},
        {"chosen": torch.tensor([-1])},
        {"chosen": torch.tensor([0], dtype=torch.int32)},
        {"boxes": torch.tensor([[0, 0, 8]])},
        {"boxes": torch.tensor([[0.0, 0, 8, 8]])},
        {"threads": 0},
    ],
    ids=" ".join,
)
def test_wrong_arguments_are_refused(paths: list[str], change: dict[str, object]) -> None:
    arguments = {
        "out": torch.empty(1, 3, 8, 8, dtype=torch.uint8),
        "files": table(paths)._replace(chosen=torch.tensor([0])),
        "boxes": torch.tensor([[0, 0, 8, 8]]),
        "scaled": False,
        "threads": 1,
    }
    if "chosen" in change:
        change = {"files": table(paths)._replace(**change)}
    with pytest.raises(RuntimeError):
        read_photos(**{**arguments, **change})


def test_operators_keep_torchs_rules(paths: list[str]) -> None:
    load(LIBRARY)
    files = table(paths[:2])
    photo = torch.from_numpy(np.fromfile(paths[0], dtype=np.uint8))
    out = torch.empty(2, 3, 8, 8, dtype=torch.uint8)
    boxes = torch.tensor([[0, 0, 8, 8], [1, 1, 20, 20]])
    operators = torch.ops.strobe
    for operator, arguments in (
        (operators.decode_crop_jpeg.default, (photo, 1, 2, 8, 9)),
        (operators.measure_photos.default, (*files, 1)),
        (operators.measure_photos.default, (photo, torch.tensor([len(photo)]), None, 1)),
        (operators.read_photos.default, (out, *files, boxes, True, 1)),
    ):
        torch.library.opcheck(operator, arguments)


def test_of_no_photo() -> None:
    out = torch.empty(0, 3, 8, 8, dtype=torch.uint8)
    assert read_photos(out, table([]), torch.empty(0, 4, dtype=torch.int64), scaled=True, threads=2).tolist() == []
