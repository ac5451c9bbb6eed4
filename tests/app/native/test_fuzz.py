"""Damaged photos and hostile TIFFs, by the thousand, under sanitizers: no crash, no over-read, no leak."""

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from strobe.app.native.build import SOURCES
from strobe.app.native.system import compiler
from support.jpegs import SAMPLINGS, built, by_pillow, encoded, needs_compiler, picture
from support.tiffs import LONG, tiff

SANITIZE = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", f"-I{SOURCES}")
SHAPE = (5, 8, 9)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For programs; skips where the compiler has no sanitizers."""
    folder = tmp_path_factory.mktemp("fuzz")
    (folder / "empty.cpp").write_text("int main() {}\n")
    probe = [str(compiler()), *SANITIZE, str(folder / "empty.cpp"), "-o", str(folder / "empty")]
    if compiler() is None or subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("there is no compiler with sanitizers")
    return folder


def counted(program: Path, *arguments: object) -> list[int]:
    """The numbers that the program prints; a sanitizer's report is this test's failure."""
    environment = {"ASAN_OPTIONS": "detect_leaks=1", "UBSAN_OPTIONS": "print_stacktrace=1"}
    command = [str(program), *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=500)
    assert (done.returncode, done.stderr) == (0, "")
    return [int(number) for number in re.findall(r"\d+", done.stdout)]


@needs_compiler()
@pytest.mark.parametrize("inputs", [2_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_damaged_photos_do_no_harm(inputs: int, folder: Path) -> None:
    sources = [str(SOURCES / name) for name in ("jpeg.cpp", "units.cpp", "resample.cpp")]
    encoder, fuzzer = built("encode_jpeg", folder), built("fuzz_jpeg", folder, *SANITIZE, *sources)
    contents = [by_pillow(picture(45, 61), quality=85, progressive=progressive) for progressive in (False, True)]
    contents += [by_pillow(picture(45, 61), subsampling="4:4:4"), by_pillow(picture(33, 40, 4))]
    contents += [encoded(encoder, picture(45, 61), SAMPLINGS["420"], options) for options in ("r", "s", "a", "o")]
    contents += [encoded(encoder, picture(45, 61), SAMPLINGS[name], "") for name in ("411", "mixed")]
    contents += [encoded(encoder, picture(45, 61, 1), "22", options) for options in ("", "p")]
    paths = [folder / f"{number}.jpg" for number in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    read, of = counted(fuzzer, inputs, 1, *paths)
    assert of == inputs
    assert inputs / 10 < read < inputs * 9 / 10


@pytest.fixture(scope="module")
def fuzz(folder: Path) -> Path:
    """The program for TIFFs."""
    return built("fuzz_tiff", folder, *SANITIZE, str(SOURCES / "tiff.cpp"), links=())


def run(program: Path, content: bytes, shape: tuple[int, ...], inputs: int, seed: int) -> list[int]:
    """Inputs accepted and not."""
    path = program.with_name(f"seed{seed}.tif")
    path.write_bytes(content)
    read, of = counted(program, inputs, seed, path, *shape)
    return [read, of - read]


@pytest.mark.parametrize("inputs", [100_000, pytest.param(10_000_000, marks=pytest.mark.slow)])
def test_no_tiff_is_read_beyond_its_end(inputs: int, fuzz: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 2**16, SHAPE, dtype=np.uint16)
    one_band, odd = pixels[:1], pixels[:, :7]
    seeds = [
        (tiff(pixels), SHAPE),
        (tiff(pixels, rows=8, pixels_first=True), SHAPE),
        (tiff(odd, rows=1, changes={65000: (LONG, [0] * 9)}), odd.shape),
        (tiff(one_band), one_band.shape),
    ]
    for number, (content, shape) in enumerate(seeds):
        accepted, refused = run(fuzz, content, shape, inputs // len(seeds), seed=number)
        assert accepted > inputs // 50  # enough got past the checks to be de-interleaved
        assert refused > inputs // 20


def test_real_tiles_are_hurt_in_vain(fuzz: Path, tiles: Path) -> None:
    content = next(tiles.glob("*/*.tif")).read_bytes()
    assert min(run(fuzz, content, (13, 64, 64), 300, seed=9)) > 30
