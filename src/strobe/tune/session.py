"""One search in a terminal: what it goes on with, its progress, and how Ctrl-C leaves it."""

import contextlib
from contextlib import AbstractContextManager
from pathlib import Path

from rich.console import Console

from strobe.errors import ConfigError, DataError, StrobeError
from strobe.present.terminal import ProgressDisplay, clock, say
from strobe.process.locks import alone_in
from strobe.tune.comparing import Comparing
from strobe.tune.page import write_page
from strobe.tune.record import NAME, Tuning, resumed
from strobe.tune.search import Search
from strobe.tune.table import print_tuning


def search(tuning: Tuning, machine: AbstractContextManager[Comparing], console: Console) -> None:
    """Search until nothing helps, or the time is up.

    Raises:
        StrobeError: nothing was measured.
        KeyboardInterrupt: what was measured until then is kept and shown, and the same command goes on from it.
    """
    left = tuning.header["budget"] - tuning.seconds
    try:
        with ProgressDisplay(console) as display, machine as entered:
            display.say(f"Searching takes about {clock(left)}, longer where the last comparison is under way then")
            Search(tuning, entered, display).run()
    except KeyboardInterrupt:
        if not tuning.probes:
            say(console, "Interrupted: nothing was measured.")
            raise
        print_tuning(console, tuning)
        with contextlib.suppress(DataError):  # a full disk must not hide how it ended
            page = write_page(tuning)
            say(console, "Interrupted; what was measured is kept. The same command goes on from here.", str(page))
        raise
    if not tuning.probes:
        raise StrobeError(tuning.ended or "nothing was measured")


def begun(fresh: Tuning, outputs: Path, given: str | None, console: Console) -> Tuning:
    """The search to go on with: the newest below ``outputs`` that this command began and that was broken off.

    Without one it is the ``fresh`` one. If the user gave a folder, by the option ``given``, it is the search in that
    folder; a ConfigError says that this command cannot go on with it.
    """
    own = fresh.folder / NAME
    if given is None:
        earlier = _broken_off(fresh, outputs)
    else:
        earlier = resumed(fresh, own) if own.is_file() else None
        if own.is_file() and earlier is None:
            raise ConfigError(
                f"{given}{fresh.folder} holds a search that is completed, or another one; give another folder"
            )
    if earlier is not None:
        say(console, f"Going on with {earlier.folder / NAME}")
    return earlier or fresh


def _broken_off(fresh: Tuning, outputs: Path) -> Tuning | None:
    for path in sorted(outputs.glob(f"*/*/{NAME}"), reverse=True):
        with contextlib.suppress(StrobeError):  # one that is damaged, or in use, cannot be gone on with
            if (search := resumed(fresh, path)) is not None:
                with alone_in(path.parent, "--out"):  # else another process is at it
                    return search
    return None
