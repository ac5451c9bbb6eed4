"""A generated stand-in for EuroSAT-MS: ten land-cover classes in the exact on-disk form of the real tiles.

A tile is painted in reflectance (x 10000, as Sentinel-2 delivers it): each class lays out a few materials
(soil, crop, roofs, water, ...), a neighbouring class may take a side of the tile, and season, haze, the
sensor's resolution and its noise follow. The materials' spectra were chosen so that band means and
deviations land near EuroSAT-MS's, and one normalisation serves both.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray
from rasterio.io import MemoryFile
from rasterio.transform import Affine
from rich.console import Console
from rich.progress import track

from strobe.data.locking import locked
from strobe.errors import DataError

Floats = NDArray[np.float64]
Recipe = Callable[[np.random.Generator], Floats]  # -> reflectance, (_CANVAS, _CANVAS, 13)

MARKER = "GENERATED.txt"
VERSION = 1  # raise it with any change to the pixels: a set of another version is refused

_SIZE = 64
_MARGIN = 8  # painted around the tile, so that the periodic blur does not carry one edge to the other
_CANVAS = _SIZE + 2 * _MARGIN
_PARCELS = 1024
_TILE_BYTES = 107_000

# Reflectance x 10000 in EuroSAT's file order:
#        B01   B02   B03   B04   B05   B06   B07   B08   B09  B10 B11   B12   B8A
_CROP = np.array([1230, 950, 1020, 500, 1150, 3300, 4300, 4250, 1150, 12, 1950, 900, 4600.0])
_SOIL = np.array([1500, 1500, 1700, 2350, 2500, 2550, 2750, 2750, 750, 13, 3700, 2800, 3000.0])
_STRAW = np.array([1400, 1270, 1350, 1600, 1900, 2450, 2750, 2750, 850, 14, 3050, 2050, 3100.0])
_FOREST = np.array([1080, 760, 640, 360, 760, 2130, 2730, 2670, 855, 11, 1310, 530, 3050.0])
_GRASS = np.array([1280, 990, 1060, 620, 1160, 2900, 3600, 3550, 1200, 13, 1900, 900, 3980.0])
_SHRUB = np.array([1300, 1060, 980, 900, 1280, 2050, 2400, 2420, 1050, 15, 2200, 1300, 2700.0])
_ASPHALT = np.array([1450, 1250, 1180, 1180, 1300, 1480, 1580, 1580, 550, 11, 1750, 1450, 1700.0])
_ROOF = np.array([2300, 2600, 2700, 2800, 2700, 2750, 2850, 2950, 750, 14, 2900, 2600, 2900.0])
_BRICK = np.array([1550, 1350, 1350, 1700, 1850, 2050, 2200, 2200, 650, 13, 2500, 2100, 2400.0])
_WATER = np.array([1270, 1060, 800, 440, 480, 400, 400, 340, 95, 8, 100, 65, 310.0])
_SILT = np.array([1420, 1300, 1350, 1100, 1080, 750, 750, 620, 170, 8, 220, 130, 560.0])
_HAZE = np.array([130, 45, 36, 33, 30, 24, 21, 18, 200, 4, 9, 6, 18.0])

_FREQUENCY = np.hypot(np.fft.fftfreq(_CANVAS)[:, None], np.fft.rfftfreq(_CANVAS))
_FREQUENCY[0, 0] = np.inf  # no power at frequency 0: textures keep the mean
# Blur in pixels: the 60 m bands (B01, B09, B10) are the softest, the 20 m ones lie between.
_BLUR = np.array([2.5, 0.5, 0.5, 0.5, 0.9, 0.9, 0.9, 0.5, 2.5, 2.5, 0.9, 0.9, 0.9])
_SENSOR = np.exp(-2 * (np.pi * np.where(np.isinf(_FREQUENCY), 0, _FREQUENCY)[..., None] * _BLUR) ** 2)


def _axes(rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Two perpendicular pixel coordinates around the centre, turned by a random angle."""
    y, x = np.mgrid[:_CANVAS, :_CANVAS] - _CANVAS / 2
    angle = rng.uniform(0, 2 * np.pi)
    return np.cos(angle) * x + np.sin(angle) * y, np.cos(angle) * y - np.sin(angle) * x


def _grain(rng: np.random.Generator, slope: float) -> Floats:
    """Fractal noise, mean 0 and deviation 1: amplitude ~ frequency ** -slope, so 0 is fine and 2 is smooth."""
    white = np.fft.rfft2(rng.standard_normal((_CANVAS, _CANVAS)))
    noise = np.fft.irfft2(white * _FREQUENCY**-slope, s=(_CANVAS, _CANVAS))
    return np.asarray(noise / noise.std(), dtype=np.float64)


