"""The operator on tiles: what it reads, what it leaves to others, and what it refuses."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tifffile
import torch
from numpy.typing import NDArray

from strobe.app.loaders.sources import PathTable
from strobe.app.native.build import load
from strobe.app.native.files import Files
from strobe.app.native.tiles import LIBRARY, read_only, read_tiles
from support.building import needs_compiler
from support.tiffs import LONG, SHORT, tiff

pytestmark = needs_compiler()


def random(shape: tuple[int, int, int], seed: int = 0) -> NDArray[np.uint16]:
    return np.random.default_rng(seed).integers(0, 2**16, shape, dtype=np.uint16)


def read(
    paths: list[Path], shape: tuple[int, int, int], bands: list[int], threads: int = 1
) -> tuple[NDArray[np.uint16], list[int]]:
    out = torch.full((len(paths), len(bands), *shape[1:]), 7, dtype=torch.uint16)
    table = PathTable([str(path).replace("\0", "\1") for path in paths])
    table.text[table.text == 1] = 0  # no path on a disk holds one
    files = Files(table.text, table.ends, torch.arange(len(paths)))
    status = read_tiles(out, files, bands=bands, shape=shape, threads=threads)
    return out.numpy(), status.tolist()


def accepts(path: Path, shape: tuple[int, int, int]) -> bool:
    return read([path], shape, [0])[1] == [0]


@pytest.mark.parametrize("shape", [(13, 64, 64), (4, 5, 7), (3, 9, 9), (1, 8, 8), (2, 1, 1), (5, 3, 8)], ids=str)
def test_every_choice_of_bands_is_exact(shape: tuple[int, int, int], tmp_path: Path) -> None:
    pixels = random(shape)
    (tmp_path / "a.tif").write_bytes(tiff(pixels))
    count = shape[0]
    choices = [[band] for band in range(count)] + [list(range(count)), list(range(count))[::-1], [0] * 5, []]
    draw = np.random.default_rng(1)
    choices += [draw.integers(0, count, draw.integers(1, 9)).tolist() for _ in range(40)]
    for bands in choices:
        found, status = read([tmp_path / "a.tif"], shape, bands)
        assert status == [0]
        np.testing.assert_array_equal(found[0], pixels[bands])


READ = {
    "one strip": {"rows": 64},
    "strips that do not divide the height": {"rows": 5},
    "more rows a strip than the height": {"rows": 64, "changes": {278: (LONG, [2**32 - 1])}},
    "no rows a strip": {"rows": 64, "changes": {278: None}},
    "no sample format": {"changes": {339: None}},
    "one sample format for all": {"changes": {339: (SHORT, [1])}},
    "no compression": {"changes": {259: None}},
    "the directory behind the pixels": {"pixels_first": True},
    "long numbers": {"changes": {256: (LONG, [64]), 257: (LONG, [64]), 277: (LONG, [13])}},
    "one image deep": {"changes": {32997: (LONG, [1])}},
    "an unknown entry": {"changes": {65000: (LONG, [1, 2, 3])}},
}


@pytest.mark.parametrize("options", READ.values(), ids=READ)
def test_forms_that_are_read(options: dict[str, object], tmp_path: Path) -> None:
    pixels = random((13, 64, 64))
    content = tiff(pixels, **options)
    (tmp_path / "a.tif").write_bytes(content)
    np.testing.assert_array_equal(np.moveaxis(tifffile.imread(tmp_path / "a.tif"), -1, 0), pixels)
    found, status = read([tmp_path / "a.tif"], (13, 64, 64), [3, 2, 1])
    assert status == [0]
    np.testing.assert_array_equal(found[0], pixels[[3, 2, 1]])
    (tmp_path / "a.tif").write_bytes(content + bytes(100))  # something may follow
    assert accepts(tmp_path / "a.tif", (13, 64, 64))


LEFT = {
    "8 bits": {"changes": {258: (SHORT, [8] * 13)}},
    "bits of one sample only": {"changes": {258: (SHORT, [16])}},
    "signed": {"changes": {339: (SHORT, [2] * 13)}},
    "float": {"changes": {339: (SHORT, [3])}},
    "compressed": {"changes": {259: (SHORT, [5])}},
    "planar": {"changes": {284: (SHORT, [2])}},
    "predictor": {"changes": {317: (SHORT, [2])}},
    "YCbCr": {"changes": {262: (SHORT, [6])}},
    "several images deep": {"changes": {32997: (LONG, [3])}},
    "fill order": {"changes": {266: (SHORT, [2])}},
    "tiled": {"changes": {322: (SHORT, [64])}},
    "pyramid": {"changes": {330: (LONG, [8])}},
    "a gap between strips": {"gap": 2},
    "another page": {"next_page": 8},
    "another width": {"changes": {256: (SHORT, [32])}},
    "no width": {"changes": {256: None}},
    "no strips": {"changes": {273: None}},
    "no sizes of strips": {"changes": {279: None}},
    "strips beyond the file": {"changes": {273: (LONG, [2**32 - 6656 * (16 - i) for i in range(16)])}},
    "a strip that is too short": {"changes": {279: (LONG, [6656] * 15 + [6655])}},
    "a strip that is too long": {"changes": {279: (LONG, [6656] * 15 + [6657])}},
    "too few strips": {"changes": {273: (LONG, [500])}},
    "no rows in a strip": {"changes": {278: (SHORT, [0])}},
    "no value": {"changes": {278: (SHORT, [])}},
    "numbers of another type": {"changes": {278: (SHORT, [4, 4])}},
}


@pytest.mark.parametrize("options", LEFT.values(), ids=LEFT)
def test_forms_that_are_left_to_others(options: dict[str, object], tmp_path: Path) -> None:
    whole = {279: (LONG, [6656] * 16)} if "gap" not in options else {}
    changes = {**whole, **options.get("changes", {})}
    (tmp_path / "a.tif").write_bytes(tiff(random((13, 64, 64)), **{**options, "changes": changes}))
    assert not accepts(tmp_path / "a.tif", (13, 64, 64))


@pytest.mark.parametrize("how", [{"truncate": True}, {"imagej": True, "truncate": True}], ids=str)
def test_several_images_under_one_directory_are_left_to_others(how: dict[str, bool], tmp_path: Path) -> None:
    tifffile.imwrite(tmp_path / "a.tif", random((3, 8, 9)), photometric="minisblack", **how)
    with tifffile.TiffFile(tmp_path / "a.tif") as found:
        assert found.asarray().shape == (3, 8, 9)
    assert not accepts(tmp_path / "a.tif", (1, 8, 9))
    tifffile.imwrite(tmp_path / "a.tif", random((8, 9, 3)), photometric="minisblack", planarconfig="contig")
    assert accepts(tmp_path / "a.tif", (3, 8, 9))


def test_a_file_is_read_by_its_own_length(tmp_path: Path) -> None:
    content = tiff(random((13, 64, 64)))
    for length in (0, 1, 7, 8, 9, 100, len(content) // 2, len(content) - 1):
        (tmp_path / "a.tif").write_bytes(content[:length])
        assert not accepts(tmp_path / "a.tif", (13, 64, 64))


def test_nothing_but_files_is_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    good = tmp_path / "good"
    good.write_bytes(tiff(random((13, 64, 64))))
    writer = os.open(tmp_path / "pipe", os.O_RDWR)
    os.write(writer, good.read_bytes()[:1000])
    (tmp_path / "link").symlink_to(good)
    names = ["pipe", "folder", "missing", "good\0x", "x" * 300, "y/" * 3000, "link", "good"]
    table = [tmp_path / name for name in names] + [Path("/dev/zero"), Path("/dev/tty")]
    assert read(table, (13, 64, 64), [0])[1] == [1, 1, 1, 1, 1, 1, 0, 0, 1, 1]
    assert len(os.read(writer, 2000)) == 1000  # what was in the pipe is there still
    os.close(writer)


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_threads_fill_their_own_places(threads: int, tmp_path: Path) -> None:
    expected = [random((4, 6, 6), seed) for seed in range(23)]
    for number, pixels in enumerate(expected):
        (tmp_path / f"{number}.tif").write_bytes(tiff(pixels))
    (tmp_path / "11.tif").unlink()
    paths = [tmp_path / f"{number}.tif" for number in range(23)]
    for _ in range(20):
        found, status = read(paths, (4, 6, 6), [2, 0], threads)
        assert status == [number == 11 for number in range(23)]
        for number in set(range(23)) - {11}:
            np.testing.assert_array_equal(found[number], expected[number][[2, 0]])


def test_several_callers_share_the_threads(tmp_path: Path) -> None:
    pixels = [random((4, 6, 6), seed) for seed in range(9)]
    for number, tile in enumerate(pixels):
        (tmp_path / f"{number}.tif").write_bytes(tiff(tile))

    def call(first: int) -> bool:
        order = [(first + i) % 9 for i in range(9)]
        found, status = read([tmp_path / f"{number}.tif" for number in order], (4, 6, 6), [3, 1], threads=3)
        return not any(status) and all(
            np.array_equal(tile, pixels[number][[3, 1]]) for number, tile in zip(order, found, strict=True)
        )

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(call, range(400)))


def test_the_floor_reads_every_byte(tmp_path: Path) -> None:
    sizes = [0, 1, 5000, 2**20, 2**20 + 1, 3 * 2**20]
    for size in sizes:
        (tmp_path / str(size)).write_bytes(bytes(size))
    table = PathTable([str(tmp_path / str(size)) for size in sizes] + [str(tmp_path / "missing")])
    assert read_only(Files(table.text, table.ends, torch.arange(len(table))), threads=2) == sum(sizes)


def test_real_tiles_are_read_without_help(tiles: Path) -> None:
    paths = sorted(tiles.glob("*/*.tif"))[::5]
    found, status = read(paths, (13, 64, 64), [12, 9, 3])
    assert not any(status)
    for path, pixels in zip(paths, found, strict=True):
        np.testing.assert_array_equal(np.moveaxis(tifffile.imread(path)[..., [12, 9, 3]], -1, 0), pixels)


WRONG = {
    "dtype": ({"out": torch.empty(1, 1, 2, 2, dtype=torch.int32)}, "out must be a contiguous tensor"),
    "strides": ({"out": torch.empty(1, 1, 2, 4, dtype=torch.uint16)[..., ::2]}, "out must be a contiguous tensor"),
    "size": ({"out": torch.empty(2, 1, 2, 2, dtype=torch.uint16)}, "out must be files x bands x height x width"),
    "file": ({"files": torch.tensor([1])}, "file 1 of 1"),
    "negative file": ({"files": torch.tensor([-1])}, "file -1 of 1"),
    "files": ({"files": torch.tensor([0], dtype=torch.int32)}, "files must be"),
    "ends": ({"ends": torch.tensor([2])}, "file 0 of 1"),
    "text": ({"text": torch.zeros(1, dtype=torch.int64)}, "text must be"),
    "band": ({"bands": [2]}, "band 2 of 2"),
    "negative band": ({"bands": [-1]}, "band -1 of 2"),
    "shape": ({"shape": [2, 2]}, "shape must be"),
    "huge shape": ({"shape": [2, 2**40, 2**40]}, "a side of"),
    "empty shape": ({"shape": [2, 0, 2]}, "a side of 0"),
    "threads": ({"threads": 0}, "threads must be"),
}


@pytest.mark.parametrize(("change", "message"), WRONG.values(), ids=WRONG)
def test_arguments_are_checked(change: dict[str, object], message: str) -> None:
    load(LIBRARY)
    arguments = {
        "out": torch.empty(1, 1, 2, 2, dtype=torch.uint16),
        "text": torch.zeros(1, dtype=torch.uint8),
        "ends": torch.tensor([1]),
        "files": torch.tensor([0]),
        "bands": [0],
        "shape": [2, 2, 2],
        "threads": 1,
    }
    assert torch.ops.strobe.read_tiles(**arguments).tolist() == [1]
    with pytest.raises(RuntimeError, match=message):
        torch.ops.strobe.read_tiles(**{**arguments, **change})


def test_the_operator_keeps_torchs_rules(tmp_path: Path) -> None:
    load(LIBRARY)
    (tmp_path / "a.tif").write_bytes(tiff(random((4, 6, 6))))
    paths, content = PathTable([str(tmp_path / "a.tif")]), np.fromfile(tmp_path / "a.tif", np.uint8)
    held = Files(torch.from_numpy(content), torch.tensor([len(content)]))
    for files in (Files(paths.text, paths.ends, torch.tensor([0])), held):
        arguments = (torch.zeros(1, 2, 6, 6, dtype=torch.uint16), *files, [2, 0], [4, 6, 6], 1)
        torch.library.opcheck(torch.ops.strobe.read_tiles.default, arguments)
