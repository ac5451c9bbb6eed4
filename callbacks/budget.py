"""How large traces may become, and how many are kept."""

import logging
import re
from collections.abc import Mapping
from pathlib import Path

_log = logging.getLogger(__name__)
_TRACE = re.compile(r".+_rank(?P<rank>\d+)(_partial)?\.(?P<ns>\d+)\.pt\.trace\.json(\.gz)?")
COSTLY = ("with_stack", "profile_memory", "with_flops", "record_shapes")
MARGIN = 0.9  # steps differ; what still comes out too large is cut


class Budget:
    """A cap on one trace's file, and what it leaves of a schedule's `active` steps and of the profiler's options.

    Args:
        max_bytes: Bytes of one file, or None for no cap.
        active: Steps a cycle that are wanted.
    """

    def __init__(self, max_bytes: float | None, active: int) -> None:
        self.max_bytes = max_bytes
        self.wanted = active
        self.active = active
        self._estimated = False

    @property
    def wants_probe(self) -> bool:
        """Whether nothing is known yet of a step's size."""
        return self.max_bytes is not None and not self._estimated

    def learn(self, step_bytes: float, options: Mapping[str, bool]) -> dict[str, bool]:
        """From the bytes that a recorded step took, fit what is recorded next; says so when that changes.

        Returns:
            The options to record with: `options`, or with the costly ones off when not even one step fits.
        """
        if self.max_bytes is None or step_bytes <= 0:
            return dict(options)
        self._estimated = True
        fitting = int(MARGIN * self.max_bytes / step_bytes)
        before, self.active = self.active, max(1, min(self.wanted, fitting))
        limit, size = f"max_mb={self.max_bytes / 1e6:g}", f"{step_bytes / 1e6:.3g} MB a step"
        costly = [name for name in COSTLY if options.get(name)]
        if fitting < 1 and costly:
            _log.warning("%s: traces take %s, so one step is recorded without %s", limit, size, ", ".join(costly))
            return {**options, **dict.fromkeys(costly, False)}
        if self.active != before:
            _log.warning("%s: traces take %s, so %d of %d steps are recorded", limit, size, self.active, self.wanted)
        return dict(options)

    def excess(self, size: int, steps: int) -> int | None:
        """How many of a trace's steps fit, when its file of `size` bytes is too large; None when it is not."""
        if self.max_bytes is None or size <= self.max_bytes or steps <= 1:
            return None
        return max(1, min(steps - 1, int(steps * MARGIN * self.max_bytes / size)))


def prune(directory: Path, rank: int, keep: int) -> None:
    """Remove all but the newest `keep` traces of a rank, those of earlier runs in the same place too."""
    found = [(match, path) for path in directory.iterdir() if (match := _TRACE.fullmatch(path.name))]
    own = [(int(match["ns"]), path) for match, path in found if int(match["rank"]) == rank]
    for _, path in sorted(own)[:-keep]:
        path.unlink(missing_ok=True)
