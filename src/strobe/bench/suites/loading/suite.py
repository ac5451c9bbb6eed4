"""``suite=loading``: from files to batches, by every loader, batch size and number of threads."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from strobe.app.config.checks import loaders_for
from strobe.app.config.suites import LOADING_TABLES
from strobe.bench.harness.declare import Cache, Cell, Input, Plan, Request, Suite, Table, deferred, row
from strobe.bench.harness.results import faster, known, measured
from strobe.bench.inputs import MOST_FILES, find_loaded
from strobe.errors import ConfigError

LOADERS = {  # by the form of data; what all are held against comes first
    "tiles": [
        "skimage loader.scale=numpy",
        "rasterio loader.scale=numpy",
        "skimage loader.scale=torch",
        "tifffile",
        "native",
        "packed",
    ],
    "photos": ["pil", "torchvision", "spdl", "native", "native loader.dct_scaling=false"],
    "array": ["memory loader.batched=false loader.scale=numpy", "memory loader.batched=false", "memory"],
}
PLAIN = "skimage.io.imread, a plain loop"
FLOOR = "open, read, close"
COPY = "copying the pixels"
FLOORS = {"files": (FLOOR, "opening, reading and closing the files"), "pack": (COPY, "copying the pixels of a pack")}
CROP_POLICIES = {"random_crop": 256, "random_resized_crop": 224, "resize": 224}  # and the side of a crop, pixels
PHOTOS = 32  # of a batch


def declare(cfg: DictConfig) -> Suite:
    """Loaders x batch sizes x threads, and each loader once more with cold files; beside floors; by crop policy."""
    chosen, form = cfg.suite, cfg.data.form
    tables = chosen.tables or LOADING_TABLES
    loaders = list(LOADERS[form] if chosen.loaders is None else chosen.loaders)
    sizes = list(chosen.batch_sizes or ([1, 32] if cfg.quick else [1, 32, 64, 1024]))
    threads = list(chosen.threads or ([1] if cfg.quick else [1, 4]))
    batches = chosen.batches
    fitting = loaders_for(form)
    if not loaders or len(set(loaders)) < len(loaders):
        listed = ",".join(loaders)
        raise ConfigError(f"suite.loaders=[{listed}] must name one or more, each once; such as {', '.join(fitting)}")
    for loader in loaders:
        name, *keys = loader.split()
        if not all(key.startswith("loader.") for key in keys):
            raise ConfigError(
                f"suite.loaders: {loader!r} may set keys of its loader only; give {name} loader.KEY=VALUE"
            )
        if name not in fitting:
            raise ConfigError(
                f"suite.loaders={loaders}: {loader} does not read this data; loaders that do: {', '.join(fitting)}"
            )
    warm: Cache | None = None if form == "array" else "warm"
    cells: list[Cell] = []
    if "load" in tables:
        wanted: list[tuple[int, int, Cache | None]] = [(size, count, warm) for count in threads for size in sizes]
        if chosen.cold_batch_size and warm:
            wanted.append((chosen.cold_batch_size, 1, "cold"))
        for size, count, cache in wanted:
            options = {"size": size, "batches": batches, "cold": cache == "cold"}
            ways = {_label(loader): deferred("loading.cells:load", loader=loader, **options) for loader in loaders}
            cells += row("load", str(size), ways, threads=count, cache=cache, at=float(size))
    if "floors" in tables and form == "tiles":  # every loader beside skimage, then what each must do at least
        for size in (32,) if cfg.quick else (32, 256):
            names = ["skimage", *(name for name in fitting if name != "skimage")]
            ways = {name: deferred("loading.cells:raw", loader=name, size=size) for name in names}
            ways |= {kind: deferred("loading.cells:floor", kind=kind, size=size) for kind in (PLAIN, FLOOR, COPY)}
            cells += row("floors", str(size), ways, cache="warm", at=float(size))
    if "crop_policies" in tables and form == "photos":  # every loader beside Pillow; a pack holds resized photos
        for policy, side in CROP_POLICIES.items():
            keys = (f"data.framing={policy}", f"data.size={side}")
            left_out = {"pil"} if policy == "resize" else {"pil", "packed"}
            names = ["pil", *(name for name in fitting if name not in left_out)]
            names += ["native loader.dct_scaling=false"] * (policy != "random_crop")
            ways = {_label(name): deferred("loading.cells:raw", loader=name, size=PHOTOS, keys=keys) for name in names}
            cells += row("crop_policies", policy, ways, cache="warm")
    if not cells:
        raise ConfigError(f"suite.tables={list(tables)}: none of them is measured on data of the form {form}")
    shown = [
        Table("load", f"Loading {batches} batches", unit="ms", rows="batch size", logarithmic=True),
        Table("floors", "Tiles as they leave the host, beside floors", rows="batch size", logarithmic=True),
        Table("crop_policies", f"Squares of photos as they leave the host, batches of {PHOTOS}", rows="crop policy"),
    ]
    return Suite(
        title="From files to batches",
        about=f"A repetition loads {batches} batches of images in random order, in one process, and makes them what a "
        "model takes: float32, scaled and standardised. Loaders whose name says scale=numpy or scale=torch scale each "
        f"image as it is read, as in the published comparison. Of a set of more than {MOST_FILES:,} files so "
        "many are used. Cold: the files are thrown out of the page cache before each repetition. Beside floors, and by "
        "crop policy, batches are made as they leave the host: neither scaled nor standardised, on one thread.",
        cells=cells,
        tables=[table for table in shown if any(cell.table == table.name for cell in cells)],
        quick=Plan(rounds=2, turn=0.1, budget=40),
        full=Plan(rounds=7, turn=0.5, budget=1200),
        find=_find,
        conclude=conclude,
        varies={
            "loader": "suite.loaders=[NAME,...]",
            "loader.scale": 'suite.loaders=["NAME loader.scale=torch",...]',
            "data.batch_size": "suite.batch_sizes=[N,...]",
            "threads": "suite.threads=[N,...]",
        },
        packages=["imagecodecs", "pillow", "spdl"],
    )


def _label(loader: str) -> str:
    return loader.replace("loader.", "")


def _find(request: Request, scratch: Path) -> Input:
    """The images; packed too where cells read packs."""
    form, chosen = request.cfg.data.form, request.cfg.suite
    loaders, tables = LOADERS[form] if chosen.loaders is None else chosen.loaders, chosen.tables or LOADING_TABLES
    packed = ("load" in tables and "packed" in loaders) or ("floors" in tables and form == "tiles")
    return find_loaded(request, scratch, loaders, packed=packed)


def conclude(record: Mapping[str, Any]) -> list[str]:
    """The fastest loader against the first, what the page cache is worth, what threads are, and how near floors are."""
    beside = [sentence for row in ("32", "256") for sentence in _beside_floors(record, row)]
    loaded = {cell["name"]: cell for cell in measured(record, "load")}
    warm = [cell for cell in loaded.values() if cell["cache"] != "cold" and cell["threads"] == 1]
    sizes = {cell["at"] for cell in warm}
    sentences = []
    for size in sorted(sizes & {32.0, max(sizes, default=0)}):
        cells = [cell for cell in warm if cell["at"] == size and cell["ratio"]]
        if cells:
            best = max(cells, key=lambda cell: cell["ratio"]["median"])
            than = f"{{}} times as fast as {loaded[best['against']]['column']}"
            gain = known(best["ratio"], len(best["visits"]), than)
            sentences.append(f"Batches of {size:.0f} on one thread, the fastest is {best['column']}: {gain}.")
    sentences += _change(loaded, {"cache": "cold"}, {"cache": "warm"}, "Cold files take this many times as long")
    most = max((cell["threads"] for cell in loaded.values()), default=1)
    words = f"{most} threads instead of 1 make it this many times as fast, where the batch is largest"
    return sentences + _change(loaded, {"threads": 1, "at": max(sizes, default=0)}, {"threads": most}, words) + beside


def _beside_floors(record: Mapping[str, Any], row: str) -> list[str]:
    """How many times as long loaders take as what none of their kind can leave out."""
    cells = {cell["column"]: cell for cell in record["cells"] if (cell["table"], cell["row"]) == ("floors", row)}
    sentences = []
    for loader, (floor, words) in (("native", FLOORS["files"]), ("packed", FLOORS["pack"])):
        if times := faster(cells.get(floor), cells.get(loader)):
            sentences.append(f"Batches of {row}: {loader} takes {times} times as long as {words} alone.")
    return sentences


def _change(cells: Mapping[str, Any], of: dict[str, Any], to: dict[str, Any], words: str) -> list[str]:
    """What it does to cells ``of`` such values to have those of ``to`` instead: the ratio of seconds, old / new."""
    keys = ("row", "column", "threads", "cache")
    known = {tuple(cell[key] for key in keys): cell for cell in cells.values()}
    ratios = []
    for cell in cells.values():
        other = known.get(tuple({**cell, **to}[key] for key in keys))
        is_of = all(cell[key] == value for key, value in of.items())
        if is_of and other is not cell and (times := faster(other, cell)):
            ratios.append(f"{cell['column']} {times}")
    return [f"{words}: {', '.join(ratios)}."] if ratios else []
