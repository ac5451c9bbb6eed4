"""Every loader keeps the same promises; new ones are found by listing conf/loader."""

from pathlib import Path

import numpy as np
import pytest
import tifffile
import torch
from numpy.typing import NDArray

from strobe.app.engines.base import WholeBatches
from strobe.app.engines.sampler import Indices
from strobe.app.loaders import skimage
from strobe.app.loaders.base import Loader
from strobe.app.loaders.sources import ArraySource, PathTable, TileSource
from support.choices import choices
from support.choices import make as made
from support.files import DAMAGES, damaged
from support.refusals import refusal
from support.tiffs import LONG, tiff

CHOICES = choices("loader")
TILE_LOADERS = [name for name, node in CHOICES.items() if "tiles" in node.reads]
ARRAY_LOADERS = [name for name, node in CHOICES.items() if "array" in node.reads]
BANDS = [(3, 2, 1), tuple(range(13)), (12, 0)]


def make(name: str, **options: object) -> Loader:
    """The loader as its schema has it, but for ``options``."""
    loader: Loader = made(CHOICES[name], **options)
    return loader


def reference(path: str, bands: tuple[int, ...]) -> NDArray[np.uint16]:
    """Pixels by hand, from the directory's strips: no library that a loader uses."""
    data = Path(path).read_bytes()
    order = "<" if data[:2] == b"II" else ">"

    def number(at: int, kind: str) -> int:
        return int(np.frombuffer(data, order + kind, 1, at)[0])

    directory = number(4, "u4")
    tags = {}
    for entry in range(number(directory, "u2")):
        at = directory + 2 + 12 * entry
        tag, size, count = number(at, "u2"), {3: 2, 4: 4}.get(number(at + 2, "u2"), 0), number(at + 4, "u4")
        if size:
            start = at + 8 if size * count <= 4 else number(at + 8, "u4")
            tags[tag] = np.frombuffer(data, f"{order}u{size}", count, start)
    strips = [data[start : start + size] for start, size in zip(tags[273], tags[279], strict=True)]
    height, width, samples = (int(tags[tag][0]) for tag in (257, 256, 277))
    pixels = np.frombuffer(b"".join(strips), order + "u2").reshape(height, width, samples)
    return np.stack([pixels[..., band] for band in bands])


def source(paths: list[str], bands: tuple[int, ...] = (3, 2, 1), bands_in_file: int = 13) -> TileSource:
    everything = torch.arange(len(paths))
    return TileSource(PathTable(paths), everything, everything, (bands_in_file, 64, 64), bands, 4000.0)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loader may keep files below the working directory."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def paths(tiles: Path) -> list[str]:
    return [str(path) for path in sorted(tiles.glob("*/*.tif"))[::7]]


def test_there_are_loaders_for_each_form() -> None:
    assert {"rasterio", "skimage", "tifffile"} <= set(TILE_LOADERS)
    assert "memory" in ARRAY_LOADERS


@pytest.mark.parametrize("bands", BANDS, ids=str)
@pytest.mark.parametrize("name", TILE_LOADERS)
def test_pixels_equal_the_reference(name: str, bands: tuple[int, ...], paths: list[str]) -> None:
    dataset = make(name).dataset(source(paths, bands))
    assert len(dataset) == len(paths)
    order = np.random.default_rng(1).permutation(len(paths)).tolist()
    batch, labels = WholeBatches(dataset).__getitems__(Indices(order, split="train", epoch=0, number=0))
    assert labels.tolist() == order
    for place, index in enumerate(order):
        expected = reference(paths[index], bands)
        pixels, label = dataset[index]
        assert pixels.dtype == torch.uint16
        np.testing.assert_array_equal(pixels.numpy(), expected)
        np.testing.assert_array_equal(batch[place].numpy(), expected)
        assert label == index


@pytest.mark.parametrize("scale", ["numpy", "torch"])
@pytest.mark.parametrize("name", TILE_LOADERS)
def test_scaled_pixels_equal_the_reference(name: str, scale: str, paths: list[str]) -> None:
    dataset = make(name, scale=scale).dataset(source(paths[:5]))
    for index, path in enumerate(paths[:5]):
        pixels, _ = dataset[index]
        assert pixels.dtype == torch.float32
        expected = np.clip(reference(path, (3, 2, 1)) / 4000, 0, 1)
        np.testing.assert_allclose(pixels.numpy(), expected, rtol=2e-7)


@pytest.mark.parametrize("kind", [kind for kind in DAMAGES if kind != "end missing"])
@pytest.mark.parametrize("name", TILE_LOADERS)
def test_an_unreadable_tile_is_named(name: str, kind: str, paths: list[str], tmp_path: Path) -> None:
    bad = damaged(tmp_path / "bad.tif", Path(paths[0]).read_bytes(), kind)
    assert f"{bad} cannot be read as a tile" in refusal(lambda: make(name).dataset(source([bad]))[0])


