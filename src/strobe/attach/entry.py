"""What Lightning asks whenever a Trainer is made (entry points ``callbacks_factory``): quick, unless it is wanted."""

import os
from typing import Any

WANTED, DIRECTORY, TRACE = "STROBE", "STROBE_OUT", "STROBE_TRACE"  # variables of the environment
GROUPS = ("lightning.pytorch.callbacks_factory", "pytorch_lightning.callbacks_factory")


def callbacks() -> list[Any]:
    """A ``Strobe`` if the environment has STROBE=1; writes to STROBE_OUT, and traces with STROBE_TRACE=1."""
    if not is_set(WANTED):
        return []
    try:
        from strobe.attach.callback import Strobe

        return [Strobe(os.environ.get(DIRECTORY) or None, trace=is_set(TRACE))]
    except Exception as error:  # the user's training goes on without
        from strobe.attach.place import tell

        tell(error, None)
        return []


def is_set(name: str) -> bool:
    """Whether a variable of the environment says yes."""
    return os.environ.get(name, "0") not in ("", "0")
