"""From spans of loading work to events for a trace, as processes and threads of their own.

Events follow the Trace Event Format, https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU.
Their category, `loader`, is one that torch-tb-profiler 0.4.3 passes over (its `trace.EventTypeMap`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count

from .ring_buffer import Span, Track
from .tracefile import Event

_Row = tuple[int, str, list[Event]]  # thread, its name, its ranges
_Wait = tuple[Span, int, int, bool]  # a batch, from, to, whether training fetched it then
_SYNTHETIC = 1 << 30  # above every process and thread number that Linux gives, and within 32 bits


def track_events(
    tracks: Sequence[Track],
    to_trace_us: Callable[[int], float],
    *,
    fetched: Mapping[tuple[int, int], int],
    main_pid: int,
    window: tuple[int, int],
) -> list[Event]:
    """Events for what loaders did in a time, and for how long the batches that they made lay waiting.

    Each worker process becomes a process, each of its threads a row. Threads of the training process become rows of
    one more process. Further rows hold the training batches that are made and not yet fetched; several wait at once,
    and those on one row never overlap. A span that overlaps the window is kept whole; one that had not ended when it
    was read reaches to the window's end and is marked `unfinished`.

    Args:
        tracks: The work, as `SpanFolder.read` gives it.
        to_trace_us: From `time.monotonic_ns()` to the trace's `ts`, in microseconds.
        fetched: When training had a batch, by its epoch and number, in `time.monotonic_ns()`. A batch that is not
            in it, or was made again after that, waits until the window's end and is marked `not fetched`.
        main_pid: The training process.
        window: Start and end of what the trace shows, in `time.monotonic_ns()`.
    """
    spans = {track.pid: list[Span]() for track in tracks}
    for track in tracks:
        spans[track.pid] += track.spans
    synthetic = count(_SYNTHETIC)
    events: list[Event] = []
    order = sorted(spans, key=lambda pid: (pid != main_pid, _splits(spans[pid]), _worker(tracks, pid) or 0, pid))
    for place, pid in enumerate(order, start=1):
        threads = [track for track in tracks if track.pid == pid]
        rows: list[_Row] = []
        for track in threads:
            # A thread of the training process stands in the trace already, under its own number.
            thread = next(synthetic) if pid == main_pid else track.tid
            ranges = [_work(span, to_trace_us, window) for span in track.spans if _overlaps(span, window)]
            rows.append((thread, "loading" if track.name == "MainThread" else track.name, ranges))
        for number, lane in enumerate(_lanes(_waits(spans[pid], fetched, window)), start=1):
            ranges = [_waiting(*wait, to_trace_us) for wait in lane]
            rows.append((next(synthetic), f"waiting batches {number}", ranges))
        if any(ranges for *_, ranges in rows):
            shown = _SYNTHETIC + main_pid if pid == main_pid else pid
            events.append(_metadata(shown, 0, "process_name", name=_title(threads, spans[pid], main_pid)))
            events.append(_metadata(shown, 0, "process_sort_index", sort_index=main_pid + place))
            events += _process(shown, rows)
    return events


def _process(pid: int, rows: Sequence[_Row]) -> list[Event]:
    events: list[Event] = []
    for place, (thread, name, ranges) in enumerate(rows):
        if ranges:
            events.append(_metadata(pid, thread, "thread_name", name=name))
            events.append(_metadata(pid, thread, "thread_sort_index", sort_index=place))
            events += [{**event, "pid": pid, "tid": thread} for event in ranges]
    return events


def _title(threads: Sequence[Track], spans: Sequence[Span], main_pid: int) -> str:
    pid = threads[0].pid
    worker = _worker(threads, pid)
    title = f"loader process {pid}" if worker is None else f"loader worker {worker}"
    if pid == main_pid:
        title = "loader in the training process"
    elif others := _splits(spans):
        title += f" ({', '.join(others)})"
    lost = sum(track.lost for track in threads)
    return f"{title}, {lost} spans lost" if lost else title


def _worker(tracks: Sequence[Track], pid: int) -> int | None:
    return next((track.worker for track in tracks if track.pid == pid), None)


def _splits(spans: Sequence[Span]) -> list[str]:
    """What a process loads for, where that is not training alone."""
    found = sorted({span.split for span in spans if span.split})
    return [] if found == ["train"] else found


def _overlaps(span: Span, window: tuple[int, int]) -> bool:
    return span.start <= window[1] and (span.end is None or span.end >= window[0])


def _work(span: Span, to_trace_us: Callable[[int], float], window: tuple[int, int]) -> Event:
    args: Event = {"files": span.files, "batch": span.batch, "epoch": span.epoch, "split": span.split}
    args = {key: value for key, value in args.items() if value not in (None, "")}
    if span.end is None:
        args["unfinished"] = True
    other = span.name == "batch" and span.split not in ("train", "")
    name = f"batch ({span.split})" if other else span.name
    return _range(name, span.start, span.end or window[1], args, to_trace_us)


def _waits(spans: Iterable[Span], fetched: Mapping[tuple[int, int], int], window: tuple[int, int]) -> Iterable[_Wait]:
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
    """Waits dealt out to as few rows as hold them without overlap."""
    lanes: list[list[_Wait]] = []
    for wait in sorted(waits, key=lambda wait: wait[1]):
        lane = next((lane for lane in lanes if lane[-1][2] <= wait[1]), None)
        if lane is None:
            lanes.append([wait])
        else:
            lane.append(wait)
    return lanes


def _waiting(span: Span, start: int, end: int, was_fetched: bool, to_trace_us: Callable[[int], float]) -> Event:
    args: Event = {"files": span.files, "batch": span.batch, "epoch": span.epoch}
    if not was_fetched:
        args["not fetched"] = True
    return _range(f"batch {span.batch} waiting", start, end, args, to_trace_us)


def _range(name: str, start: int, end: int, args: Event, to_trace_us: Callable[[int], float]) -> Event:
    ts = round(to_trace_us(start), 3)
    duration = round(to_trace_us(end) - ts, 3)
    return {"ph": "X", "cat": "loader", "name": name, "ts": ts, "dur": duration, "args": args}


def _metadata(pid: int, tid: int, kind: str, **args: str | int) -> Event:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": args}
