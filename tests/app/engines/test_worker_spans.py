"""What loader workers and threads do is found again in a trace: where, when, and by whom it was done."""

import json
import os
import pickle
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import torch
from torch.utils.data import get_worker_info

from strobe.app.engines.base import WholeBatches
from strobe.app.engines.sampler import EpochSampler, ShardedBatches
from strobe.app.loaders.base import Batch, LoadedData
from strobe.callbacks.loading import track_events
from strobe.callbacks.spans import SpanFolder, span
from support.pipeline_parts import PAIRS, dataset, loader

EVER = (0, 1 << 62)
BATCHES, SIZE = 6, 3
SLEEPS = {"read": 0.004, "decode": 0.002}
Event = dict[str, Any]


class Sleeps(LoadedData):
    """Reads and decodes by sleeping, and notes on its own when it did, and where, in a file."""

    def __init__(self, notes: Path) -> None:
        super().__init__(None, range(BATCHES * SIZE))
        self.notes = notes

    def __getitem__(self, index: int) -> Batch:
        for name, seconds in SLEEPS.items():
            before = time.monotonic_ns()
            with span(name, 1):
                began = time.monotonic_ns()
                time.sleep(seconds)
                ended = time.monotonic_ns()
            after = time.monotonic_ns()
            worker = get_worker_info()
            note = {
                "name": name,
                "batch": index // SIZE,
                "worker": None if worker is None else worker.id,
                "thread": None if worker is not None else threading.current_thread().name,
                "pid": os.getpid(),
                "times": [before, began, ended, after],
            }
            with self.notes.open("a") as file:  # one short line: written in one piece
                file.write(json.dumps(note) + "\n")
        return torch.zeros(1), torch.tensor(index)


@contextmanager
def recording(directory: Path) -> Iterator[SpanFolder]:
    folder = SpanFolder(directory)
    folder.start()
    folder.switch(True)
    try:
        yield folder
    finally:
        folder.close()


def order(split: str = "train") -> ShardedBatches:
    shuffled = EpochSampler(BATCHES * SIZE, shuffle=False, seed=0)
    shuffled.set_epoch(4)
    return ShardedBatches(shuffled, SIZE, split=split)


def batches(how: str, dataset: LoadedData, stack: ExitStack, split: str = "train") -> Iterator[Batch]:
    if how == "threads":
        pool = stack.enter_context(ThreadPoolExecutor(2, thread_name_prefix="pool"))
        return pool.map(WholeBatches(dataset).__getitems__, order(split))
    if how == "spdl":
        return iter(loader("spdl", dataset, order(split), 2))
    context = None if how == "in process" else how
    options = {"persistent_workers": False, "multiprocessing_context": context}
    return iter(loader("torch", dataset, order(split), 2 if context else 0, **options))


def ranges(events: list[Event], name: str) -> list[Event]:
    return sorted((e for e in events if e["ph"] == "X" and e["name"] == name), key=lambda e: e["ts"])


def within(event: Event, outer: Event) -> bool:
    same = (event["pid"], event["tid"]) == (outer["pid"], outer["tid"])
    return same and outer["ts"] <= event["ts"] and event["ts"] + event["dur"] <= outer["ts"] + outer["dur"] + 1e-3


@pytest.mark.parametrize(
    "how", ["fork", pytest.param("spawn", marks=pytest.mark.slow), "in process", "threads", "spdl"]
)
def test_sleeps_are_found_where_and_when_they_were(how: str, tmp_path: Path) -> None:
    fetched: dict[tuple[int, int], int] = {}
    first = time.monotonic_ns()
    with recording(tmp_path) as folder, ExitStack() as stack:
        for number, (_, labels) in enumerate(batches(how, Sleeps(tmp_path / "notes"), stack)):
            fetched[4, number] = time.monotonic_ns()
            assert labels.tolist() == list(range(number * SIZE, (number + 1) * SIZE))
            time.sleep(0.01)
        tracks = folder.read(*EVER)
    events = track_events(
        tracks,
        lambda ns: (ns - first) / 1e3,
        fetched=fetched,
        main_pid=os.getpid(),
        window=(first, time.monotonic_ns()),
    )
    titles = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    rows = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    notes = [json.loads(line) for line in (tmp_path / "notes").read_text().splitlines()]
    for name in SLEEPS:
        noted = sorted((n for n in notes if n["name"] == name), key=lambda n: n["times"][1])
        found = ranges(events, name)
        assert len(found) == len(noted) == BATCHES * SIZE
        errors = []
        for event, note in zip(found, noted, strict=True):
            before, began, ended, after = ((t - first) / 1e3 for t in note["times"])
            start, end = event["ts"], event["ts"] + event["dur"]
            assert before - 0.01 <= start <= began + 0.01
            assert ended - 0.01 <= end <= after + 0.01
            errors += [began - start, end - ended]
            assert event["args"] == {"files": 1, "batch": note["batch"], "epoch": 4, "split": "train"}
            if note["worker"] is None:
                assert titles[event["pid"]] == "loader in the training process"
                thread = "loading" if note["thread"] == "MainThread" else note["thread"]
                assert rows[event["pid"], event["tid"]] == thread
            else:
                assert titles[event["pid"]] == f"loader worker {note['worker']}"
                assert event["pid"] == note["pid"]
        assert median(errors) < 1000  # microseconds: bounded for each by what was noted, which a busy machine spreads
    made = {event["args"]["batch"]: event for event in ranges(events, "batch")}
    assert sorted(made) == list(range(BATCHES))
    for number, batch in made.items():
        assert batch["args"] == {"files": SIZE, "batch": number, "epoch": 4, "split": "train"}
        for name, count in (("read", SIZE), ("decode", SIZE), ("collate", 1)):
            inner = [event for event in ranges(events, name) if within(event, batch)]
            assert [event["args"]["batch"] for event in inner] == [number] * count
        (wait,) = ranges(events, f"batch {number} waiting")
        assert wait["ts"] == pytest.approx(batch["ts"] + batch["dur"], abs=0.01)
        assert wait["ts"] + wait["dur"] == pytest.approx((fetched[4, number] - first) / 1e3, abs=0.01)
        assert wait["pid"] == batch["pid"]
    assert len(titles) == (2 if how in ("fork", "spawn") else 1)


