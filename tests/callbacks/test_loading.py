"""Spans of loading work as events of a trace."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest
from torch_tb_profiler.profiler.trace import create_event

from strobe.callbacks.loading import track_events
from strobe.callbacks.ring_buffer import Span, Track

MAIN = 1000
WINDOW = (10_000_000, 20_000_000)  # ns
Event = dict[str, Any]


def made(batch: int, start: int, end: int | None, name: str = "batch", *, split: str = "train", epoch: int = 0) -> Span:
    """Work on a batch of eight; times in microseconds."""
    return Span(name, start * 1000, end and end * 1000, 8, split, epoch, batch)


def track(*spans: Span, pid: int = 2001, worker: int | None = 0, name: str = "MainThread", lost: int = 0) -> Track:
    return Track(pid, pid, name, worker, list(spans), lost)


def events_of(*tracks: Track, fetched: Mapping[tuple[int, int], int] | None = None) -> list[Event]:
    return track_events(
        tracks, lambda ns: ns / 1e3 + 0.5, fetched=fetched or {}, main_pid=MAIN, window=WINDOW
    )  # a trace's clock has an offset


def ranges(events: list[Event]) -> list[tuple[str, float, float]]:
    """Name, start and end in microseconds."""
    return [(e["name"], e["ts"] - 0.5, e["ts"] + e["dur"] - 0.5) for e in events if e["ph"] == "X"]


def processes(events: list[Event]) -> list[str]:
    """Titles in the order that a viewer shows."""
    order = {e["pid"]: e["args"]["sort_index"] for e in events if e["name"] == "process_sort_index"}
    titles = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert order.keys() == titles.keys() == {e["pid"] for e in events}
    assert min(order.values()) > MAIN
    return [titles[pid] for pid in sorted(titles, key=lambda pid: order[pid])]


def rows(events: list[Event]) -> dict[tuple[int, int], str]:
    named = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert named.keys() == {(e["pid"], e["tid"]) for e in events if e["ph"] == "X"}
    return named


def test_a_span_that_overlaps_the_window_is_kept_whole() -> None:
    spans = [made(n, *edges) for n, edges in enumerate([(1, 9999), (9000, 10_001), (19_999, 30_000), (20_001, 20_002)])]
    fetched = {(0, n): 10_000_001 for n in range(4)}
    events = events_of(track(*spans), fetched=fetched)
    assert [r for r in ranges(events) if r[0] == "batch"] == [("batch", 9000, 10_001), ("batch", 19_999, 30_000)]


def test_what_a_span_was_for_stands_in_its_arguments() -> None:
    batch, read = made(3, 11_000, 12_000, epoch=1), Span("read", 11_000_000, 11_500_000, 1, "train", 1, 3)
    alone = Span("read", 13_000_000, 13_000_000, 0, "", None, None)
    events = [e for e in events_of(track(batch, read, alone), fetched={(1, 3): 12_000_000}) if e["ph"] == "X"]
    assert [e["args"] for e in events] == [
        {"files": 8, "batch": 3, "epoch": 1, "split": "train"},
        {"files": 1, "batch": 3, "epoch": 1, "split": "train"},
        {"files": 0},
    ]
    assert {e["cat"] for e in events} == {"loader"}


def test_work_in_progress_reaches_to_the_end_of_the_window() -> None:
    events = events_of(track(made(0, 15_000, None)))
    assert ranges(events) == [("batch", 15_000, 20_000)]
    assert events[-1]["args"]["unfinished"] is True
    assert events_of(track(made(0, 20_001, None))) == []


def test_a_batch_waits_until_it_is_fetched() -> None:
    spans = [made(n, start, start + 1000) for n, start in enumerate([5000, 6000, 11_000, 12_000, 18_000, 21_000])]
    fetched = {(0, 0): 9_999_000, (0, 1): 10_500_000, (0, 2): 12_500_000, (0, 3): 25_000_000, (1, 4): 19_500_000}
    fetched[0, 5] = 25_000_000
    events = events_of(track(*spans), fetched=fetched)
    assert sorted(r for r in ranges(events) if "waiting" in r[0]) == [
        ("batch 1 waiting", 7000, 10_500),  # 0 was had before the window, 5 is made after it
        ("batch 2 waiting", 12_000, 12_500),
        ("batch 3 waiting", 13_000, 25_000),
        ("batch 4 waiting", 19_000, 20_000),
    ]
    assert [e["name"] for e in events if "not fetched" in e.get("args", {})] == ["batch 4 waiting"]


def test_batches_made_again_do_not_wait_for_the_fetch_before() -> None:
    events = events_of(track(made(0, 11_000, 12_000), made(0, 15_000, 16_000)), fetched={(0, 0): 12_500_000})
    waits = [r for r in ranges(events) if "waiting" in r[0]]
    assert waits == [("batch 0 waiting", 12_000, 12_500), ("batch 0 waiting", 16_000, 20_000)]


def test_waiting_batches_share_rows_without_overlap() -> None:
    ends = [11_000, 12_000, 13_000, 14_000, 15_000, 16_000]
    fetched = {(0, n): (ends[n] + (3500 if n % 2 else 1500)) * 1000 for n in range(6)}
    events = events_of(track(*(made(n, end - 100, end) for n, end in enumerate(ends))), fetched=fetched)
    lanes: dict[int, list[Event]] = {}
    for event in events:
        if "waiting" in event["name"]:
            lanes.setdefault(event["tid"], []).append(event)
    assert sum(map(len, lanes.values())) == 6
    assert len(lanes) == 3  # at 14.2 ms the batches 1, 2 and 3 wait
    for lane in lanes.values():
        assert all(a["ts"] + a["dur"] <= b["ts"] for a, b in pairwise(lane))
    named = rows(events)
    assert sorted(named[2001, tid] for tid in lanes) == [f"waiting batches {n}" for n in (1, 2, 3)]


def test_processes_are_named_and_ordered() -> None:
    events = events_of(
        track(made(0, 11_000, 12_000, split="val"), pid=2003, worker=0),
        track(made(0, 11_000, 12_000), pid=2002, worker=0, lost=5),
        track(made(0, 11_000, 12_000), pid=2001, worker=1),
        track(made(0, 11_000, 12_000), pid=MAIN, worker=None),
        track(Span("read", 11_000_000, 12_000_000, 1, "", None, None), pid=2004, worker=None),
        track(made(0, 1, 2, split="val"), pid=2005, worker=7),
        fetched={(0, 0): 12_000_000},
    )
    assert processes(events) == [
        "loader in the training process",
        "loader worker 0, 5 spans lost",
        "loader process 2004",
        "loader worker 1",
        "loader worker 0 (val)",
    ]
    assert [e["pid"] for e in events if e["name"] == "batch (val)"] == [2003]


def test_validation_batches_are_not_said_to_wait() -> None:
    events = events_of(track(made(0, 11_000, 12_000, split="val")), fetched={(0, 0): 15_000_000})
    assert ranges(events) == [("batch (val)", 11_000, 12_000)]


def test_threads_of_the_training_process_are_rows_of_a_process_of_their_own() -> None:
    tracks = [
        Track(MAIN, MAIN + n, f"decoder {n}", None, [made(n, 11_000, 12_000), made(n, 11_500, 11_600, "read")], 0)
        for n in range(2)
    ]
    events = events_of(*tracks, fetched={(0, n): 13_000_000 for n in range(2)})
    named = rows(events)
    assert sorted(named.values()) == ["decoder 0", "decoder 1", "waiting batches 1", "waiting batches 2"]
    (pid,) = {pid for pid, _ in named}
    assert 1 << 22 < pid < 1 << 31  # no process of Linux has such a number
    assert not {tid for _, tid in named} & {MAIN, MAIN + 1}  # the trace knows them in another process
    shown = {named[pid, e["tid"]]: e["args"]["batch"] for e in events if e["name"] == "read"}
    assert shown == {"decoder 0": 0, "decoder 1": 1}


@pytest.mark.parametrize("end", [None, 12_000])
def test_the_plugin_passes_over_all_of_them(end: int | None) -> None:
    events = events_of(track(made(0, 11_000, end)), track(made(1, 11_000, end), pid=MAIN, worker=None))
    assert len(events) > 6
    assert [create_event(event, False) for event in events] == [None] * len(events)