def _parcels(rng: np.random.Generator, low: float, high: float) -> NDArray[np.int64]:
    """Ids below ``_PARCELS`` of turned, slightly bent rectangles whose sides lie in low..high pixels."""
    u, v = _axes(rng)
    row = np.floor((u + 2 * _grain(rng, 3)) / rng.uniform(low, high)).astype(np.int64)
    width, shift = rng.uniform(low, high, _PARCELS), rng.uniform(0, high, _PARCELS)
    column = np.floor((v + shift[row]) / width[row]).astype(np.int64)
    return (row * 37 + column) % _PARCELS


def _edges(parcels: NDArray[np.int64]) -> Floats:
    """1 where a parcel meets another, else 0."""
    meets = (parcels != np.roll(parcels, 1, axis=0)) | (parcels != np.roll(parcels, 1, axis=1))
    return meets.astype(np.float64)


def _strip(rng: np.random.Generator, width: float) -> Floats:
    """Cover (0..1) of a bent strip, ``width`` pixels wide, that passes near the centre."""
    u, v = _axes(rng)
    line = rng.uniform(-14, 14) + rng.uniform(0, 7) * np.sin(u / rng.uniform(9, 25) + rng.uniform(0, 6))
    return np.clip(width / 2 + 0.5 - np.abs(v - line), 0, 1)


def _blend(base: Floats, other: Floats, share: ArrayLike) -> Floats:
    """``base`` with ``share`` (0..1; a number or one per pixel) of it replaced by ``other``."""
    return base + np.asarray(share, dtype=np.float64).clip(0, 1)[..., None] * (other - base)


def _annual_crop(rng: np.random.Generator) -> Floats:
    parcels = _parcels(rng, 12, 45)
    green = rng.beta(0.5, 0.6, _PARCELS)[parcels] + 0.06 * _grain(rng, 1)
    return _blend(_blend(_SOIL, _STRAW, rng.uniform(size=_PARCELS)[parcels]), _CROP, green)


def _forest(rng: np.random.Generator) -> Floats:
    shade = np.exp(0.12 * _grain(rng, 0.5))[..., None]
    return _blend(_FOREST, _GRASS, 0.3 * _grain(rng, 1.5) - 0.3) * shade


def _herbaceous(rng: np.random.Generator) -> Floats:
    dry = _blend(_SHRUB, _STRAW, rng.uniform(0, 0.6) + 0.3 * _grain(rng, 1.2))
    return _blend(dry, _FOREST, 0.2 * _grain(rng, 0.7) + rng.uniform(-0.2, 0.4))


def _highway(rng: np.random.Generator) -> Floats:
    road = _strip(rng, rng.uniform(2.5, 6))
    return _blend(_countryside(rng), _blend(_ASPHALT, _ROOF, rng.uniform(0, 0.5)), road)


def _industrial(rng: np.random.Generator) -> Floats:
    halls = _parcels(rng, 5, 14)
    ground = _blend(_ASPHALT, _GRASS, 0.4 * _grain(rng, 1.2))
    roofs = _ROOF * rng.uniform(0.3, 1.1, _PARCELS)[halls][..., None]
    built = rng.uniform(size=_PARCELS) < rng.uniform(0.4, 0.8)
    return _blend(ground, roofs, built[halls] * (1 - _edges(halls)))


def _pasture(rng: np.random.Generator) -> Floats:
    parcels = _parcels(rng, 10, 40)
    meadow = _blend(_GRASS, _SHRUB, rng.uniform(-0.2, 0.4, _PARCELS)[parcels] + 0.12 * _grain(rng, 1.2))
    return _blend(meadow, _FOREST, rng.uniform(0, 1) * _edges(parcels) + 0.4 * _grain(rng, 1.5) - 0.6)


def _permanent_crop(rng: np.random.Generator) -> Floats:
    parcels = _parcels(rng, 7, 25)
    u, _ = _axes(rng)
    rows = 0.2 * np.sin(u * 2 * np.pi / rng.uniform(2.5, 5))
    green = rng.uniform(0, 0.7, _PARCELS)[parcels] + rows
    return _blend(_blend(_STRAW, _SOIL, rng.uniform(size=_PARCELS)[parcels]), _GRASS, green)


def _residential(rng: np.random.Generator) -> Floats:
    houses = _parcels(rng, 1.5, 3.5)
    garden = _blend(_GRASS, _FOREST, 0.5 + 0.5 * _grain(rng, 0.5))
    built = rng.uniform(size=_PARCELS) < rng.uniform(0.5, 0.8)
    town = _blend(garden, _blend(_ASPHALT, _BRICK, rng.uniform(size=_PARCELS)[houses]), built[houses])
    return _blend(town, _ASPHALT, 0.7 * _edges(_parcels(rng, 8, 20)))


def _river(rng: np.random.Generator) -> Floats:
    water = _blend(_WATER, _SILT, rng.beta(0.7, 1.2))
    return _blend(_countryside(rng), water, _strip(rng, rng.uniform(10, 30)))


def _sea_lake(rng: np.random.Generator) -> Floats:
    return _blend(_WATER, _SILT, rng.beta(0.6, 2.4) + 0.04 * _grain(rng, 1.5))


