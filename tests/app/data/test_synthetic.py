"""The generated tiles: EuroSAT's form on disk, reproducible pixels, and a folder that is complete or absent."""

import errno
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import rasterio
import tifffile
from numpy.typing import NDArray

from strobe.app.data import synthetic
from strobe.app.data.synthetic import CLASSES, MARKER, generate, is_generated
from strobe.app.storage.local import LocalFolder
from strobe.errors import DataError
from support.files import names, plant, tree

PER_CLASS = 12
FORM = {
    "ImageWidth": 64,
    "ImageLength": 64,
    "BitsPerSample": (16,) * 13,
    "Compression": 1,
    "PhotometricInterpretation": 1,
    "SamplesPerPixel": 13,
    "RowsPerStrip": 4,
    "StripByteCounts": (4 * 64 * 13 * 2,) * 16,
    "PlanarConfiguration": 1,
    "ExtraSamples": (0,) * 12,
    "SampleFormat": (1,) * 13,
}
# Of the 27,000 real tiles, in file order: B01 to B12, then B8A.
REAL_MEAN = [1354, 1118, 1043, 948, 1199, 2000, 2369, 2297, 732, 12, 1819, 1119, 2594]
REAL_STD = [246, 333, 395, 594, 566, 861, 1087, 1118, 405, 5, 1003, 761, 1232]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return generate(tmp_path_factory.mktemp("data") / "tiles", tiles_per_class=PER_CLASS)


@pytest.fixture(scope="module")
def pixels(made: Path) -> NDArray[np.float64]:
    """Every tile, (class, tile, 64, 64, 13)."""
    return np.array(
        [
            [tifffile.imread(made / name / f"{name}_{number}.tif") for number in range(1, PER_CLASS + 1)]
            for name in CLASSES
        ],
        dtype=np.float64,
    )


def _form(path: Path) -> dict[str, object]:
    with tifffile.TiffFile(path) as file:
        assert file.byteorder == "<"
        return {name: file.pages.first.tags[name].value for name in FORM}


def test_set_holds_each_class_and_the_marker(made: Path) -> None:
    expected = {f"{name}/{name}_{number}.tif" for name in CLASSES for number in range(1, PER_CLASS + 1)}
    assert set(tree(made)) == expected | {MARKER}
    assert f"seed 42, {PER_CLASS} tiles per class" in (made / MARKER).read_text()


def test_every_tile_has_eurosats_form(made: Path, tiles: Path) -> None:
    """As the real ones have, where there are some."""
    assert {path.name for path in tiles.iterdir() if path.is_dir()} == set(CLASSES)
    for path in (*made.glob("*/*.tif"), *(next((tiles / name).glob("*.tif")) for name in CLASSES)):
        assert _form(path) == FORM


def test_tiles_lie_in_utm_with_10_m_pixels(made: Path) -> None:
    zones = set()
    for path in made.glob("*/*_1.tif"):
        with rasterio.open(path) as tile:
            assert tile.res == (10, 10)
            zones.add(tile.crs.to_epsg())
    assert len(zones) > 1
    assert zones <= set(range(32629, 32636))


def test_tile_depends_on_the_seed_alone(made: Path, tmp_path: Path) -> None:
    few = tree(generate(tmp_path / "few", tiles_per_class=2))
    other = tree(generate(tmp_path / "other", tiles_per_class=2, seed=7))
    many = tree(made)
    del few[MARKER]
    assert all(many[name] == tile for name, tile in few.items())
    assert all(other[name] != tile for name, tile in few.items())
    assert len(set(many.values())) == len(many)


def test_band_statistics_are_near_the_real_ones(pixels: NDArray[np.float64]) -> None:
    np.testing.assert_allclose(pixels.mean((0, 1, 2, 3)), REAL_MEAN, rtol=0.2)
    np.testing.assert_allclose(pixels.std((0, 1, 2, 3)), REAL_STD, rtol=0.35)
    assert pixels.min() >= 1


def test_classes_can_be_told_apart_and_not_trivially(pixels: NDArray[np.float64]) -> None:
    rgb = pixels[..., [3, 2, 1]]
    features = np.concatenate([rgb.mean((2, 3)), rgb.std((2, 3))], axis=-1)
    features /= features.std((0, 1))
    centroids = features[:, ::2].mean(1)
    distances = np.linalg.norm(features[:, 1::2, None] - centroids, axis=-1)
    accuracy = (distances.argmin(-1) == np.arange(len(CLASSES))[:, None]).mean()
    assert 0.4 < accuracy < 0.97


def test_leftovers_of_a_crash_go_and_a_complete_set_is_left_alone(tmp_path: Path) -> None:
    plant(tmp_path / ".tiles.partial", {"Forest/Forest_999.tif": b"half"})
    root = generate(tmp_path / "tiles", tiles_per_class=1)
    assert names(tmp_path) == [".tiles.lock", "tiles"]
    assert not (root / "Forest" / "Forest_999.tif").exists()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert generate(root, tiles_per_class=1) == root
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_processes_that_start_together_make_one_set(tmp_path: Path) -> None:
    roots = [tmp_path / "deep" / "tiles"] * 2
    with ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as pool:
        assert list(pool.map(partial(generate, tiles_per_class=2), roots)) == roots
    assert len(tree(roots[0])) == 2 * len(CLASSES) + 1
    assert {path.name for path in roots[0].parent.iterdir()} == {"tiles", ".tiles.lock"}


@pytest.mark.parametrize(
    ("failure", "raised"),
    [
        (KeyboardInterrupt(), KeyboardInterrupt),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), DataError),
    ],
)
def test_nothing_half_written_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException, raised: type[BaseException]
) -> None:
    write = Path.write_bytes

    def stop(path: Path, data: bytes) -> int:
        if path.name.startswith("Highway"):
            raise failure
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", stop)
    root = tmp_path / "tiles"
    with pytest.raises(raised) as caught:
        generate(root, tiles_per_class=2)
    assert [path.name for path in tmp_path.iterdir()] == [".tiles.lock"]
    if raised is DataError:
        assert str(root) in str(caught.value)
        assert "No space left on device; they need 2 MB" in str(caught.value)


@pytest.mark.parametrize(
    ("files", "changed"),
    [({"thesis.txt": b"mine"}, {}), (None, {"seed": 7}), (None, {"tiles_per_class": 2}), (None, {"version": 0})],
    ids=["foreign", "seed", "size", "version"],
)
def test_another_set_is_refused_untouched(
    tmp_path: Path, files: dict[str, bytes] | None, changed: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "tiles"
    if files is None:
        generate(root, tiles_per_class=1)
    else:
        plant(root, files)
    before = tree(root)
    monkeypatch.setattr(synthetic, "_VERSION", changed.pop("version", synthetic._VERSION))
    with pytest.raises(DataError, match=r"tiles exists and is another set .* another data\.root, or delete"):
        generate(root, **{"tiles_per_class": 1, **changed})
    assert tree(root) == before


def test_file_where_a_folder_is_needed_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"file/tiles: .*need 64 MB"):
        generate(tmp_path / "file" / "tiles")


@pytest.mark.skipif(os.geteuid() == 0, reason="intended: root may write anywhere")
def test_folder_without_write_permission_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(DataError, match=str(tmp_path)):
        generate(tmp_path / "tiles")
    tmp_path.chmod(0o700)


def test_is_generated_knows_the_set_and_its_class_folders(made: Path) -> None:
    folder = LocalFolder(made)
    assert is_generated(folder)
    assert is_generated(folder / "Forest")
    assert not is_generated(folder.parent)
