"""A generated stand-in for EuroSAT-MS: ten land-cover classes in the exact on-disk form of the real tiles.

Each class lays out its materials (soil, crop, water, ...), a neighbour may take one side, and light, haze and
the sensor follow. Band means and deviations come out near EuroSAT-MS's, so one normalisation serves both.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray
from rasterio.io import MemoryFile
from rasterio.transform import Affine

from strobe.app.data.folders import Folder
from strobe.errors import DataError, disk_errors
from strobe.present.terminal import shown
from strobe.process.locks import locked

Floats = NDArray[np.float64]

MARKER = "GENERATED.txt"
_VERSION = 1  # raise it with any change to the pixels: a set of another version is refused

_SIZE = 64
_MARGIN = 8  # painted around the tile, so that the periodic blur does not carry one edge to the other
_CANVAS = _SIZE + 2 * _MARGIN
_PARCELS = 1024
_TILE_MB = 0.107


def _bands(*values: float) -> Floats:
    """One value per band, (13, 1, 1), in EuroSAT's file order: B01 to B12, then B8A; reflectance x 10000."""
    return np.array(values, dtype=np.float64).reshape(-1, 1, 1)


_CROP = _bands(1230, 950, 1020, 500, 1150, 3300, 4300, 4250, 1150, 12, 1950, 900, 4600)
_SOIL = _bands(1500, 1500, 1700, 2350, 2500, 2550, 2750, 2750, 750, 13, 3700, 2800, 3000)
_STRAW = _bands(1400, 1270, 1350, 1600, 1900, 2450, 2750, 2750, 850, 14, 3050, 2050, 3100)
_FOREST = _bands(1080, 760, 640, 360, 760, 2130, 2730, 2670, 855, 11, 1310, 530, 3050)
_GRASS = _bands(1280, 990, 1060, 620, 1160, 2900, 3600, 3550, 1200, 13, 1900, 900, 3980)
_SHRUB = _bands(1300, 1060, 980, 900, 1280, 2050, 2400, 2420, 1050, 15, 2200, 1300, 2700)
_ASPHALT = _bands(1450, 1250, 1180, 1180, 1300, 1480, 1580, 1580, 550, 11, 1750, 1450, 1700)
_METAL = _bands(2300, 2600, 2700, 2800, 2700, 2750, 2850, 2950, 750, 14, 2900, 2600, 2900)
_BRICK = _bands(1550, 1350, 1350, 1700, 1850, 2050, 2200, 2200, 650, 13, 2500, 2100, 2400)
_WATER = _bands(1280, 1120, 830, 400, 440, 400, 400, 340, 95, 8, 100, 65, 310)
_SILT = _bands(1420, 1300, 1350, 1100, 1080, 750, 750, 620, 170, 8, 220, 130, 560)
_HAZE = _bands(130, 45, 36, 33, 30, 24, 21, 18, 40, 3, 9, 6, 18)  # one deviation
# Blur in pixels: B01, B09 and B10 come at 60 m, the red edge and the short-wave infrared at 20 m.
_BLUR = _bands(2.5, 0.5, 0.5, 0.5, 0.9, 0.9, 0.9, 0.5, 2.5, 2.5, 0.9, 0.9, 0.9)
_FREQUENCY = np.hypot(np.fft.fftfreq(_CANVAS)[:, None], np.fft.rfftfreq(_CANVAS))
_SENSOR = np.exp(-2 * (np.pi * _FREQUENCY * _BLUR) ** 2)


def _axes(rng: Generator) -> tuple[Floats, Floats]:
    """Two perpendicular pixel coordinates around the centre, turned by a random angle."""
    y, x = np.mgrid[:_CANVAS, :_CANVAS] - _CANVAS / 2
    angle = rng.uniform(0, 2 * np.pi)
    return np.cos(angle) * x + np.sin(angle) * y, np.cos(angle) * y - np.sin(angle) * x


def _grain(rng: Generator, slope: float) -> Floats:
    """Fractal noise, mean 0 and deviation 1: amplitude ~ frequency ** -slope, so 0 is fine and 3 smooth."""
    waves = np.fft.rfft2(rng.standard_normal((_CANVAS, _CANVAS)))
    waves[0, 0] = 0
    noise: Floats = np.fft.irfft2(waves * np.maximum(_FREQUENCY, 1 / _CANVAS) ** -slope)
    return noise / float(noise.std())


def _parcels(rng: Generator, low: float, high: float) -> NDArray[np.int64]:
    """Ids below ``_PARCELS`` of turned, slightly bent rectangles whose sides lie in low..high pixels."""
    u, v = _axes(rng)
    row = np.floor((u + 2 * _grain(rng, 3)) / rng.uniform(low, high)).astype(np.int64)
    width, shift = rng.uniform(low, high, _PARCELS), rng.uniform(0, high, _PARCELS)
    column = np.floor((v + shift[row]) / width[row]).astype(np.int64)
    return (row * 37 + column) % _PARCELS


