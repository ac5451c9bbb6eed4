"""What a user can put right. Each message names the key or file, the value, and the remedy.

Entry points print such an error as one sentence without a traceback.
"""

from typing import Any


class StrobeError(Exception):
    """Base of every error that a user can put right."""


class ConfigError(StrobeError):
    """Values that are each valid and make no sense together, or lie out of range."""


class DataError(StrobeError):
    """Missing, damaged or unexpected data, or something missing around the run (disk, device, library).

    A DataLoader re-raises a worker's exception with the whole worker traceback as its text;
    only the sentence that was raised there is kept.
    """

    def __init__(self, *args: Any) -> None:
        text = str(args[0]) if args else ""
        if text.startswith("Caught DataError in DataLoader worker"):
            text = text.rstrip().rpartition("DataError: ")[2]
        super().__init__(text)
