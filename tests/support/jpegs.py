"""JPEGs of every kind, small and of odd sizes, and whole photos decoded by Pillow to compare with."""

import subprocess
from collections.abc import Sequence
from functools import partial
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from strobe.app.native import photos
from strobe.app.native.system import compiler
from support import building

HERE = Path(__file__).parents[1] / "app" / "native"
SAMPLINGS = {
    "444": "111111",
    "422": "211111",
    "420": "221111",
    "440": "121111",
    "411": "411111",
    "410": "421111",
    "chroma larger": "112211",
    "mixed": "222111",
    "all doubled": "212121",
}
CODINGS = ("", "o", "r", "p", "pr", "s", "a", "ap")
needs_compiler = partial(building.needs_compiler, photos.LIBRARY)


def picture(height: int, width: int, components: int = 3, seed: int = 0) -> NDArray[np.uint8]:
    """Smooth areas, hard edges and noise: everything that upsampling could get wrong."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    waves = [127 + 120 * np.sin((x * (1 + c) + y * (3 - c)) / 7) for c in range(components)]
    pixels = np.stack(waves, axis=-1) + rng.normal(0, 25, (height, width, components))
    pixels[(x // 5 + y // 3) % 4 == 0] = rng.choice([0, 255], components)
    return np.clip(pixels, 0, 255).astype(np.uint8)


def built(name: str, folder: Path, *options: str, links: Sequence[str] = ("-ljpeg",)) -> Path:
    """The program ``name``, compiled."""
    program, command = folder / name, [str(compiler()), "-std=c++20", "-pthread", *options]
    subprocess.run([*command, str(HERE / f"{name}.cpp"), *links, "-o", str(program)], check=True)
    return program


def encoded(program: Path, pixels: NDArray[np.uint8], sampling: str, options: str) -> bytes:
    height, width, components = pixels.shape
    arguments = [str(program), str(width), str(height), str(components), sampling, options]
    return subprocess.run(arguments, input=pixels.tobytes(), capture_output=True, check=True).stdout


def by_pillow(pixels: NDArray[np.uint8], **options: object) -> bytes:
    stream = BytesIO()
    mode = {1: "L", 3: "RGB", 4: "CMYK"}[pixels.shape[2]]
    Image.frombytes(mode, pixels.shape[1::-1], pixels.tobytes()).save(stream, "JPEG", **options)
    return stream.getvalue()


def tensor(photo: bytes) -> Tensor:
    return torch.frombuffer(bytearray(photo), dtype=torch.uint8)


def whole(photo: bytes) -> Tensor:
    """Colours (3, H, W) as Pillow decodes them."""
    with Image.open(BytesIO(photo)) as image:
        return torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1)