def _edges(parcels: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Where a parcel meets another."""
    return np.asarray((parcels != np.roll(parcels, 1, 0)) | (parcels != np.roll(parcels, 1, 1)), np.bool_)


def _blend(base: Floats, other: Floats, share: ArrayLike) -> Floats:
    """``base`` with ``share`` (clipped to 0..1; one number, or one per pixel) of it replaced by ``other``."""
    return base + np.asarray(share, dtype=np.float64).clip(0, 1) * (other - base)


def _annual_crop(rng: Generator) -> Floats:
    parcels = _parcels(rng, 12, 45)
    bare = _blend(_SOIL, _STRAW, rng.uniform(size=_PARCELS)[parcels])
    return _blend(bare, _CROP, rng.beta(0.5, 0.6, _PARCELS)[parcels] + 0.06 * _grain(rng, 1))


def _forest(rng: Generator) -> Floats:
    return _blend(_FOREST, _GRASS, 0.3 * _grain(rng, 1.5) - 0.3) * np.exp(0.12 * _grain(rng, 0.5))


def _herbaceous(rng: Generator) -> Floats:
    dry = _blend(_SHRUB, _STRAW, rng.uniform(0, 0.6) + 0.3 * _grain(rng, 1.2))
    return _blend(dry, _FOREST, rng.uniform(-0.2, 0.4) + 0.2 * _grain(rng, 0.7))


def _highway(rng: Generator) -> Floats:
    return _crossed(rng, _blend(_ASPHALT, _METAL, rng.uniform(0.1, 0.6)), 2.5, 6)


def _industrial(rng: Generator) -> Floats:
    halls = _parcels(rng, 5, 14)
    built = (rng.uniform(size=_PARCELS) < rng.uniform(0.4, 0.8))[halls] & ~_edges(halls)
    yard = _blend(_ASPHALT, _GRASS, 0.4 * _grain(rng, 1.2))
    return _blend(yard, _METAL * rng.uniform(0.3, 1.1, _PARCELS)[halls], built)


def _pasture(rng: Generator) -> Floats:
    parcels = _parcels(rng, 10, 40)
    meadow = _blend(_GRASS, _SHRUB, rng.uniform(-0.2, 0.4, _PARCELS)[parcels] + 0.12 * _grain(rng, 1.2))
    return _blend(meadow, _FOREST, rng.uniform() * _edges(parcels) + 0.4 * _grain(rng, 1.5) - 0.6)


def _permanent_crop(rng: Generator) -> Floats:
    parcels = _parcels(rng, 7, 25)
    bare = _blend(_STRAW, _SOIL, rng.uniform(size=_PARCELS)[parcels])
    rows = np.sin(_axes(rng)[0] * 2 * np.pi / rng.uniform(3, 6))
    return _blend(bare, _GRASS, rng.uniform(0, 0.7, _PARCELS)[parcels] + 0.3 * rows)


def _residential(rng: Generator) -> Floats:
    houses = _parcels(rng, 1.5, 3.5)
    built = (rng.uniform(size=_PARCELS) < rng.uniform(0.5, 0.8))[houses]
    garden = _blend(_GRASS, _FOREST, 0.5 + 0.5 * _grain(rng, 0.5))
    town = _blend(garden, _blend(_ASPHALT, _BRICK, rng.uniform(size=_PARCELS)[houses]), built)
    return _blend(town, _ASPHALT, 0.7 * _edges(_parcels(rng, 8, 20)))


def _river(rng: Generator) -> Floats:
    return _crossed(rng, _blend(_WATER, _SILT, rng.beta(0.7, 1.5)), 13, 32)


def _sea_lake(rng: Generator) -> Floats:
    return _blend(_WATER, _SILT, rng.beta(0.6, 3) + 0.04 * _grain(rng, 1.5))


def _crossed(rng: Generator, surface: Floats, low: float, high: float) -> Floats:
    """Countryside with a bent strip of ``surface``, low..high pixels wide, near the centre."""
    land = (_annual_crop, _forest, _herbaceous, _pasture)[rng.integers(4)](rng)
    u, v = _axes(rng)
    line = rng.uniform(-14, 14) + rng.uniform(0, 7) * np.sin(u / rng.uniform(9, 25) + rng.uniform(0, 6))
    return _blend(land, surface, (rng.uniform(low, high) + 1) / 2 - np.abs(v - line))


_RECIPES: dict[str, Callable[[Generator], Floats]] = {  # each returns (13, _CANVAS, _CANVAS)
    "AnnualCrop": _annual_crop,
    "Forest": _forest,
    "HerbaceousVegetation": _herbaceous,
    "Highway": _highway,
    "Industrial": _industrial,
    "Pasture": _pasture,
    "PermanentCrop": _permanent_crop,
    "Residential": _residential,
    "River": _river,
    "SeaLake": _sea_lake,
}
CLASSES: tuple[str, ...] = tuple(_RECIPES)


def _pixels(name: str, rng: Generator) -> NDArray[np.uint16]:
    """One tile of class ``name``, (13, 64, 64)."""
    scene = _RECIPES[name](rng)
    if rng.uniform() < 0.25:
        neighbour = _RECIPES[CLASSES[rng.integers(len(CLASSES))]](rng)
        scene = _blend(scene, neighbour, _axes(rng)[0] + 4 * _grain(rng, 2) - rng.uniform(16, 36))
    scene = scene * np.exp(rng.normal(0, 0.08)) + rng.normal() * _HAZE
    scene *= 1 + 0.01 * rng.standard_normal(scene.shape)
    seen = np.fft.irfft2(np.fft.rfft2(scene) * _SENSOR)[:, _MARGIN:-_MARGIN, _MARGIN:-_MARGIN]
    return seen.clip(1, 28000).round().astype(np.uint16)


def _geotiff(pixels: NDArray[np.uint16], rng: Generator) -> bytes:
    """``pixels`` in EuroSAT's form, somewhere in Europe's UTM zones 29 to 35."""
    west, north = 10 * rng.integers(30_000, 70_000), 10 * rng.integers(420_000, 620_000)
    place = {"crs": f"EPSG:{rng.integers(32629, 32636)}", "transform": Affine(10, 0, west, 0, -10, north)}
    shape = {"count": len(pixels), "height": _SIZE, "width": _SIZE, "dtype": pixels.dtype}
    with MemoryFile() as memory:
        with memory.open(driver="GTiff", interleave="pixel", blockysize=4, **shape, **place) as dataset:
            dataset.write(pixels)
        return bytes(memory.read())


def _complete(root: Path, marker: str) -> bool:
    """Whether the set is there; raises a DataError if ``root`` is anything else."""
    if not root.exists():
        return False
    if (root / MARKER).is_file() and (root / MARKER).read_text(encoding="utf-8") == marker:
        return True
    raise DataError(
        f"{root} exists and is another set than the one to generate ({marker.splitlines()[-1]}); "
        "choose another data.root, or delete the folder."
    )


def _write(root: Path, marker: str, tiles_per_class: int, seed: int) -> None:
    partial = root.with_name(f".{root.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)  # a crash may have left it
    try:
        for label, name in enumerate(shown(CLASSES, "Generating")):
            (partial / name).mkdir(parents=True)
            for number in range(1, tiles_per_class + 1):
                rng = np.random.default_rng([seed, label, number])
                # Python writes the file: of a full disk GDAL would only log.
                (partial / name / f"{name}_{number}.tif").write_bytes(_geotiff(_pixels(name, rng), rng))
        (partial / MARKER).write_text(marker, encoding="utf-8")
        partial.rename(root)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def generate(root: Path, *, tiles_per_class: int = 60, seed: int = 42) -> Path:
    """Make the data set in ``root``, unless it is there already, and return ``root``.

    Tiles are ``<root>/<Class>/<Class>_<n>.tif``, n from 1: (64, 64, 13) uint16, reflectance x 10000, 10 m
    a pixel; tile n depends on ``seed`` alone. ``root`` appears only when complete; of several processes one makes it.
    Raises a :class:`DataError` if it holds anything else, which stays untouched, or if it cannot be written.
    """
    marker = (
        "Strobe generated these tiles (strobe.app.data.synthetic): they look like EuroSAT-MS, of no real place.\n"
        f"version {_VERSION}, seed {seed}, {tiles_per_class} tiles per class\n"
    )
    megabytes = tiles_per_class * len(CLASSES) * _TILE_MB
    remedy = f"they need {megabytes:.0f} MB: free the space, or choose another data.root."
    with disk_errors(lambda why: f"Cannot write the generated tiles to {root}: {why}; {remedy}"):
        if not _complete(root, marker):
            root.parent.mkdir(parents=True, exist_ok=True)
            with locked(root.with_name(f".{root.name}.lock")):
                if not _complete(root, marker):
                    _write(root, marker, tiles_per_class, seed)
    return root


def is_generated(root: Folder) -> bool:
    """Whether ``root``, or the folder above it, is marked as generated."""
    return root.holds(MARKER) or root.parent.holds(MARKER)
