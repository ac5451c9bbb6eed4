"""What loader workers did while steps were recorded, as events for the trace."""

import os
from collections.abc import Callable, Iterator
from typing import Any

from callbacks.ranges import Interval
from callbacks.rings import Track
from callbacks.schedule import Schedule
from callbacks.spans import SpanFolder
from callbacks.tracks import track_events


class Loading:
    """Has loaders record spans in time for the steps that are recorded, and collects them.

    A batch is made some steps before it is used: the spans begin so many steps earlier as batches may lie ready.
    """

    def __init__(self) -> None:
        self._folder: SpanFolder | None = None
        self.on = False  # whether spans are recorded now
        self._ahead = 1
        self._fetched: dict[tuple[int, int], int] = {}  # (epoch, batch): monotonic nanoseconds
        self.lanes: dict[str, list[Interval]] = {}  # what each thread did in the last cycle

    def open(self) -> None:
        """Make spans possible, before the first worker starts."""
        if self._folder is None:
            self._folder = SpanFolder()
            self._folder.start()

    def look_ahead(self, loader: Any) -> None:
        """Learn from a DataLoader how many batches its workers make in advance."""
        workers = getattr(loader, "num_workers", 0)
        self._ahead = workers * (getattr(loader, "prefetch_factor", None) or 1) + 1

    def watch(self, schedule: Schedule, step: int) -> None:
        """Record spans from now on if a step that is recorded may use what is made now."""
        on = self._folder is not None and schedule.records_within(step, self._ahead)
        if self._folder is not None and on != self.on:
            self._folder.switch(on)
        self.on = on

    def fetched(self, epoch: int, batch: int, at: int) -> None:
        """Note when training had a batch."""
        if self.on:
            self._fetched[epoch, batch] = at

    def events(self, to_trace_us: Callable[[int], float], since: int, until: int) -> list[dict[str, Any]]:
        """Trace events of what was recorded between two moments in monotonic nanoseconds."""
        if self._folder is None:
            return []
        tracks = self._folder.read(0, until)  # a batch made long ago may still lie waiting
        self.lanes = {_lane(track): list(_work(track, since, until)) for track in tracks}
        fetched, self._fetched = self._fetched, {}
        return track_events(tracks, to_trace_us, fetched=fetched, main_pid=os.getpid(), window=(since, until))

    def close(self) -> None:
        """Remove what lies in temporary files."""
        folder, self._folder = self._folder, None
        self.on = False
        if folder is not None:
            folder.close()


def _lane(track: Track) -> str:
    return f"{track.name} {track.tid}" if track.worker is None else f"worker {track.worker}"


def _work(track: Track, since: int, until: int) -> Iterator[Interval]:
    for span in track.spans:
        end = span.end or until
        if span.name != "batch" and end > since:  # a batch holds the other spans
            yield Interval(span.name, span.start, end)
