"""Adds what loaders did while steps were recorded to the trace, as processes and threads.

Events follow the Trace Event Format, https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU.
Their category, `loader`, is one that torch-tb-profiler 0.4.3 passes over (its `trace.EventTypeMap`).
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from torch.utils._pytree import tree_leaves

from .ranges import Interval
from .ring_buffer import Span, Track
from .schedule import Schedule
from .spans import SpanFolder
from .tracefile import Event

_MANY = 32  # batches made in advance, while it is not known how many are
_SYNTHETIC = 1 << 30  # above every process and thread number that Linux gives, and within 32 bits
_Wait = tuple[Span, int, int, bool]  # a batch, from, to, whether training fetched it then


class Loading:
    """Lets loaders record spans early enough for the recorded steps, and collects them.

    A batch is made some steps before it is used, so spans are recorded that many steps earlier.
    """

    def __init__(self) -> None:
        self._folder: SpanFolder | None = None
        self._ahead = _MANY
        self._fetched: dict[tuple[int, int], int] = {}  # (epoch, batch): monotonic nanoseconds
        self.on = False  # whether spans are recorded now
        self.lanes: dict[str, list[Interval]] = {}  # what each thread did for training in the last cycle

    def open(self, schedule: Schedule) -> None:
        """Make spans possible, before the first worker starts."""
        if self._folder is None:
            self._folder = SpanFolder()
            self._folder.start()
            self.watch(schedule, 0)

    def look_ahead(self, loaders: Any) -> None:
        """Learn from one or several DataLoaders how many batches their workers make in advance."""
        leaves = tree_leaves(loaders)
        made = [getattr(one, "num_workers", 0) * (getattr(one, "prefetch_factor", None) or 1) for one in leaves]
        self._ahead = max(made, default=0) + 1

    def watch(self, schedule: Schedule, step: int) -> None:
        """Record spans from now on if a recorded step may use what is made now."""
        self.switch(schedule.records_within(step, self._ahead))

    def switch(self, on: bool) -> None:
        """Start or stop recording."""
        if self._folder is not None and on != self.on:
            self._folder.switch(on)
            self.on = on

    def fetched(self, epoch: int, batch: int, at: int) -> None:
        """Note when training got a batch."""
        self._fetched[epoch, batch] = at

    def events(self, to_trace_us: Callable[[int], float], since: int, until: int) -> list[Event]:
        """Trace events of what was recorded between two moments in monotonic nanoseconds."""
        if self._folder is None:
            return []
        fetched, self._fetched = self._fetched, {}
        newest = max(fetched, default=(-1, -1))

        def is_gone(span: Span) -> bool:  # training had it while nobody took note
            key = (span.epoch, span.batch)
            return span.name == "batch" and key <= newest and key not in fetched and (span.end or until) < since

        # A batch that was made long before may still lie waiting.
        tracks = [
            replace(track, spans=[span for span in track.spans if not is_gone(span)])
            for track in self._folder.read(0, until)
        ]
        self.lanes = {}
        for track in tracks:
            work = [  # a batch holds the other spans
                Interval(span.name, span.start, span.end or until)
                for span in track.spans
                if span.name != "batch" and span.split in ("train", "") and (span.end or until) > since
            ]
            if work:
                name = track.name if track.worker is None else f"worker {track.worker}"
                self.lanes[f"{name} ({track.tid})" if name in self.lanes else name] = work
        return track_events(tracks, to_trace_us, fetched=fetched, main_pid=os.getpid(), window=(since, until))

    def close(self) -> None:
        """Remove the temporary files."""
        folder, self._folder = self._folder, None
        self.on = False
        if folder is not None:
            folder.close()


def track_events(
    tracks: Sequence[Track],
    to_trace_us: Callable[[int], float],
    *,
    fetched: Mapping[tuple[int, int], int],
    main_pid: int,
    window: tuple[int, int],
) -> list[Event]:
    """Events for what loaders did in a window of time, and for how long their batches waited.

    Each worker process becomes a process, each of its threads a row. Threads of the training process become rows of
    one more process. Further rows hold the training batches that are made and not yet fetched; several wait at once,
    and those on one row never overlap. A span that overlaps the window is kept whole; one that had not ended when it
    was read reaches to the window's end and is marked `unfinished`.

    Args:
        tracks: The work, as `SpanFolder.read` gives it; as all times here in `time.monotonic_ns()`.
        to_trace_us: From that to the trace's `ts`, in microseconds.
        fetched: When training had a batch, by its epoch and number. A batch that is not in it, or was made again
            after that, waits until the window's end and is marked `not fetched`.
        main_pid: The training process.
        window: Start and end of what the trace shows.
    """

    def shown(name: str, start: int, end: int, args: Event) -> Event:
        ts = round(to_trace_us(start), 3)
        duration = round(to_trace_us(end) - ts, 3)
        return {"ph": "X", "cat": "loader", "name": name, "ts": ts, "dur": duration, "args": args}

    def work(span: Span) -> Event:
        args: Event = {"files": span.files, "batch": span.batch, "epoch": span.epoch, "split": span.split}
        args = {key: value for key, value in args.items() if value not in (None, "")}
        unfinished = {"unfinished": True} if span.end is None else {}
        other = span.name == "batch" and span.split not in ("train", "")
        name = f"batch ({span.split})" if other else span.name
        return shown(name, span.start, span.end or window[1], args | unfinished)

    def waiting(span: Span, start: int, end: int, was_fetched: bool) -> Event:
        args: Event = {"files": span.files, "batch": span.batch, "epoch": span.epoch}
        return shown(f"batch {span.batch} waiting", start, end, args | ({} if was_fetched else {"not fetched": True}))

    processes: dict[int, list[Track]] = {}
    for track in tracks:
        processes.setdefault(track.pid, []).append(track)
    spans = {pid: [span for track in threads for span in track.spans] for pid, threads in processes.items()}
    order = sorted(spans, key=lambda p: (p != main_pid, _splits(spans[p]), processes[p][0].worker or 0, p))
    synthetic = count(_SYNTHETIC)
    events: list[Event] = []
    for place, pid in enumerate(order, start=1):
        rows: list[tuple[int, str, list[Event]]] = []  # thread, its name, its ranges
        for track in processes[pid]:
            # A thread of the training process stands in the trace already, under its own number.
            thread = next(synthetic) if pid == main_pid else track.tid
            overlap = [s for s in track.spans if s.start <= window[1] and (s.end is None or s.end >= window[0])]
            rows.append((thread, "loading" if track.name == "MainThread" else track.name, [*map(work, overlap)]))
        for number, lane in enumerate(_lanes(_waits(spans[pid], fetched, window)), start=1):
            rows.append((next(synthetic), f"waiting batches {number}", [waiting(*wait) for wait in lane]))
        if not any(ranges for *_, ranges in rows):
            continue
        shown_pid = _SYNTHETIC + main_pid if pid == main_pid else pid
        title = _title(processes[pid], _splits(spans[pid]), main_pid)
        events.append(_metadata(shown_pid, 0, "process_name", name=title))
        events.append(_metadata(shown_pid, 0, "process_sort_index", sort_index=main_pid + place))
        for index, (tid, name, ranges) in enumerate(rows):
            if ranges:
                events.append(_metadata(shown_pid, tid, "thread_name", name=name))
                events.append(_metadata(shown_pid, tid, "thread_sort_index", sort_index=index))
                events += [{**event, "pid": shown_pid, "tid": tid} for event in ranges]
    return events


def _title(threads: Sequence[Track], splits: Sequence[str], main_pid: int) -> str:
    pid, worker = threads[0].pid, threads[0].worker
    title = f"loader process {pid}" if worker is None else f"loader worker {worker}"
    if pid == main_pid:
        title = "loader in the training process"
    elif splits:
        title += f" ({', '.join(splits)})"
    lost = sum(track.lost for track in threads)
    return f"{title}, {lost} spans lost" if lost else title


def _splits(spans: Sequence[Span]) -> list[str]:
    """What a process loads for, unless that is only training."""
    splits = sorted({span.split for span in spans if span.split})
    return [] if splits == ["train"] else splits


def _waits(spans: Iterable[Span], fetched: Mapping[tuple[int, int], int], window: tuple[int, int]) -> Iterator[_Wait]:
    for span in spans:
        if span.name != "batch" or span.split != "train" or span.end is None:
            continue
        assert span.epoch is not None
        assert span.batch is not None
        at = fetched.get((span.epoch, span.batch), -1)
        until = at if at >= span.end else window[1]
        if span.end <= window[1] and until >= window[0] and until > span.end:
            yield span, span.end, until, at >= span.end


def _lanes(waits: Iterable[_Wait]) -> list[list[_Wait]]:
    """Waits distributed over as few rows as possible without overlap."""
    lanes: list[list[_Wait]] = []
    for wait in sorted(waits, key=lambda wait: wait[1]):
        lane = next((lane for lane in lanes if lane[-1][2] <= wait[1]), None)
        if lane is None:
            lanes.append([wait])
        else:
            lane.append(wait)
    return lanes


def _metadata(pid: int, tid: int, kind: str, **args: str | int) -> Event:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": args}
