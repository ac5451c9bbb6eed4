"""Data sets of tiles: which files, in which split, and what becomes of their pixels."""

import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from strobe.app.data.base import SPLITS, stratified_split
from support.composing import composed_data
from support.files import NO_FILES, no_file
from support.places import DATA
from support.refusals import refusal
from support.tiffs import LONG, tiff

# EuroSAT's, in file order: B01 to B08, B09, B10, B11, B12, B8A.
MEAN = np.array(
    [1354.41, 1118.24, 1042.93, 947.63, 1199.47, 1999.79, 2369.22, 2296.83, 732.08, 12.11, 1819.01, 1118.92, 2594.14]
)
STD = np.array(
    [245.72, 333.01, 395.09, 593.75, 566.42, 861.18, 1086.63, 1117.98, 404.92, 4.78, 1002.59, 761.30, 1231.59]
)
BANDS = {"rgb": [3, 2, 1], "all": list(range(13)), "[12,0]": [12, 0], "[1,2,3,7]": [1, 2, 3, 7]}


def eurosat(root: Path, *overrides: str) -> Any:
    data = composed_data("data=eurosat", f"data.root={root}", "data.batch_size=8", *overrides)
    data.setup()
    return data


def files(data: Any) -> dict[str, list[str]]:
    return {split: [source.path(index) for index in range(len(source))] for split, source in data.found.items()}


def test_splits_hold_each_class_in_the_same_share(tiles: Path) -> None:
    data = eurosat(tiles)
    found = files(data)
    everything = sorted(str(path) for path in tiles.glob("*/*.tif"))
    assert sorted(path for split in SPLITS for path in found[split]) == everything
    for split, share in (("train", 0.8), ("val", 0.1), ("test", 0.1)):
        assert len(found[split]) == pytest.approx(share * len(everything), abs=1)
        counts = Counter(Path(path).parent.name for path in found[split])
        whole = Counter(Path(path).parent.name for path in everything)
        assert {name: counts[name] - share * whole[name] for name in whole} == pytest.approx(
            dict.fromkeys(whole, 0), abs=2
        )
        labels = data.datasets[split].source.labels.tolist()
        assert [data.classes[label] for label in labels] == [Path(path).parent.name for path in found[split]]
    assert list(data.classes) == sorted(whole)


@pytest.mark.parametrize("size", [3, 4, 7, 10, 51, 81, 2500])
@pytest.mark.parametrize("fraction", [0.01, 0.5, 0.8, 0.99])
def test_any_class_is_split_without_loss(size: int, fraction: float) -> None:
    labels = [0] * size + [1] * 100
    held_out = (1 - fraction) / 2
    parts = stratified_split(labels, (fraction, held_out, held_out), seed=1)
    assert sorted(index for part in parts for index in part) == list(range(size + 100))
    for part, share in zip(parts, (fraction, held_out, held_out), strict=True):
        members = sum(index < size for index in part)
        assert members >= 1
        assert abs(members - share * size) < 2


def test_the_seed_alone_changes_the_split(tiles: Path) -> None:
    first = files(eurosat(tiles))
    assert files(eurosat(tiles, "seed=7", "data.batch_size=3")) == first
    other = files(eurosat(tiles, "data.seed=43"))
    assert all(set(other[split]) != set(first[split]) for split in SPLITS)


@pytest.fixture
def own(sample_root: Path, tmp_path: Path) -> Path:
    """Three classes without the marker of generated data, below ``EuroSAT_MS``."""
    for kind in ("Forest", "River", "SeaLake"):
        shutil.copytree(sample_root / "tiles" / "seed42-10" / kind, tmp_path / "EuroSAT_MS" / kind)
    return tmp_path / "EuroSAT_MS"


@pytest.mark.parametrize(
    ("few", "words"),
    [
        (0, ["OWN/Few holds no .tif, .tiff file; add tiles or remove the folder"]),
        (1, ["OWN/Few holds 1 tile, but at least 3 are needed"]),
        (2, ["OWN/Few holds 2 tiles, but at least 3 are needed"]),
        ("sets", ["data.root=", "several sets of tiles (EuroSAT_MS, other)"]),
        ("alone", ["OWN holds one class, Forest; put the tiles of at least two classes"]),
        ("no image", ["OWN/Forest/", "cannot be read as a tile"]),
    ],
)
def test_a_folder_that_does_not_do_is_refused(own: Path, few: int | str, words: list[str]) -> None:
    root = own
    if isinstance(few, int):
        (own / "Few").mkdir()
        for tile in sorted((own / "River").iterdir())[:few]:
            shutil.copy(tile, own / "Few")
    elif few == "sets":
        root = Path(shutil.copytree(own, own.parent / "other")).parent
    elif few == "alone":
        for kind in ("River", "SeaLake"):
            shutil.rmtree(own / kind)
    else:
        min(own.glob("*/*.tif")).write_text(few)
    text = refusal(lambda: eurosat(root))
    assert all(word.replace("OWN", str(own)) in text for word in words)


