"""What the cells of ``suite=storage`` do in their processes: serve photos, and take an epoch of them."""

import multiprocessing
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torchvision.io import ImageReadMode, decode_jpeg
from torchvision.transforms.v2.functional import resize

from strobe.app.config.compose import configure
from strobe.app.data.base import ImageData
from strobe.app.run.storage import Fetching
from strobe.app.storage.serving import BUCKET, CREDENTIALS
from strobe.bench.harness.declare import Done, Trial, Work
from strobe.bench.inputs import prepared
from strobe.bench.suites.storage.suite import FOLDERS, PREFETCH
from strobe.errors import DataError
from strobe.probe.sides import Sides

ALONE = 4.0  # seconds of fetching without decoding

Batches = Generator[Tensor, None, None]  # (N, 3, H, W) uint8


@dataclass(frozen=True)
class Job:
    """What a way reads, and with how much."""

    keys: Sequence[str]  # overrides of train.py's configuration, by which ours read the photos
    folder: Path  # what is served
    endpoint: str
    scratch: str  # an empty folder
    side: int  # pixels of a photo's side
    batch_size: int
    workers: int
    requests: int  # at once, of all workers

    @property
    def root(self) -> str:
        """The address of what is served."""
        return f"s3://{BUCKET}/{self.folder.name}"


class Start:
    """When an epoch begins: once all workers live, and before any of them fetches. Used as ``worker_init_fn``."""

    def __init__(self, workers: int) -> None:
        self._all, self._at = multiprocessing.Barrier(workers), multiprocessing.Value("d")

    def __call__(self, worker: int) -> None:
        """Wait for the other workers."""
        self._all.wait()
        self.now()

    def now(self) -> None:
        """It begins now."""
        self._at.value = time.monotonic()

    @property
    def passed(self) -> float:
        """Seconds since then."""
        return time.monotonic() - float(self._at.value)


@contextmanager
def deliver(trial: Trial, *, way: str, latency: int, workers: int, requests: int) -> Iterator[Work]:
    """An epoch by one way."""
    folder = Path(trial.input.facts["served"]) / FOLDERS[way]
    with apart(folder, latency) as endpoint:
        keys = [*trial.overrides, *trial.input.facts["shared"], f"data.root=s3://{BUCKET}/{folder.name}/photos"]
        keys += [f"data.endpoint={endpoint}", f"data.requests={requests}", "loader=native", "engine=litdata"]
        keys += [f"engine.num_workers={workers}", f"engine.prefetch_factor={PREFETCH}"]
        cfg = configure(keys).data
        job = Job(keys, folder, endpoint, str(trial.scratch), cfg.size, cfg.batch_size, workers, requests)
        repeat = partial(_alone, job) if way == "storage" else partial(_epoch, WAYS[way], job)
        yield Work(repeat, once=True)


