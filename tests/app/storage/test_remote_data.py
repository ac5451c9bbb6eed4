"""Data in storage is the data on the disk: the same pixels, order, splits and weights."""

import pickle
import socket
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from strobe import pack
from strobe.app.engines.torch import TorchEngine
from strobe.app.loaders import shards
from strobe.app.run.storage import STORAGE, measure_storage
from strobe.app.storage.serving import SlowLine
from strobe.errors import DataError
from strobe.overrides import applied
from strobe.probe.ranks import Ranks
from strobe.probe.sides import Sides
from support.composing import composed_data
from support.files import plant
from support.photo_files import photograph, save
from support.pipeline_parts import batches, dataset, loader, source
from support.processes import begin, ended
from support.ranks import together
from support.runs import ALL, CHECKPOINTS, Train, broken_off, weights
from support.server import nobody
from support.stored import LOADERS, below, remote, stored

TILES = "tiles/seed42-10"
SHORTLY = ("loader=native", "trainer.max_epochs=2", "trainer.limit_train_batches=3", CHECKPOINTS, ALL)


@pytest.mark.parametrize(("form", "name"), LOADERS, ids="-".join)
def test_pixels_are_those_of_the_files(form: str, name: str, storage: str, tmp_path: Path) -> None:
    here = dataset(form, name, tmp_path)
    there = remote(form, name, source(form, tmp_path), below(stored(storage, tmp_path, form), storage))
    expected = list(loader("torch", here, batches(), 0))
    for engine, workers in (("torch", 0), ("litdata", 2)):
        found = list(loader(engine, there, batches(), workers))
        for (pixels, labels), (wanted, classes) in zip(found, expected, strict=True):
            assert labels.tolist() == classes.tolist()
            assert pixels.dtype == wanted.dtype
            assert torch.equal(pixels.float(), wanted.float()), engine


@pytest.mark.parametrize(("form", "name"), [("tiles", "native"), ("photos", "native"), ("photos", "pil")])
def test_an_unreadable_object_is_named(form: str, name: str, storage: str, tmp_path: Path) -> None:
    files = source(form, tmp_path, bad=7)
    folder = below(stored(storage, tmp_path, f"bad-{form}"), storage)
    with pytest.raises(DataError, match=rf"^s3://strobe/bad-{form}/{form}_7\.\w+ cannot be read as a") as caught:
        list(loader("litdata", remote(form, name, files, folder), batches(), 2))
    assert "\n" not in str(caught.value)


def test_workers_that_are_processes_read_too_and_open_their_own_connections(storage: str, tmp_path: Path) -> None:
    files = source("tiles", tmp_path)
    there = remote("tiles", "tifffile", files, below(stored(storage, tmp_path, "spawned"), storage))
    assert [len(labels) for _, labels in loader("torch", there, batches(), 1, persistent_workers=False)] == [4, 4, 3]
    assert pickle.loads(pickle.dumps(there)).source.objects.storage._open is None
    forked = loader("torch", there, batches(), 1, persistent_workers=False, multiprocessing_context="fork")
    with pytest.raises(DataError, match=r"cannot be read in a forked process.*engine\.multiprocessing_context=spawn"):
        list(forked)


@pytest.fixture(scope="module")
def tiles_there(storage: str, sample_root: Path) -> tuple[str, ...]:
    """Overrides for ten tiles a class in storage, in a folder one level below the root."""
    root = stored(storage, sample_root / TILES, "set/EuroSAT_MS").rpartition("/")[0]
    return "data=eurosat", f"data.root={root}", f"data.endpoint={storage}"


def same_weights(one: Path, other: Path) -> bool:
    found = weights(other)
    return all(torch.equal(value, found[name]) for name, value in weights(one).items())


