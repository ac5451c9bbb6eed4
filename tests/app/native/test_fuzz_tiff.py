"""Damaged and hostile TIFFs, by the thousand, under AddressSanitizer and UndefinedBehaviorSanitizer."""

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from strobe.app.native.build import SOURCES, compiler
from support.tiffs import LONG, tiff

SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
SHAPE = (5, 8, 9)


@pytest.fixture(scope="module")
def fuzz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, compiled with sanitizers."""
    folder, found = tmp_path_factory.mktemp("fuzz"), compiler()
    if found is None:
        pytest.skip("there is no C++ compiler")
    (folder / "empty.cpp").write_text("int main() {}\n")
    probe = [found, *SANITIZERS, str(folder / "empty.cpp"), "-o", str(folder / "empty")]
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("the compiler has no sanitizers")
    program = folder / "fuzz_tiff"
    sources = [str(Path(__file__).with_name("fuzz_tiff.cpp")), str(SOURCES / "tiff.cpp")]
    arguments = ["-std=c++20", "-O1", "-g", *SANITIZERS, f"-I{SOURCES}", *sources, "-o", str(program)]
    subprocess.run([found, *arguments], check=True)
    return program


def run(program: Path, content: bytes, shape: tuple[int, int, int], inputs: int, seed: int) -> tuple[int, int]:
    """Inputs accepted and not; a sanitizer's report is this test's failure."""
    path = program.with_name(f"seed{seed}.tif")
    path.write_bytes(content)
    command = [str(program), *map(str, (inputs, seed, *shape)), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stderr[-3000:]
    accepted, refused = map(int, re.findall(r"\d+", done.stdout))
    return accepted, refused


def fuzz_all(program: Path, inputs: int) -> None:
    pixels = np.random.default_rng(0).integers(0, 2**16, SHAPE, dtype=np.uint16)
    one_band, odd = pixels[:1], pixels[:, :7]
    seeds = [
        (tiff(pixels), SHAPE),
        (tiff(pixels, rows=8, pixels_first=True), SHAPE),
        (tiff(odd, rows=1, changes={65000: (LONG, [0] * 9)}), odd.shape),
        (tiff(one_band), one_band.shape),
    ]
    for number, (content, shape) in enumerate(seeds):
        accepted, refused = run(program, content, shape, inputs // len(seeds), seed=number)
        assert accepted > inputs // 50  # enough got past the checks to be de-interleaved
        assert refused > inputs // 20


def test_no_input_is_read_beyond_its_end(fuzz: Path) -> None:
    fuzz_all(fuzz, 100_000)


def test_real_tiles_are_hurt_in_vain(fuzz: Path, tiles: Path) -> None:
    content = next(tiles.glob("*/*.tif")).read_bytes()
    accepted, refused = run(fuzz, content, (13, 64, 64), 300, seed=9)
    assert min(accepted, refused) > 30


@pytest.mark.slow
def test_no_input_of_many_is_read_beyond_its_end(fuzz: Path) -> None:
    fuzz_all(fuzz, 10_000_000)