@contextmanager
def apart(folder: Path, latency: int) -> Iterator[str]:
    """The endpoint of a folder that another process serves, so many milliseconds away, with credentials for it."""
    before = dict(os.environ)
    os.environ.update(CREDENTIALS, no_proxy="*")
    command = [sys.executable, "-m", "strobe.app.storage", str(folder), str(latency)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            matches = (re.search(r"data\.endpoint=(\S+)", line) for line in server.stdout)
            endpoint = next((match[1] for match in matches if match), None)
            if endpoint is None:
                raise DataError("The storage did not begin to serve; the cell's output.txt says why")
            yield endpoint
        finally:
            server.terminate()
            os.environ.clear()
            os.environ.update(before)


def _alone(job: Job) -> Done:
    """Fetches the objects that ours read, and does nothing with them."""
    data, _ = prepared(job.keys)
    files = np.random.default_rng().permutation(data.found["train"].indices.numpy())
    return Done(len(files), len(files) / Fetching.of(data).rate(files, job.requests, Sides(ALONE), ALONE).median)


def _epoch(way: "Way", job: Job) -> Done:
    """Takes all batches."""
    start = Start(job.workers)
    with closing(way(job, start)) as batches:
        images = sum(map(len, batches))
        return Done(images, start.passed)


def _ours(job: Job, start: Start) -> Batches:
    data, _ = prepared(job.keys)
    start.now()
    yield from _taken(data)


def _taken(data: ImageData) -> Batches:
    for pixels, _ in data.batches("train", data.batch_size, shuffle=True):
        yield pixels


def _shards(job: Job, start: Start) -> Batches:
    shards = f"loader.shards={job.root}/{FOLDERS['shards']}"
    start.now()  # before the shards are copied
    data, _ = prepared([*job.keys, "loader=packed", shards, f"loader.directory={job.scratch}"])
    yield from _taken(data)


def _litdata(job: Job, start: Start) -> Batches:
    """As its documentation has it."""
    from litdata import StreamingDataLoader, StreamingDataset
    from litdata.streaming import downloader

    downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = "true"  # its quicker client takes https alone
    dataset = StreamingDataset(
        f"{job.root}/{FOLDERS['litdata']}",
        cache_dir=job.scratch,
        shuffle=True,
        storage_options={"endpoint_url": job.endpoint},
        transform=partial(_small, job.side),
    )
    loader = StreamingDataLoader(
        dataset, batch_size=job.batch_size, num_workers=job.workers, prefetch_factor=PREFETCH, worker_init_fn=start
    )
    for batch in loader:
        yield batch["image"]


def _small(side: int, sample: dict[str, Any]) -> dict[str, Any]:
    return sample | {"image": resize(sample["image"], [side, side], antialias=True)}


def _webdataset(job: Job, start: Start) -> Batches:
    """As its documentation has it; its workers read addresses that are signed, through curl."""
    import webdataset
    from obstore import sign
    from obstore.store import from_url

    store: Any = from_url(f"s3://{BUCKET}", endpoint=job.endpoint, client_options={"allow_http": True})
    tars = sorted(path.relative_to(job.folder.parent) for path in job.folder.rglob("*.tar"))
    addresses = [sign(store, "GET", str(tar), timedelta(hours=1)) for tar in tars]
    photos = webdataset.WebDataset(addresses, shardshuffle=len(addresses)).shuffle(1000).decode("torchrgb8")
    yield from webdataset.WebLoader(
        photos.to_tuple("jpg").map(partial(_smaller, job.side)),
        batch_size=job.batch_size,
        num_workers=job.workers,
        prefetch_factor=PREFETCH,
        worker_init_fn=start,
    )


def _smaller(side: int, sample: tuple[Tensor]) -> Tensor:
    pixels: Tensor = resize(sample[0], [side, side], antialias=True)
    return pixels


def _torchvision(job: Job, start: Start, *, one_by_one: bool = False) -> Batches:
    """A DataLoader whose workers fetch objects themselves."""
    photos = Downloads(job, 1 if one_by_one else max(1, job.requests // job.workers))
    yield from DataLoader(
        photos,
        job.batch_size,
        shuffle=True,
        num_workers=job.workers,
        prefetch_factor=PREFETCH,
        drop_last=True,
        worker_init_fn=start,
    )


class Downloads(Dataset[Tensor]):
    """Photos in storage, of which each worker fetches so many at once."""

    def __init__(self, job: Job, requests: int) -> None:
        paths = sorted((job.folder / "photos" / "train").rglob("*.*"))
        self.keys = [str(path.relative_to(job.folder.parent)) for path in paths]
        self.endpoint, self.requests, self.side = job.endpoint, requests, job.side
        self._open: tuple[Any, ThreadPoolExecutor] | None = None

    def __len__(self) -> int:
        return len(self.keys)

    def __getitems__(self, indices: list[int]) -> list[Tensor]:
        from obstore.store import from_url

        if self._open is None:  # in a worker, for the client cannot be used after a fork
            store = from_url(f"s3://{BUCKET}", endpoint=self.endpoint, client_options={"allow_http": True})
            self._open = store, ThreadPoolExecutor(self.requests)
        store, pool = self._open
        contents = pool.map(lambda index: bytearray(store.get(self.keys[index]).bytes()), indices)
        return [self._decoded(content) for content in contents]

    def _decoded(self, content: bytearray) -> Tensor:
        whole = decode_jpeg(torch.frombuffer(content, dtype=torch.uint8), ImageReadMode.RGB)
        pixels: Tensor = resize(whole, [self.side, self.side], antialias=True)
        return pixels


Way = Callable[[Job, Start], Batches]
WAYS: dict[str, Way] = {
    "litdata": _litdata,
    "webdataset": _webdataset,
    "torchvision": _torchvision,
    "one_by_one": partial(_torchvision, one_by_one=True),
    "raw": _ours,
    "shards": _shards,
}
