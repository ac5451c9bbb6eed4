"""What a sweep shows while it measures: a line for each run that ended, and on a terminal the time left."""

import contextlib
import statistics
from collections.abc import Mapping

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

from strobe.records.sweep import Run

UNHEARD = (OSError, SystemExit)  # the terminal is gone; rich's answer to a closed pipe, which it then replaces


class Bar:
    """Progress over so many runs."""

    def __init__(self, console: Console, total: int) -> None:
        self._console = console
        self._total = total
        self._seconds: list[float] = []  # of the runs that ended
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[left]} left"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("", total=total, left="?")

    def __enter__(self) -> "Bar":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(*UNHEARD):
            self._progress.stop()

    def begins(self, name: str) -> None:
        """Say which cell is trained, and the time left."""
        self._progress.update(self._task, description=name, left=clock(self.left()))

    def ended(self, run: Run, name: str, rate: float | None) -> None:
        """Say how a run ended, and go on; ``rate`` in images/s."""
        self._seconds.append(run.seconds)
        self._progress.update(self._task, completed=len(self._seconds), left=clock(self.left()))
        place = f"{len(self._seconds):>{len(str(self._total))}}/{self._total}"
        self.say(f"[{place}] {outcome(run, rate)}" + (f"  {name}" if name else ""))

    def left(self) -> float | None:
        """Seconds that the other runs will take, if they take as long as those before; None before the first ended."""
        if not self._seconds:
            return None
        return (self._total - len(self._seconds)) * statistics.fmean(self._seconds)

    def say(self, text: str) -> None:
        """Print a line that stays."""
        with contextlib.suppress(*UNHEARD):
            self._console.print(text, markup=False, highlight=False, soft_wrap=True)


def outcome(run: Run, rate: float | None) -> str:
    """How a run ended, in a few words."""
    if run.status != "completed":
        return f"{run.status}: {run.error}"
    return "completed" if rate is None else f"{rate:,.{0 if rate >= 100 else 1}f} images/s"


def clock(seconds: float | None) -> str:
    """Seconds as 0:42 or 1:02:03."""
    if seconds is None:
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def rate_of(record: Mapping[str, object]) -> float | None:
    """Images/s of a run's record: over all of its time, else the median of its steps."""
    steps = record.get("images_per_second")
    values = (record.get("overall_images_per_second"), steps.get("median") if isinstance(steps, Mapping) else None)
    return next((float(value) for value in values if isinstance(value, int | float)), None)
