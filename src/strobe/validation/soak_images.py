"""Damaged tiles and photos through whole loaders, for :mod:`strobe.validation.soak`."""

import io
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random

import numpy as np
from PIL import Image

from strobe.app.build.instantiate import set_up_data
from strobe.app.config.compose import composed
from strobe.app.data.synthetic import generate
from strobe.errors import StrobeError
from strobe.process.fork import print_into

LOADERS = {
    "tiles": ("native", "rasterio", "skimage", "tifffile"),
    "photos": ("native", "pil", "torchvision", "spdl"),
}
DATA = {"tiles": "eurosat", "photos": "image_folder"}
FEWEST, MOST = 500, 6_250  # images of a loader in a try: in an hour both kinds are tried twice, with 100,000
HEAD = 600  # bytes, in which formats say most of what a reader relies on


def damaged(content: bytes, rolled: Random) -> bytes:
    """The same with other bytes, more of them near its beginning; or cut, longer, or empty."""
    if not content or (way := rolled.random()) < 0.02:
        return b""
    if way < 0.2:
        return content[: rolled.randrange(len(content))]
    if way < 0.25:
        return content + rolled.randbytes(rolled.randrange(1, 1000))
    changed = bytearray(content)
    for _ in range(rolled.choice([1, 2, 8, 64])):
        reach = min(len(changed), HEAD if rolled.random() < 0.7 else len(changed))
        changed[rolled.randrange(reach)] = rolled.choice([0, 1, 127, 128, 255, rolled.randrange(256)])
    return bytes(changed)


def images(seconds: float) -> int:
    """How many of each loader a try has in a campaign of so many seconds."""
    return max(FEWEST, min(MOST, round(MOST * seconds / 3600)))


def read(pipe: Connection, by: tuple[str, str], folder: Path, seed: int, count: int) -> None:
    """The body of a process: damage one image after the other, read it, and send how many, and what else came.

    ``by``: the images' kind, and a loader.
    """
    (kind, loader), rolled = by, Random(seed)
    print_into(folder.with_suffix(".txt"))
    root = generate(folder, tiles_per_class=4, seed=1) if kind == "tiles" else photos(folder, rolled)
    data = set_up_data(composed([f"data={DATA[kind]}", f"loader={loader}", f"data.root={root}"]))
    dataset, words = data.datasets["train"], []
    paths = data.training_files(1 << 30)
    for number in range(count):
        index = number % len(paths)
        whole = Path(paths[index]).read_bytes()
        Path(paths[index]).write_bytes(damaged(whole, rolled))
        try:
            _ = dataset[index]
        except StrobeError as error:
            if "\n" in str(error) or Path(paths[index]).name not in str(error):
                words.append(f"image {number} of seed {seed}: {error}")
        except Exception as error:
            words.append(f"image {number} of seed {seed}: {type(error).__name__}: {error}")
        finally:
            Path(paths[index]).write_bytes(whole)
    pipe.send((count, words))


def photos(folder: Path, rolled: Random, classes: Sequence[str] = ("a", "b")) -> Path:
    """Twenty photos a class, JPEG and PNG, of several sizes."""
    numbers = np.random.default_rng(rolled.randrange(1 << 30))
    for name in classes:
        (folder / name).mkdir(parents=True)
        for number in range(20):
            height, width = rolled.randrange(40, 300), rolled.randrange(40, 300)
            coarse = Image.fromarray(numbers.integers(0, 256, (8, 8, 3), dtype=np.uint8)).resize((width, height))
            kept = io.BytesIO()
            form, suffix = ("PNG", "png") if number % 4 == 0 else ("JPEG", "jpg")
            coarse.save(kept, form)
            (folder / name / f"{number}.{suffix}").write_bytes(kept.getvalue())
    return folder
