"""Profile the Python code of the training loop, by every call or by samples of the stack.

Events: cProfile, https://docs.python.org/3/library/profile.html. Samples: pyinstrument,
https://pyinstrument.readthedocs.io/en/latest/how-it-works.html.
"""

import cProfile
import importlib.util
import io
import logging
import os
import pstats
import re
import sys
from functools import partial
from pathlib import Path
from typing import Any

from .owners import state_before_fit
from .recording import Recording, warning_only

_log = logging.getLogger(__name__)
_ROWS = 100  # functions in each table
_LEAST = 0.002  # share of the time that a line of the text tree has
_FONTS = r"https://fonts\.googleapis\.com/[^\"']*"


class PythonProfiler(Recording):
    """Profile the Python code that the main thread runs in some training steps.

    `kind="events"` counts and times every call with cProfile: exact counts, but each call pays, so that code of many
    small calls looks slower than it is. It writes `python_events.prof` for pstats and snakeviz, and
    `python_events.txt`, tables sorted by cumulative and by own time. `kind="sampling"` looks at the stack every
    `interval` with pyinstrument: at a small and even cost, without counts. It writes `python_sampling.html`, which
    works offline, and `python_sampling.txt`, the same tree as text. With several ranks each file name ends in
    `_rank<r>`. Work of loader workers and other threads is not included.

    Steps are counted from 0 in each `fit`; see :class:`strobe.callbacks.recording.Recording` for what a step is. A
    validation between two of them is profiled too. Files are written at the end of the last step, or when training
    ends or fails before. List this callback last, so that the work of the others stays in the step it is for.

    Args:
        directory: Where files go; made when they are written.
        kind: `events` or `sampling`.
        skip_first: Steps to skip: the first ones include start-up costs.
        steps: Steps to profile, or 0 to go on until training ends.
        interval: Seconds between two samples; not used by `events`.

    Raises:
        ValueError: `kind` is not a choice, `skip_first` or `steps` is negative, or `interval` is not above 0.
        ImportError: `kind="sampling"` without pyinstrument.
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        kind: str = "events",
        skip_first: int = 3,
        steps: int = 20,
        interval: float = 0.001,
    ) -> None:
        if kind not in ("events", "sampling"):
            raise ValueError(f"kind={kind} is not a choice; choose one of events, sampling")
        for name, value in {"skip_first": skip_first, "steps": steps}.items():
            if value < 0:
                raise ValueError(f"{name}={value} is too small; it must be at least 0")
        if interval <= 0:
            raise ValueError(f"interval={interval} is too small; it must be greater than 0")
        if kind == "sampling" and importlib.util.find_spec("pyinstrument") is None:
            raise ImportError("kind=sampling needs pyinstrument, which is not installed; pip install pyinstrument")
        super().__init__(directory)
        self.kind = kind
        self.skip_first = skip_first
        self.steps = steps
        self.interval = interval
        self._step = 0
        self._recorder: _Events | _Sampling | None = None

    def __getstate__(self) -> dict[str, Any]:
        """A copy is as newly made."""
        return state_before_fit(self, _recorder=None)

    @property
    def recording(self) -> bool:
        """Whether the current step is profiled; changes at the end of a step, which includes writing the files."""
        return self._recorder is not None

    def on_train_start(self, trainer: Any, *_: Any, **__: Any) -> None:
        """Begin step 0, before its batch is fetched."""
        super().on_train_start(trainer)
        self._step = 0
        self._begin_or_end(trainer)

    def on_train_batch_end(self, trainer: Any, *_: Any, **__: Any) -> None:
        """End the step, and with the last one the profile."""
        self._step += 1
        self._begin_or_end(trainer)

    def on_train_end(self, trainer: Any, *_: Any, **__: Any) -> None:
        """Write what was profiled if training ends before the last step."""
        self.finish(trainer, keep=self._step > self.skip_first)
        if self._step <= self.skip_first:
            _log.warning("No Python profile: training ended after %d steps, skip_first=%d", self._step, self.skip_first)

    def _begin_or_end(self, trainer: Any) -> None:
        if self._step == self.skip_first:
            self._begin()
        elif self.steps > 0 and self._step == self.skip_first + self.steps:
            self.finish(trainer)

    def _begin(self) -> None:
        sampling = self.kind == "sampling"
        recorder = _Sampling(self.interval, f"Training from step {self._step}") if sampling else _Events()
        try:
            if (active := sys.getprofile()) is not None:  # before Python 3.12 it would be replaced without a word
                raise ValueError(f"{active!r} is active")
            recorder.start()
        except (ValueError, RuntimeError) as error:
            _log.warning("No Python profile: another profiler runs in this thread (%s); stop it first", error)
            return
        self._recorder = recorder
        _running.add(recorder)

    def finish(self, trainer: Any, *, keep: bool = True) -> None:
        """Stop profiling, and write what there is if it is kept; a second call does nothing."""
        recorder, self._recorder = self._recorder, None
        if recorder is None:
            return
        _running.discard(recorder)
        with warning_only("The Python profile"):
            recorder.stop()
            if keep:
                with self.drafts() as folder:
                    self.place(*recorder.write(folder / f"python_{self.kind}{self.suffix}"))


class _Events:
    def __init__(self) -> None:
        self._profile = cProfile.Profile()
        self.start, self.stop = self._profile.enable, self._profile.disable

    def write(self, path: Path) -> list[Path]:
        """Write the profile to files with that name and different endings."""
        binary, text = path.with_suffix(".prof"), path.with_suffix(".txt")
        self._profile.dump_stats(binary)
        tables = io.StringIO()
        for key, title in (("cumulative", "cumulative time, with what it calls"), ("tottime", "own time")):
            tables.write(f"Functions by {title}; all times in seconds\n")
            pstats.Stats(self._profile, stream=tables).sort_stats(key).print_stats(_ROWS)
        content = tables.getvalue()
        for root in sorted(filter(None, sys.path), key=len, reverse=True):
            content = content.replace(f" {root}{os.sep}", " ")
        text.write_text(content, encoding="utf-8")
        return [binary, text]


class _Sampling:
    def __init__(self, interval: float, title: str) -> None:
        from pyinstrument import Profiler

        self._profiler = Profiler(interval=interval, async_mode="disabled")
        self.start = partial(self._profiler.start, target_description=title)
        self.stop = self._profiler.stop

    def write(self, path: Path) -> list[Path]:
        from pyinstrument import processors
        from pyinstrument.renderers import ConsoleRenderer

        page, text = path.with_suffix(".html"), path.with_suffix(".txt")
        # The page asks for nothing else of the internet than its fonts, and has others.
        page.write_text(re.sub(_FONTS, "data:text/css,", self._profiler.output_html()), encoding="utf-8")
        tree = ConsoleRenderer(unicode=True, processor_options={"filter_threshold": _LEAST})
        tree.processors.remove(processors.group_library_frames_processor)  # hides all of lightning and torch
        text.write_text(self._profiler.output(tree), encoding="utf-8")
        return [page, text]


_running: set[_Events | _Sampling] = set()


def _stop_in_child() -> None:
    """Loader workers start as copies of this process: they must not pay for a profile that nobody writes."""
    while _running:
        _running.pop().stop()


os.register_at_fork(after_in_child=_stop_in_child)
