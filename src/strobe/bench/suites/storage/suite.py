"""``suite=storage``: photos from object storage by Strobe, LitData, WebDataset, torchvision; the storage alone."""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from PIL import Image

from strobe.bench.harness.declare import Cell, Input, Plan, Request, Suite, Table, deferred, row
from strobe.bench.harness.results import faster, measured, speed
from strobe.bench.inputs import MOST_FILES, class_folders, find_photos, prepared
from strobe.errors import ConfigError, DataError
from strobe.present.format import figure

COLUMNS = {
    "litdata": "LitData",
    "webdataset": "WebDataset",
    "torchvision": "torchvision",
    "one_by_one": "torchvision, one by one",
    "raw": "Strobe, files",
    "shards": "Strobe, shards",
    "storage": "storage alone",
}
FOLDERS = dict.fromkeys(COLUMNS, "photos") | {"litdata": "chunks", "webdataset": "tars", "shards": "shards"}  # served
CHUNKS_EACH = 4  # of LitData's, and tars, for each worker, so that all have as much to do
CHUNK_BYTES = 64 << 20  # LitData's own at most
PREFETCH = 2  # batches for each worker


def declare(cfg: DictConfig) -> Suite:
    """Latencies x ways; the ratios are to LitData."""
    chosen = cfg.suite
    if chosen.photos < (least := chosen.workers * PREFETCH * cfg.data.batch_size):
        raise ConfigError(
            f"suite.photos={chosen.photos} is less than the {least} photos that workers fetch ahead; give {least} or "
            "more, a smaller data.batch_size or fewer suite.workers"
        )
    options = {"workers": chosen.workers, "requests": chosen.requests}
    cells: list[Cell] = []
    for latency in chosen.latencies or ((20,) if cfg.quick else (0, 20, 100)):
        ways = {
            COLUMNS[way]: deferred("storage.cells:deliver", way=way, latency=latency, **options) for way in ways_of(cfg)
        }
        cells += row("storage", str(latency), ways, COLUMNS["litdata"], at=float(latency))
    return Suite(
        title="Photos from storage",
        about="SeaweedFS serves the photos from the loopback; each request waits for the row's milliseconds (0: "
        "nothing lies between). Each way takes a whole epoch of shuffled batches of whole photos, resized to squares; "
        "nothing is on the disk yet. All have as many workers, batches ahead and requests at once, but LitData "
        "and WebDataset fetch whole chunks instead. The clock starts when all workers live, and none of them has "
        "fetched anything. LitData is its StreamingDataset over JPEGs in chunks, with its own decoder; WebDataset "
        "reads tars of JPEGs through curl, and decodes by Pillow, its torchrgb8; torchvision decodes what obstore "
        "fetches, all of a batch at once or, one by one, one after the other in each worker. Strobe, files reads the "
        "same objects with engine=litdata loader=native, and may decode a photo at a smaller size (DCT scaling). "
        "Strobe, shards has photos that were decoded and resized before, which is another task; its time includes "
        "listing the photos and copying all shards. Storage alone fetches the same objects, and nobody decodes them.",
        cells=cells,
        tables=[Table("storage", "Photos from storage", rows="ms")],
        quick=Plan(rounds=1, turn=1.0, budget=60),
        full=Plan(rounds=7, turn=1.0, budget=1500),
        find=_find,
        form="photos",
        conclude=conclude,
        varies={
            "loader": "suite.ways=[NAME,...]",
            "engine": "suite.ways=[NAME,...] suite.workers=N",
            "data.endpoint": "no endpoint (the suite starts its own storage)",
            "data.requests": "suite.requests=N",
            "data.framing": "suite=crop, which measures crops,",
            "model": "no model (nothing is trained)",
        },
        packages=["litdata", "obstore", "torchvision", "webdataset"],
    )


def ways_of(cfg: DictConfig) -> list[str]:
    """The ways asked for, or all; WebDataset where it is installed."""
    if "webdataset" in (chosen := cfg.suite.ways or ()) and find_spec("webdataset") is None:
        raise ConfigError("suite.ways: webdataset is not installed; pip install webdataset, or leave it out")
    return list(chosen) or [way for way in COLUMNS if way != "webdataset" or find_spec(way)]


def _find(request: Request, scratch: Path) -> Input:
    """The folders that are served: photos, LitData's chunks of them, and photos with Strobe's shards."""
    from strobe.app.data.image_folder import USUAL
    from strobe.app.loaders.packed import contents_of
    from strobe.app.loaders.shards import write_shards
    from strobe.app.loaders.sources import PhotoSource
    from strobe.app.storage.objects import INSTALL

    if missing := [name for name in ("litdata", "obstore") if find_spec(name) is None]:
        raise DataError(f"suite=storage needs {' and '.join(missing)}; {INSTALL}")
    cfg, served = request.cfg, scratch / "served"
    photos = find_photos(request, scratch, most=MOST_FILES)
    paths = list(islice(cycle(photos.facts["paths"]), cfg.suite.photos))
    shared = ["data.framing=resize", f"data.size={cfg.data.size or USUAL}"]
    for folder in {FOLDERS[way] for way in ways_of(cfg)}:
        if write := {"chunks": _write_chunks, "tars": _write_tars}.get(folder):
            write(paths, served / folder / folder, CHUNKS_EACH * cfg.suite.workers)
            continue
        root = served / folder / "photos"
        class_folders(paths, root / "train")
        class_folders(paths[:2], root / "val")
        if folder == "shards":
            data, _ = prepared([*photos.overrides, *request.overrides, *shared, f"data.root={root}"])
            source = data.found["train"]
            assert isinstance(source, PhotoSource)
            write_shards(str(served / folder / folder), contents_of(source), source.targets, endpoint=None)
    title = f"{photos.title}, as {len(paths):,} objects"
    return Input(title, photos.generated, photos.overrides, {"served": str(served), "shared": shared})


def _write_chunks(paths: Sequence[str], folder: Path, chunks: int) -> None:
    """JPEGs as LitData's users store them, in about so many chunks of its usual size at most."""
    from litdata.streaming.writer import BinaryWriter

    whole = sum(Path(path).stat().st_size for path in paths)
    writer = BinaryWriter(str(folder), chunk_bytes=min(CHUNK_BYTES, -(-whole // chunks)))
    for number, path in enumerate(paths):
        with Image.open(path) as photo:
            writer[number] = {"image": photo, "label": number % 2}
    writer.done()
    writer.merge()


def _write_tars(paths: Sequence[str], folder: Path, tars: int) -> None:
    """JPEGs in so many tars, as WebDataset's users store them."""
    from webdataset import TarWriter

    folder.mkdir(parents=True)
    for tar in range(tars):
        with TarWriter(str(folder / f"{tar:06d}.tar")) as writer:
            for number in range(tar, len(paths), tars):
                content = Path(paths[number]).read_bytes()
                writer.write({"__key__": f"{number:09d}", "jpg": content, "cls": str(number % 2)})


def conclude(record: Mapping[str, Any]) -> list[str]:
    """For each latency, ours against LitData and the storage alone."""
    cells = {(cell["row"], cell["column"]): cell for cell in measured(record)}
    sentences = []
    for (latency, column), cell in cells.items():
        if column.startswith("Strobe"):
            words = f"{latency} ms: {column} gives {figure(speed(cell))} images/s"
            for way, beside in (("litdata", "times LitData"), ("storage", "of the storage alone")):
                if times := faster(cell, cells.get((latency, COLUMNS[way]))):
                    words += f", {times} {beside}"
            sentences.append(f"{words}.")
    return sentences
