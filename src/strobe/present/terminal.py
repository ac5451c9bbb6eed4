"""Progress in a terminal: what is being done, how much of it is done, the time left; and lines that stay."""

import os
import time
from collections.abc import Iterable, Sequence
from typing import Self, TypeVar

from rich import progress
from rich.console import Console
from rich.text import Text

Item = TypeVar("Item")
FILE_WIDTH = 180  # columns of a table that is printed into a file or a pipe


def console() -> Console:
    """Standard output, as wide as the terminal, or as COLUMNS says."""
    terminal = Console()
    as_it_is = terminal.is_terminal or "COLUMNS" in os.environ
    return terminal if as_it_is else Console(width=max(terminal.width, FILE_WIDTH))


def say(where: Console, *lines: str, style: str | None = None) -> None:
    """Print lines as they are, without wrapping them."""
    for line in lines:
        where.print(line, style=style, markup=False, highlight=False, soft_wrap=True)


def shown(items: Sequence[Item], doing: str) -> Iterable[Item]:
    """The same items, with a bar on standard error for as long as they are gone through; none without a terminal."""
    errors = Console(stderr=True)
    return progress.track(items, doing, console=errors, transient=True, disable=not errors.is_terminal)


def clock(seconds: float | None) -> str:
    """Seconds as 0:42 or 1:02:03; a question mark for None."""
    if seconds is None:
        return "?"
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class _Left(progress.ProgressColumn):
    """A countdown of the time left; empty while that is unknown."""

    def render(self, task: progress.Task) -> Text:
        ends = task.fields["ends"]
        return Text("" if ends is None else f"{clock(ends - time.monotonic())} left")


class ProgressDisplay:
    """A context manager that shows progress in a terminal; elsewhere it only prints the lines that stay.

    Args:
        where: the console.
        total: how much there is to do; None if unknown, which shows no bar.
        completed: how much of it was done before.
    """

    def __init__(self, where: Console, total: int | None = None, completed: int = 0) -> None:
        self._console = where
        counted = () if total is None else (progress.BarColumn(bar_width=24), progress.MofNCompleteColumn())
        self._progress = progress.Progress(
            progress.SpinnerColumn(),
            progress.TextColumn("{task.description}", markup=False),
            *counted,
            _Left(),
            console=where,
            transient=True,
            disable=not where.is_terminal,
        )
        self._task = self._progress.add_task("", total=total, completed=completed, ends=None, visible=total is not None)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def begins(self, text: str, left: float | None) -> None:
        """Show what is being done now, and the seconds left."""
        ends = None if left is None else time.monotonic() + left
        self._progress.update(self._task, description=text, ends=ends, visible=True)

    def stage(self, text: str, left: float | None) -> None:
        """The same of something that takes long; where nothing is shown, a line says so."""
        self.begins(text, left)
        if not self._console.is_terminal:
            self.say(text if left is None else f"{text}; about {clock(left)} left")

    def completes(self, completed: int) -> None:
        """Show that so much of the total is done."""
        self._progress.update(self._task, completed=completed)

    def say(self, text: str) -> None:
        """Print a line that stays."""
        say(self._console, text)
