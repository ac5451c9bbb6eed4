"""Errors that a user can fix. Each message names the key or file, the value, and the remedy.

Entry points print such an error as one sentence without a traceback, and exit with its code.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class StrobeError(Exception):
    """Base of every error that a user can fix; ``code`` is the exit code of a command that it ends."""

    code = 1


class ConfigError(StrobeError):
    """What was typed is wrong: values that are out of range, do not fit together, or name what is not there."""

    code = 2


class DataError(StrobeError):
    """Data that is missing, damaged or unexpected, or something else that a run needs: disk space, a device, a library.

    A DataLoader re-raises a worker's exception with the worker's whole traceback as its text; only the worker's
    sentence is kept.
    """

    def __init__(self, *args: Any) -> None:
        text = str(args[0]) if args else ""
        if text.startswith("Caught DataError in DataLoader worker"):
            text = text.rstrip().rpartition("DataError: ")[2]
        super().__init__(text)


@contextmanager
def disk_errors(sentence: Callable[[str], str]) -> Iterator[None]:
    """Raise a DataError for an OSError within the block; its ``sentence`` takes the system's reason."""
    try:
        yield
    except OSError as error:
        raise DataError(sentence(error.strerror or str(error))) from error
