"""Damaged photos under sanitizers of addresses, leaks and undefined behaviour: no crash, no over-read, no leak."""

import re
import subprocess
from pathlib import Path

import pytest

from strobe.app.native.build import SOURCES, compiler
from support.jpegs import SAMPLINGS, built, by_pillow, encoded, needs_compiler, picture

pytestmark = needs_compiler()
SANITIZE = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


@pytest.fixture(scope="module")
def fuzzer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fuzz")
    probe = folder / "probe.cpp"
    probe.write_text("int main() {}")
    command = [str(compiler()), *SANITIZE, str(probe), "-o", str(folder / "probe")]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("the compiler has no sanitizers")
    sources = [str(SOURCES / name) for name in ("jpeg.cpp", "units.cpp", "resample.cpp")]
    return built("fuzz_jpeg", folder, *SANITIZE, f"-I{SOURCES}", *sources)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("photos")
    encoder = built("encode_jpeg", folder)
    contents = [by_pillow(picture(45, 61), quality=85, progressive=progressive) for progressive in (False, True)]
    contents += [by_pillow(picture(45, 61), subsampling="4:4:4"), by_pillow(picture(33, 40, 4))]
    contents += [encoded(encoder, picture(45, 61), SAMPLINGS["420"], options) for options in ("r", "s", "a", "o")]
    contents += [encoded(encoder, picture(45, 61), SAMPLINGS[name], "") for name in ("411", "mixed")]
    contents += [encoded(encoder, picture(45, 61, 1), "22", options) for options in ("", "p")]
    paths = [folder / f"{number}.jpg" for number in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    return [str(path) for path in paths]


@pytest.mark.parametrize("inputs", [10_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_damaged_photos_do_no_harm(fuzzer: Path, photos: list[str], inputs: int) -> None:
    done = subprocess.run(
        [str(fuzzer), str(inputs), "1", *photos],
        env={"ASAN_OPTIONS": "detect_leaks=1", "UBSAN_OPTIONS": "print_stacktrace=1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    found = re.fullmatch(r"(\d+) of (\d+) read\n", done.stdout)
    assert found is not None
    read, of = map(int, found.groups())
    assert of == inputs
    assert inputs / 10 < read < inputs * 9 / 10