def _countryside(rng: np.random.Generator) -> Floats:
    """What roads and rivers run through."""
    choices: tuple[Recipe, ...] = (_annual_crop, _forest, _herbaceous, _pasture)
    return choices[rng.integers(len(choices))](rng)


_RECIPES: dict[str, Recipe] = {
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


def _pixels(name: str, rng: np.random.Generator) -> NDArray[np.uint16]:
    """One tile of class ``name``, (13, 64, 64)."""
    scene = _RECIPES[name](rng)
    if rng.random() < 0.25:
        neighbour = _RECIPES[CLASSES[rng.integers(len(CLASSES))]](rng)
        u, _ = _axes(rng)
        scene = _blend(scene, neighbour, u + 4 * _grain(rng, 2) - rng.uniform(16, 36))
    tilt = np.linspace(-1, 1, scene.shape[-1]) * rng.normal(0, 0.04)
    scene = scene * np.exp(rng.normal(0, 0.08) + tilt) + _HAZE * rng.normal()
    scene = scene * np.exp(0.01 * rng.standard_normal(scene.shape))
    seen = np.fft.irfft2(np.fft.rfft2(scene, axes=(0, 1)) * _SENSOR, s=scene.shape[:2], axes=(0, 1))
    inside = slice(_MARGIN, _MARGIN + _SIZE)
    return seen[inside, inside].clip(1, 28000).round().astype(np.uint16).transpose(2, 0, 1)


def _tile(name: str, index: int, seed: int) -> bytes:
    """The GeoTIFF of one tile; it depends on these three values alone."""
    rng = np.random.default_rng([seed, CLASSES.index(name), index])
    pixels = _pixels(name, rng)
    west, north = 10 * rng.integers(30_000, 70_000), 10 * rng.integers(420_000, 620_000)
    with MemoryFile() as memory:
        with memory.open(
            driver="GTiff",
            dtype="uint16",
            count=len(pixels),
            width=_SIZE,
            height=_SIZE,
            interleave="pixel",
            blockysize=4,
            photometric="minisblack",
            crs=f"EPSG:{rng.integers(32629, 32636)}",
            transform=Affine(10, 0, west, 0, -10, north),
        ) as dataset:
            dataset.write(pixels)
        return bytes(memory.read())


def _complete(root: Path, marker: str) -> bool:
    """Whether the asked set is there; raises DataError where ``root`` is anything else."""
    if not root.exists():
        return False
    path = root / MARKER
    if path.is_file() and path.read_text(encoding="utf-8") == marker:
        return True
    raise DataError(
        f"{root} is there already and is not the set to generate ({marker.splitlines()[-1]}); "
        "choose another data.root, or delete the folder."
    )


def _write(folder: Path, tiles_per_class: int, seed: int) -> None:
    names = [(name, index) for name in CLASSES for index in range(1, tiles_per_class + 1)]
    for name in CLASSES:
        (folder / name).mkdir(parents=True)
    console = Console(stderr=True)
    for name, index in track(names, "Generating the sample data set", console=console, transient=True):
        # Written by Python: GDAL only logs a disk that fills up as it closes a file.
        (folder / name / f"{name}_{index}.tif").write_bytes(_tile(name, index, seed))


def generate(root: Path, *, tiles_per_class: int = 60, seed: int = 42) -> Path:
    """Make the data set in ``root``, unless it is there already, and return the folder of the class folders.

    Tiles are ``<root>/<Class>/<Class>_<n>.tif``, n from 1: (64, 64, 13) uint16 reflectance x 10000, 10 m
    pixels. Tile n of a class depends on ``seed`` alone, not on ``tiles_per_class``. ``root`` appears only
    once it is complete, and processes that start together make one set.

    Raises:
        DataError: ``root`` holds anything else, which stays untouched, or it cannot be written.
    """
    marker = (
        "Strobe generated these tiles (strobe.data.synthetic): they look like EuroSAT-MS and show no real place."
        f"\nversion {VERSION}, seed {seed}, {tiles_per_class} tiles per class\n"
    )
    if _complete(root, marker):
        return root
    partial = root.with_name(f".{root.name}.partial")
    try:
        root.parent.mkdir(parents=True, exist_ok=True)
        with locked(root.with_name(f".{root.name}.lock")):
            if _complete(root, marker):
                return root
            shutil.rmtree(partial, ignore_errors=True)
            try:
                _write(partial, tiles_per_class, seed)
                (partial / MARKER).write_text(marker, encoding="utf-8")
                partial.rename(root)
            except BaseException:
                shutil.rmtree(partial, ignore_errors=True)
                raise
    except OSError as error:
        megabytes = tiles_per_class * len(CLASSES) * _TILE_BYTES / 1e6
        raise DataError(
            f"Cannot write the generated data set to {root}: {error.strerror or error}; it needs "
            f"{megabytes:.0f} MB: free the space, or choose another data.root."
        ) from error
    return root


def is_generated(root: Path) -> bool:
    """Whether ``root``, or the folder that holds it, is marked as generated."""
    return any((folder / MARKER).is_file() for folder in (root, root.parent))