@pytest.mark.parametrize("how", ["fork", "in process", "threads", "spdl"])
def test_nothing_is_written_while_off(how: str, tmp_path: Path) -> None:
    with recording(tmp_path) as folder, ExitStack() as stack:
        folder.switch(False)
        assert len(list(batches(how, Sleeps(tmp_path / "notes"), stack))) == BATCHES
        assert list(tmp_path.glob("*/*.ring")) == []
        assert folder.read(*EVER) == []


def test_workers_begin_and_end_with_the_switch(tmp_path: Path) -> None:
    """Also those that were started before."""
    with recording(tmp_path) as folder, ExitStack() as stack:
        folder.switch(False)
        begun_before = batches("fork", Sleeps(tmp_path / "notes"), stack)
        next(begun_before)  # batches 1 to 4 are on the way
        folder.switch(True)
        since = time.monotonic_ns()
        rest = list(begun_before)
        spans = [s for track in folder.read(*EVER) for s in track.spans]
    assert len(rest) == BATCHES - 1
    assert spans
    assert all(s.start >= since for s in spans)
    begun = {s.batch for s in spans if s.name == "batch"}
    assert 0 not in begun  # it was had already
    assert 5 in begun  # its turn came when the first of the rest was had


def test_splits_are_told_apart(tmp_path: Path) -> None:
    with recording(tmp_path) as folder:
        for split in ("train", "val"):
            with ExitStack() as stack:
                list(batches("fork", Sleeps(tmp_path / "notes"), stack, split))
        tracks = folder.read(*EVER)
    events = track_events(tracks, lambda ns: ns / 1e3, fetched={}, main_pid=os.getpid(), window=EVER)
    titles = [e["args"]["name"] for e in events if e["name"] == "process_name"]
    assert titles == ["loader worker 0", "loader worker 1", "loader worker 0 (val)", "loader worker 1 (val)"]
    assert (len(ranges(events, "batch")), len(ranges(events, "batch (val)"))) == (BATCHES, BATCHES)


def test_each_split_of_a_data_set_says_which_it_is(sample_root: Path) -> None:
    from support.composing import composed_data  # not above: a spawned worker imports this module

    data = composed_data("data=sample", f"data.root={sample_root}", "data.tiles_per_class=10")
    data.setup()
    for split in ("train", "val", "test"):
        assert {indices.split for indices in data.batches(split, 8).batch_sampler} == {split}


def test_a_worker_learns_what_batch_it_makes() -> None:
    sharded = ShardedBatches(EpochSampler(20, shuffle=True, seed=0), 4, start=lambda: 2, split="val")
    sharded.sampler.set_epoch(3)
    sent = list(sharded)
    arrived = pickle.loads(pickle.dumps(sent))
    assert arrived == sent
    assert [(i.split, i.epoch, i.number) for i in arrived] == [("val", 3, 2), ("val", 3, 3), ("val", 3, 4)]


@pytest.mark.parametrize("scale", ["device", "numpy"])
@pytest.mark.parametrize(("name", "form"), [(name, form) for form, name in PAIRS])
def test_each_loader_says_what_it_does_to_how_many_images(name: str, form: str, scale: str, tmp_path: Path) -> None:
    loaded = WholeBatches(dataset(form, name, tmp_path, scale=scale))
    with recording(tmp_path) as folder:
        loaded.__getitems__(next(iter(ShardedBatches(EpochSampler(4, shuffle=False, seed=0), 4))))
        ((batch, *inner),) = [track.spans for track in folder.read(*EVER)]
    files: dict[str, int] = {}
    for s in inner:
        assert batch.start <= s.start <= s.end <= batch.end
        files[s.name] = files.get(s.name, 0) + s.files
    assert batch.name == "batch"
    assert files.pop("collate") == 4
    assert files.pop("scale", 0) == (0 if scale == "device" else 4)
    assert files
    assert set(files.values()) == {4}
    assert {"read", "read+decode"} & files.keys()
