"""What loader workers did while steps were recorded, as events for the trace."""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from torch.utils._pytree import tree_leaves

from .ranges import Interval
from .ring_buffer import Span, Track
from .schedule import Schedule
from .spans import SpanFolder
from .tracks import track_events

_MANY = 32  # batches made in advance, while it is not known how many are


class Loading:
    """Has loaders record spans in time for the steps that are recorded, and collects them.

    A batch is made some steps before it is used: the spans begin so many steps earlier as batches may lie ready.
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
        """Record spans from now on if a step that is recorded may use what is made now."""
        self._switch(schedule.records_within(step, self._ahead))

    def off(self) -> None:
        """Record no more."""
        self._switch(False)

    def fetched(self, epoch: int, batch: int, at: int) -> None:
        """Note when training had a batch."""
        self._fetched[epoch, batch] = at

    def events(self, to_trace_us: Callable[[int], float], since: int, until: int) -> list[dict[str, Any]]:
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
        self.lanes = _lanes(tracks, since, until)
        return track_events(tracks, to_trace_us, fetched=fetched, main_pid=os.getpid(), window=(since, until))

    def close(self) -> None:
        """Remove what lies in temporary files."""
        folder, self._folder = self._folder, None
        self.on = False
        if folder is not None:
            folder.close()

    def _switch(self, on: bool) -> None:
        if self._folder is not None and on != self.on:
            self._folder.switch(on)
            self.on = on


def _lanes(tracks: list[Track], since: int, until: int) -> dict[str, list[Interval]]:
    lanes: dict[str, list[Interval]] = {}
    for track in tracks:
        if work := list(_work(track, since, until)):
            name = track.name if track.worker is None else f"worker {track.worker}"
            lanes[f"{name} ({track.tid})" if name in lanes else name] = work
    return lanes


def _work(track: Track, since: int, until: int) -> Iterator[Interval]:
    for span in track.spans:
        end = span.end or until
        if span.name != "batch" and span.split in ("train", "") and end > since:  # a batch holds the other spans
            yield Interval(span.name, span.start, end)