@pytest.mark.parametrize(
    ("shape", "told"),
    [
        ((32, 32, 13), "13 bands of 32x32"),
        ((64, 64, 4), "4 bands of 64x64"),
        ((64, 64), "1 band of 64x64"),
        ((2, 64, 64, 13), "2 pages of 13 bands of 64x64"),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", TILE_LOADERS)
def test_a_tile_of_another_shape_is_named_with_both(
    name: str, shape: tuple[int, ...], told: str, paths: list[str], tmp_path: Path
) -> None:
    odd = tmp_path / "odd.tif"
    tifffile.imwrite(odd, np.zeros(shape, np.uint16), planarconfig="contig" if len(shape) > 2 else None)
    both = source([paths[0], str(odd)])
    text = refusal(lambda: make(name).dataset(both)[1])
    assert f"{odd} has {told}, but {paths[0]} has 13 bands of 64x64; " in text


@pytest.mark.parametrize("name", TILE_LOADERS)
def test_a_tile_of_another_type_is_named(name: str, tmp_path: Path) -> None:
    odd = tmp_path / "odd.tif"
    tifffile.imwrite(odd, np.zeros((64, 64, 13), np.float32), planarconfig="contig")
    text = refusal(lambda: make(name).dataset(source([str(odd)]))[0])
    assert text.startswith(f"{odd} has float32 pixels, but tiles must be uint16; convert")


@pytest.mark.parametrize("name", TILE_LOADERS)
def test_a_small_file_that_claims_to_be_huge_is_not_decoded(name: str, paths: list[str], tmp_path: Path) -> None:
    bomb = tmp_path / "bomb.tif"
    bomb.write_bytes(tiff(np.zeros((13, 64, 64), np.uint16), changes={256: (LONG, [30_000]), 257: (LONG, [30_000])}))
    text = refusal(lambda: make(name).dataset(source([paths[0], str(bomb)]))[1])
    assert f"{bomb} has 13 bands of 30000x30000, but " in text


@pytest.mark.parametrize("order", ["<", ">"])
def test_a_plain_tile_is_known_by_its_first_bytes(order: str, paths: list[str], tmp_path: Path) -> None:
    """Of which scikit-image's loader asks no more."""
    assert skimage._states(Path(paths[0]).read_bytes(), (13, 64, 64))
    plain, pages = str(tmp_path / "plain.tif"), str(tmp_path / "pages.tif")
    for path, shape in ((plain, (5, 6, 4)), (pages, (2, 5, 6, 4))):
        tifffile.imwrite(path, np.zeros(shape, np.uint16), planarconfig="contig", byteorder=order)
    wanted = [(4, 5, 6), (4, 6, 5), (3, 5, 6)]
    assert [skimage._states(Path(plain).read_bytes(), shape) for shape in wanted] == [True, False, False]
    assert not skimage._states(Path(pages).read_bytes(), (4, 5, 6))


@pytest.mark.parametrize("name", TILE_LOADERS)
def test_bands_may_lie_one_after_the_other(name: str, tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 2**16, (13, 64, 64), dtype=np.uint16)
    tifffile.imwrite(tmp_path / "planar.tif", pixels, planarconfig="separate", photometric="minisblack")
    tile, files = tmp_path / "planar.tif", source([str(tmp_path / "planar.tif")])
    found, _ = make(name).dataset(files)[0]
    np.testing.assert_array_equal(found.numpy(), pixels[[3, 2, 1]])
    if name in ("rasterio", "skimage", "tifffile"):  # others have their own entry for bytes
        np.testing.assert_array_equal(make(name).of_bytes(str(tile), tile.read_bytes(), files), pixels[[3, 2, 1]])


@pytest.mark.parametrize("scale", ["device", "numpy", "torch"])
@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("name", ARRAY_LOADERS)
def test_arrays_give_the_chosen_images(name: str, batched: bool, scale: str) -> None:
    images = torch.randint(256, (20, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    chosen = torch.tensor([3, 17, 5, 11])
    dataset = make(name, batched=batched, scale=scale).dataset(ArraySource(images, torch.arange(20), chosen))
    assert len(dataset) == 4
    wanted = [2, 0, 3]
    fetched = dataset.__getitems__(wanted) if batched else [dataset[i] for i in wanted]
    pixels, labels = dataset.collate(fetched)
    expected = images[[5, 3, 11]]
    assert labels.tolist() == [5, 3, 11]
    if scale == "device":
        assert torch.equal(pixels, expected)
    else:
        torch.testing.assert_close(pixels, expected.float() / 255)