@pytest.mark.parametrize("below", [False, True])
def test_hidden_folders_and_files_are_not_seen(own: Path, below: bool, caplog: pytest.LogCaptureFixture) -> None:
    expected = files(eurosat(own))
    shutil.copytree(own / "River", own / ".thumbnails")
    shutil.copytree(own, own.parent / ".trash")
    (own / ".cache").mkdir()
    shutil.copytree(own / "River", own / ".old" / "deeper")
    (own / ".pipes").mkdir()
    os.mkfifo(own / ".pipes" / "River_1.tif")
    (own / "River" / "._River_1.tif").write_bytes(b"macOS keeps attributes here")
    (own / "River" / "README.txt").write_text("no tile")
    data = eurosat(own.parent if below else own)
    assert files(data) == expected
    assert data.classes == ("Forest", "River", "SeaLake")
    assert data.title == "EuroSAT"
    assert not data.generated
    assert caplog.messages == [
        f"{own}/{name} is left out, because its name begins with a dot; rename it if it is a class"
        for name in (".old", ".pipes", ".thumbnails")
    ]


@pytest.mark.parametrize("kind", NO_FILES)
def test_what_is_no_file_is_named_and_not_waited_for(own: Path, kind: str) -> None:
    (own / "River" / "folder.tif").mkdir()
    (own / "River" / "link.tif").symlink_to(own / "Forest" / "Forest_1.tif")
    assert any(f"{own}/River/link.tif" in paths for paths in files(eurosat(own)).values())
    strange = no_file(own / "River" / "x.tif", kind)
    assert refusal(lambda: eurosat(own)).startswith(f"{strange} is a pipe, a socket or a link to nothing")


def test_a_first_tile_that_claims_to_be_huge_is_refused(own: Path) -> None:
    bomb = tiff(np.zeros((13, 4, 4), np.uint16), changes={256: (LONG, [30_000]), 257: (LONG, [30_000])})
    first = min((own / "Forest").iterdir())
    first.write_bytes(bomb)
    assert refusal(lambda: eurosat(own)).startswith(f"{first} cannot be read as a tile (it has more than 89,478,485")


@pytest.mark.parametrize("folder", ["tiles", "tiles/seed42-10"])
def test_generated_tiles_are_called_so_wherever_they_come_from(sample_root: Path, folder: str) -> None:
    data = eurosat(sample_root / folder)
    assert data.generated
    assert data.title == "generated sample data"


def test_the_sample_is_never_taken_for_eurosat(sample_root: Path) -> None:
    data = composed_data(f"data.root={sample_root}", "data.tiles_per_class=10")
    data.prepare_data()
    data.setup()
    assert data.generated
    assert data.title == "generated sample data"
    assert "holds no <Class>/*.tif" in refusal(lambda: eurosat(sample_root))


@pytest.mark.parametrize(("bands", "full_scale"), list(zip(BANDS, [4000, 10000] * 2, strict=True)))
def test_integers_become_standardised_floats(sample_root: Path, bands: str, full_scale: int) -> None:
    data = eurosat(sample_root / "tiles", f"data.bands={bands}", f"data.full_scale={full_scale}")
    chosen = BANDS[bands]
    assert data.channels == len(chosen)
    pixels = np.random.default_rng(1).integers(0, 2**16, (2, len(chosen), 5, 4), dtype=np.uint16)
    pixels[0, :, 0, :3] = 0, full_scale, 65535
    given = torch.from_numpy(pixels.copy())
    images = data.normalise(given)
    mean, std = (values[chosen].reshape(-1, 1, 1) / full_scale for values in (MEAN, STD))
    expected = (np.clip(pixels / full_scale, 0, 1) - mean) / std
    assert images.dtype == torch.float32
    np.testing.assert_allclose(images.numpy(), expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(given.numpy(), pixels)


@pytest.mark.parametrize(
    ("bands", "channels"),
    [("rgb", [0, 1, 2]), ("all", [3, 2, 1]), ("[1,2,3,7]", [2, 1, 0]), ("[12,0]", [0]), ("[1,2]", [0])],
)
def test_colours_come_back(sample_root: Path, bands: str, channels: list[int]) -> None:
    data = eurosat(sample_root / "tiles", f"data.bands={bands}")
    pixels = torch.rand(2, data.channels, 4, 4)
    pixels[0, :, 0, :2] = torch.tensor([0.0, 1.0])
    colours = data.to_rgb(data.normalise(pixels.clone()))
    torch.testing.assert_close(colours, pixels[:, channels], rtol=1e-4, atol=1e-5)
    assert colours.min() >= 0
    assert colours.max() <= 1


def test_bands_are_in_the_files_order(tiles: Path) -> None:
    """B10, cirrus, sees almost nothing: its index gives a swapped order away."""
    data = eurosat(tiles, "data.bands=all", "data.val_batch_size=1000")
    pixels, _ = next(iter(data.val_dataloader()))
    means = pixels.double().mean((0, 2, 3))
    assert means[9] == pytest.approx(12, abs=4)
    assert means.argmin() == 9
    if tiles.is_relative_to(DATA):
        np.testing.assert_allclose(means, MEAN, rtol=0.25)
