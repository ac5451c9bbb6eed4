"""The lines over which cells of the grid reach tiles in storage: late, narrow, or with a cache at this end."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from strobe.app.data.synthetic import generate
from strobe.app.storage.serving import BUCKET, CREDENTIALS, SlowLine, serving, upload

TILES = 60  # of each class


@dataclass(frozen=True)
class Line:
    """So many milliseconds to the storage, at most so many MB/s, and whether ``data.cache`` keeps what came."""

    latency: float = 0.0
    rate: float | None = None
    cached: bool = False


LINES = {  # by the cells that train over them
    "latency-20": Line(20),
    "latency-100": Line(100),
    "few-requests-20": Line(20),
    "few-requests-100": Line(100),
    "narrow-10": Line(rate=10),
    "narrow-5-far": Line(20, rate=5),
    "cold-cache-20": Line(20, cached=True),
    "cold-cache-narrow": Line(rate=10, cached=True),
    "control-stored-20-resnet18": Line(20),
    "control-stored-100-resnet18": Line(100),
}


@contextmanager
def reaching(line: Line | None, folder: Path) -> Iterator[tuple[list[str], dict[str, str]]]:
    """Overrides and variables of trainings whose tiles a server keeps behind a line; nothing without one."""
    if line is None:
        yield [], {}
        return
    tiles, served = generate(folder.parent / "tiles", tiles_per_class=TILES), folder / "storage"
    served.mkdir(parents=True)
    rate = None if line.rate is None else line.rate * 1e6
    with (
        serving(served) as endpoint,
        SlowLine(endpoint, latency=line.latency / 1e3, bytes_per_second=rate) as slow,
    ):
        upload(endpoint, {f"tiles/{path.relative_to(tiles)}": path for path in tiles.rglob("*") if path.is_file()})
        overrides = [f"data.root=s3://{BUCKET}/tiles", f"data.endpoint={slow.endpoint}"]
        if line.cached:
            overrides.append(f"data.cache={folder}/cache")
        yield overrides, CREDENTIALS | {"no_proxy": "*"}
