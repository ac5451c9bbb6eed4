"""Packs in shards: files of many images each, in LitData's optimized form, in a folder or in storage.

LitData's own ``StreamingDataset`` reads them as ``{"label": int, "pixels": bytes}``. Here they are mapped, so that an
epoch's order is that of the files; shards that lie in storage are copied to the disk first, each once, or are read
there, a request for each image.
"""

import json
import logging
import struct
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from strobe.app.loaders.packing import Contents, Layout, MappedImages, digest, names_of, require_room, runs
from strobe.app.storage.address import is_remote
from strobe.app.storage.local import LocalFolder
from strobe.app.storage.objects import Storage
from strobe.errors import DataError, disk_errors
from strobe.present.terminal import shown
from strobe.process.locks import locked

log = logging.getLogger(__name__)

INDEX, DESCRIPTION = "index.json", "strobe.json"
SHARD_BYTES = 64 << 20
COPIERS = 8  # shards copied at once
WORD, LABEL = 4, 8  # bytes of a number in a shard's header, and of a label
PREFIX = 2 * WORD + LABEL  # of an image's pixels: the sizes of label and pixels, and the label


@dataclass(frozen=True)
class Shards:
    """A pack in shards; ``strobe.json`` beside them."""

    layout: Layout
    count: int  # images
    each: int  # images of a shard, the last of which may have fewer
    names: str  # digest of the files' paths below their common folder, in order
    files: list[str]

    def start(self, shard: int) -> int:
        """Where the first image begins in a shard's file, after its header."""
        return WORD * (2 + self.images(shard))

    def images(self, shard: int) -> int:
        """The images of a shard."""
        return min(self.each, self.count - shard * self.each)

    @property
    def item(self) -> int:
        """Bytes of an image with what stands before its pixels."""
        return PREFIX + self.layout.image_bytes

    def bytes(self, shard: int) -> int:
        """The size of a shard's file."""
        return self.start(shard) + self.images(shard) * self.item

    @property
    def sizes(self) -> dict[str, int]:
        """The bytes of each file."""
        return {name: self.bytes(number) for number, name in enumerate(self.files)}

    def mapped(self, folder: Path) -> MappedImages:
        """The images of the files in this folder."""
        parts = [(folder / name, self.images(number), self.start(number)) for number, name in enumerate(self.files)]
        remedy = "the same pack command writes it again"
        return MappedImages(self.layout, self.each, parts, remedy, PREFIX)


def place_of(where: str, reach: Mapping[str, Any]) -> LocalFolder | Storage:
    """Where shards lie: a folder, or what is at an address in storage, reached as ``reach`` says."""
    return Storage(where, **reach) if is_remote(where) else LocalFolder(Path(where))