def test_a_run_from_storage_ends_as_one_from_the_disk_and_resumes_with_other_workers(
    train: Train, sample_root: Path, tiles_there: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = train(*SHORTLY, "data=eurosat", f"data.root={sample_root / TILES}", name="disk")
    assert disk.code == 0, disk.output
    cached = (*SHORTLY, *tiles_there, "engine=litdata", f"data.cache={tmp_path / 'cache'}")
    rest = broken_off(train, monkeypatch, *cached, then=["engine.num_workers=1"])
    assert same_weights(disk.directory, rest.directory)
    for path in rest.directory.rglob("*"):
        assert not path.is_file() or b"not-a-secret" not in path.read_bytes(), path


def test_a_run_from_streamed_shards_ends_as_one_from_a_pack_and_resumes_with_other_workers(
    train: Train, sample_root: Path, tiles_there: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, packed = "s3://strobe/shards-of-a-run", (*SHORTLY[1:], "loader=packed")
    monkeypatch.setattr(shards, "SHARD_BYTES", 3 << 20)
    pack.main(["--shards", out, *tiles_there])
    here = ("data=eurosat", f"data.root={sample_root / TILES}", f"loader.directory={tmp_path / 'packs'}")
    disk = train(*packed, *here, name="disk")
    assert disk.code == 0, disk.output
    streamed = (*packed, *tiles_there, f"loader.shards={out}", "loader.stream=true", "engine=litdata")
    rest = broken_off(train, monkeypatch, *streamed, then=["engine.num_workers=1"])
    assert same_weights(disk.directory, rest.directory)


def test_photos_are_found_as_on_the_disk(storage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    names = ("b/2.jpg", "b/deep/1.JPG", "b/3.png", "a/x.jpg", "a/.y.jpg", "a/z.jpeg", ".c/deep/1.jpg", "a/.d/1.jpg")
    for number, name in enumerate(names):
        for split in ("train", "val"):
            plant(tmp_path, {f"{split}/{name}": b""})
            save(tmp_path / split / name, photograph(40, 50, number))
    root = stored(storage, tmp_path, "imagenet")
    given = ("data=image_folder", "loader=native", "data.size=16", "data.framing=random_crop")
    here: Any = composed_data(*given, f"data.root={tmp_path}")
    there: Any = composed_data(*given, f"data.root={root}", f"data.endpoint={storage}")
    for data in (here, there):
        data.setup()
    assert here.classes == there.classes == ("a", "b")
    hidden = [message.partition(" is left out")[0] for message in caplog.messages if "with a dot" in message]
    assert sorted(hidden) == sorted(f"{place}/{split}/.c" for place in (tmp_path, root) for split in ("train", "val"))
    for split, files in here.found.items():
        paths = [path.removeprefix(f"{tmp_path}/") for path in files.paths]
        assert [path.removeprefix(f"{root}/") for path in there.found[split].paths] == paths
        assert there.found[split].indices.tolist() == files.indices.tolist()
        for (pixels, _), (wanted, _) in zip(there.batches(split, 2), here.batches(split, 2), strict=True):
            assert torch.equal(pixels, wanted)


def test_what_the_storage_gives_is_measured_and_one_that_fails_then_ends_no_run(
    sample_root: Path, tiles_there: tuple[str, ...]
) -> None:
    data: Any = composed_data(*tiles_there, "data.batch_size=4")
    data.setup()
    rows = [{"epoch": step // 4, "data_wait": 0.2 if step < 4 else 0.1} for step in range(12)]
    sides = Sides(0.1)
    measure = partial(measure_storage, sides=sides, data=data, workers=2, seconds=0.1, rows=rows)
    found = measure("storage") | measure("storage_more")
    source = data.found["train"]
    names = {Path(source.path(index)).name for index in range(len(source))}
    sizes = [path.stat().st_size for path in (sample_root / TILES).rglob("*.tif") if path.name in names]
    assert len(sizes) == len(source)
    assert found["object_bytes"] == pytest.approx(sum(sizes) / len(sizes))
    assert (found["at_once"], found["ranks"]) == (8, 1)
    source.objects.storage.requests, data.engine = 3, TorchEngine(num_workers=2, pin_memory=None)
    assert measure("storage")["at_once"] == 6  # of two processes, three each
    assert found["first_wait"] is None  # there is no cache that could be cold
    assert min(found["rate"], found["more"], found["alone_seconds"]) > 0
    with nobody() as endpoint:
        source.objects.storage.endpoint, source.objects.storage._open = endpoint, None
        source.objects.storage.timeout_seconds = 0.3
        assert sides.attempt("storage", lambda: measure("storage")) is None
    assert "cannot be fetched" in sides.failures[0]


def test_ranks_fetch_at_once_and_the_rate_is_that_of_all(tiles_there: tuple[str, ...]) -> None:
    data: list[Any] = [composed_data(*tiles_there, "data.batch_size=4") for _ in range(2)]
    for one in data:
        one.setup()

    def of_rank(ranks: Ranks) -> Any:
        sides = Sides(0.1, ranks)
        measure = partial(measure_storage, sides=sides, data=data[ranks.rank], workers=2, seconds=0.1)
        return [sides.attempt(side, partial(measure, side)) for side in STORAGE]

    first, second = together(of_rank, of_rank)
    assert first == second
    found, more = first
    assert found["ranks"] == 2
    assert min(found["rate"], found["alone_seconds"], more["more"]) > 0


class Peak(SlowLine):
    """A line that knows how many connections were open at once."""

    most = 0

    def serve(self, client: socket.socket) -> None:
        self.most = max(self.most, len(self._open) // 2 + 1)
        super().serve(client)


def slow(line: SlowLine, root: str, *overrides: str) -> Any:
    """Tiles behind a line, set up; training reads 16 images a batch."""
    given = ("data=eurosat", root, f"data.endpoint={line.endpoint}", "data.batch_size=16", *overrides)
    data: Any = composed_data(*given)
    data.setup()
    return data


def asked(line: SlowLine, data: Any) -> int:
    """The requests of an epoch."""
    before = line.requests
    for _ in data.batches("train", 16):
        pass
    return line.requests - before


@pytest.mark.parametrize(
    ("before", "remedy"),
    [
        ("loader=native", "data.cache={folder}/cache"),
        ("loader=native", "loader=packed loader.directory={folder}/packs"),
        ("loader=packed loader.shards={out} loader.stream=true", "loader.stream=false loader.directory={folder}/packs"),
    ],
    ids=["cache", "pack", "copy"],
)
def test_what_is_kept_on_the_disk_is_fetched_once(
    before: str, remedy: str, storage: str, tiles_there: tuple[str, ...], tmp_path: Path
) -> None:
    _, root, _ = tiles_there
    out = "s3://strobe/shards-to-copy"
    given = [text.format(out=out, folder=tmp_path).split() for text in (before, remedy)]
    if "loader.shards" in before:
        pack.main(["--shards", out, *tiles_there])
    with SlowLine(storage) as line:
        without = slow(line, root, *given[0])
        images = len(without.datasets["train"])
        assert [asked(line, without) >= images for _ in range(2)] == [True, True]
        helped = slow(line, root, *applied(*given))
        asked(line, helped)
        assert asked(line, helped) == 0


def test_more_requests_are_under_way_at_once_where_more_are_allowed(storage: str, tiles_there: tuple[str, ...]) -> None:
    most = []
    for requests in (2, 8):
        with Peak(storage, latency=0.05) as line:
            data = slow(line, tiles_there[1], "loader=native", f"data.requests={requests}")
            data.found["train"].objects.storage._open, line.most = None, 0  # with the connections that listed
            asked(line, data)
            most.append(line.most)
    assert most[0] < 4 < most[1]  # one may still be closing


def test_batches_are_fetched_ahead_by_threads_that_wait(storage: str, tiles_there: tuple[str, ...]) -> None:
    with SlowLine(storage, latency=0.02) as line:
        for engine, ahead in (
            ("engine=torch engine.num_workers=0", False),
            ("engine=litdata engine.num_workers=4", True),
        ):
            data = slow(line, tiles_there[1], "loader=native", *engine.split())
            before, epoch = line.requests, iter(data.batches("train", 16))
            next(epoch)
            deadline = time.monotonic() + (10 if ahead else 0.3)
            while line.requests - before <= 16 and time.monotonic() < deadline:
                time.sleep(0.01)
            assert (line.requests - before > 16) == ahead, engine
            del epoch


@pytest.mark.slow
def test_two_trainings_at_once_share_a_cache_that_is_too_small_and_end_alike(
    tiles_there: tuple[str, ...], tmp_path: Path
) -> None:
    cache, most = tmp_path / "cache", 2_000_000
    given = ["trainer.accelerator=cpu", "ceilings=false", "test=false", "checkpoint.save=resume", *SHORTLY[:3]]
    given += [*tiles_there, "engine=litdata", f"data.cache={cache}", f"data.cache_gb={most / 1e9}", "profiler=none"]
    runs = [tmp_path / name for name in ("one", "other")]
    both = [begin("train.py", *given, f"hydra.run.dir={run}") for run in runs]
    for one in both:
        ended(one)
    assert same_weights(*runs)
    kept = [path.stat().st_size for path in cache.rglob("*") if path.is_file() and not path.name.startswith(".")]
    assert most / 2 < sum(kept) <= most
    assert int((cache / ".bytes").read_text()) == sum(kept)
