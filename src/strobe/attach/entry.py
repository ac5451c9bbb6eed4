"""What Lightning asks whenever a Trainer is made (entry points ``callbacks_factory``): quick, unless it is wanted."""

import os
import sys
from typing import Any

from strobe.probe.asked import Asked

WANTED, DIRECTORY, TRACE = "STROBE", "STROBE_OUT", "STROBE_TRACE"  # variables of the environment
GROUPS = ("lightning.pytorch.callbacks_factory", "pytorch_lightning.callbacks_factory")


def callbacks() -> list[Any]:
    """A ``Strobe`` if the environment has STROBE=1; writes to STROBE_OUT, and traces with STROBE_TRACE=1, not with 0.

    In the process of a script that is probed (``strobe probe``) its training is taken over instead.
    """
    if (asked := Asked.read()) is not None:
        from strobe.attach.probing import attend

        attend(asked)
        _close_unasked()
        return []
    if not is_set(WANTED):
        return []
    try:
        from strobe.attach.callback import Strobe

        _close_unasked()
        return [Strobe(os.environ.get(DIRECTORY) or None, trace=traces())]
    except Exception as error:  # the user's training goes on without
        from strobe.attach.place import tell

        tell(error, None)
        return []


def _close_unasked() -> None:
    if loops := sys.modules.get("strobe.attach.loops"):
        loops.close_unasked()


def traces() -> bool | None:
    """What the environment says of traces."""
    return is_set(TRACE) if TRACE in os.environ else None


def is_set(name: str) -> bool:
    """Whether a variable of the environment says yes."""
    return os.environ.get(name, "0") not in ("", "0")