def write_shards(out: str, contents: Contents, labels: Tensor, *, endpoint: str | None) -> Shards:
    """Write all images and labels (N,); what an earlier call left is kept, if the files are still the same.

    Raises a :class:`DataError` if a file cannot be read, or the shards cannot be written.
    """
    layout, count = contents.layout, len(contents.paths)
    each = max(1, min(count, SHARD_BYTES // (PREFIX + layout.image_bytes)))
    state = digest(json.dumps([asdict(contents.sources()), asdict(layout), each]).encode(), 6)
    total = -(-count // each)
    shards = Shards(
        layout, count, each, names_of(contents.paths), [f"chunk-{state}-{number:05d}.bin" for number in range(total)]
    )
    place = place_of(out, {"endpoint": endpoint})
    remedy = "make room, or give another place; the same command goes on with the shards that are missing"
    with disk_errors(lambda why: f"--shards {out} cannot be written ({why}); {remedy}"):
        lacking = _lacking(place, shards.sizes)
        left = [number for number, name in enumerate(shards.files) if name in lacking]
        log.info("%d of %d shards are to be written to %s", len(left), total, out)
        with ThreadPoolExecutor(torch.get_num_threads()) as pool:
            for number in shown(left, "Shards"):
                first = number * each
                images = range(first, first + shards.images(number))
                pixels = pool.map(contents.read, [contents.paths[image] for image in images])
                place.write(shards.files[number], _shard(shards, number, labels[images.start :], pixels))
        place.write(INDEX, json.dumps(_index(shards)).encode())
        place.write(DESCRIPTION, json.dumps(asdict(shards)).encode())
    return shards


def _shard(shards: Shards, number: int, labels: Tensor, pixels: Any) -> bytes:
    """A file of LitData's: how many items, where each begins and the last ends, and the items."""
    count, start = shards.images(number), shards.start(number)
    ends = [start + place * shards.item for place in range(count + 1)]
    parts = [struct.pack(f"<{count + 2}I", count, *ends)]
    for label, image in zip(labels.tolist(), pixels, strict=False):
        parts += [struct.pack("<IIq", LABEL, shards.layout.image_bytes, label)]
        parts.append(np.ascontiguousarray(image, dtype=shards.layout.dtype).tobytes())
    return b"".join(parts)


def _index(shards: Shards) -> dict[str, Any]:
    """LitData's description of the shards."""
    from litdata.streaming.writer import BinaryWriter

    with tempfile.TemporaryDirectory() as scratch:
        writer = BinaryWriter(scratch, chunk_size=shards.each)
        writer.serialize({"label": 0, "pixels": b""})
        config = writer.get_config()
    chunks = [
        {"chunk_bytes": shards.bytes(number), "chunk_size": shards.images(number), "dim": None, "filename": name}
        for number, name in enumerate(shards.files)
    ]
    return {"chunks": chunks, "config": config | {"compression": None}}


def open_shards(
    where: str, reach: Mapping[str, Any], contents: Contents, directory: Path, *, stream: bool = False
) -> "Images":
    """The shards of these files; those in storage are copied to a folder of ``directory`` first, unless ``stream``.

    Raises a :class:`DataError` if there are none, they are of other files or another form, or there is no room.
    """
    place, again = place_of(where, reach), "write them with: strobe pack --shards"
    try:
        description = json.loads(place.read(DESCRIPTION))
        shards = Shards(**description | {"layout": Layout.of_json(description["layout"])})
    except (OSError, ValueError, KeyError, TypeError):
        raise DataError(f"loader.shards={where} holds no {DESCRIPTION}, so no shards; {again} {where}") from None
    same = (shards.count, shards.names) == (len(contents.paths), names_of(contents.paths))
    if not contents.layout.agrees(shards.layout) or not same:
        raise DataError(f"loader.shards={where} holds other images than data.root, or in another form; {again} OTHER")
    if isinstance(place, LocalFolder):
        return shards.mapped(place.path)
    if not stream:
        return shards.mapped(_copied(where, place, shards, directory))
    _require(where, place, shards.sizes)
    return StreamedShards(place, shards)


def _require(where: str, storage: Storage, sizes: Mapping[str, int]) -> None:
    """Raise a :class:`DataError` that names the first shard which is not there with its size."""
    for name in _lacking(storage, sizes):
        raise DataError(f"{where}/{name} is missing or truncated; the same pack command writes it again")


def _copied(where: str, storage: Storage, shards: Shards, directory: Path) -> Path:
    """The shards' folder on the disk, with all of them; of several processes that start at once, one copies them."""
    folder, sizes = directory / f"shards-{digest(where.encode(), 4)}", shards.sizes
    here = LocalFolder(folder)
    remedy = "make room, or set another loader.directory"
    with disk_errors(lambda why: f"loader.directory={directory} cannot hold the shards ({why}); {remedy}"):
        if not _lacking(here, sizes):
            return folder
        folder.mkdir(parents=True, exist_ok=True)
        with locked(directory / f".{folder.name}.lock"):
            if left := _lacking(here, sizes):  # still, after waiting
                instead = "set another loader.directory, or copy nothing: loader.stream=true"
                require_room(directory, sum(left.values()), "The shards need", instead)
                _require(where, storage, left)
                log.info("Copying %d of %d shards to %s", len(left), len(sizes), folder)
                with ThreadPoolExecutor(COPIERS) as pool:
                    list(pool.map(lambda name: here.write(name, storage.read(name)), left))
    return folder


def _lacking(place: LocalFolder | Storage, sizes: Mapping[str, int]) -> dict[str, int]:
    """The files that are not there with their sizes."""
    there = place.sizes()
    return {name: size for name, size in sizes.items() if there.get(name) != size}


@dataclass(frozen=True)
class StreamedShards:
    """The same images where they lie in storage: a request for each, and for each run of planes; nothing is kept."""

    storage: Storage
    shards: Shards
    paths: ClassVar[list[str]] = []  # no file of this machine

    @property
    def layout(self) -> Layout:
        """Of an image."""
        return self.shards.layout

    def gather(self, chosen: Tensor, planes: tuple[int, ...], out: Tensor) -> None:
        """As :meth:`MappedImages.gather`; raises a :class:`DataError` that names what cannot be fetched."""
        length, shards = self.layout.plane_bytes, self.shards
        parts, pieces = [], runs(planes)
        for room, image in zip(out.view(len(chosen), len(planes), length).numpy(), chosen.tolist(), strict=True):
            shard, place = divmod(image, shards.each)
            start = shards.start(shard) + place * shards.item + PREFIX
            for begin, end in pieces:
                parts.append((shards.files[shard], start + planes[begin] * length, room[begin:end].reshape(-1).data))
        self.storage.fetch_parts(parts)


Images = MappedImages | StreamedShards
