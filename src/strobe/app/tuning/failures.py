"""Why a training failed, and whether that is a bound of this machine's memory."""

import re

from hydra.errors import HydraException

from strobe.errors import StrobeError
from strobe.process.fork import Failure

# torch's words on a GPU's and on this machine's memory, and this project's on it and on what workers pass batches by
MEMORY = re.compile(
    r"out of memory|allocate memory|not enough memory|ALLOC_FAILED|MemoryError|/dev/shm|often memory ran out|"
    r"engine=resident does not fit",
    re.IGNORECASE,
)


def failure_of(error: BaseException) -> Failure:
    """What is told of the error that ended a training: a user's mistake in its own words, others with their type."""
    from lightning.fabric.utilities.exceptions import MisconfigurationException

    from strobe.app.engines.torch import lost_batch

    if isinstance(error, RuntimeError):
        error = lost_batch(error) or error
    text = " ".join(str(error).split())
    if isinstance(error, MisconfigurationException):
        text = f"Lightning refuses this run: {text}"
    elif isinstance(error, StrobeError | HydraException):
        text = text.partition(" Config search path:")[0]
    else:
        text = f"{type(error).__name__}: {text}".removesuffix(": ")
    return Failure(text, memory=MEMORY.search(text) is not None)
