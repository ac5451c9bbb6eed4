"""Loops in a script that does not ask for it, over a DataLoader or not, recorded as with ``strobe.watch``.

``strobe run`` installs it before the script begins, and Fabric's entry point with STROBE=1; and the process of a script
that is probed, which ends after a stretch of the first such loop. A Trainer of Lightning's,
or ``strobe.watch``, says more about a training: from the script's first one on, nothing else is recorded.
"""

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from threading import get_ident
from types import ModuleType
from typing import TYPE_CHECKING, Any

from strobe.attach.entry import DIRECTORY, WANTED, is_set, traces
from strobe.attach.updates import Passes, Updates
from strobe.probe.changes import give_batches, is_unasked, note_thread, once_imported

if TYPE_CHECKING:
    from strobe.attach.settings import Asked
    from strobe.attach.training import Training
    from strobe.probe.asked import Asked as ProbeAsked

_home = os.getpid()
_probed: "ProbeAsked | None" = None


def install(probed: "ProbeAsked | None" = None) -> None:
    """Record the loops of this process, or probe one of them; a second time does nothing."""
    global _probed  # noqa: PLW0603  # once in a process
    _probed = probed
    give_batches(_batches)
    once_imported({"torch": lambda _: _follow_updates()})


def fabric_callbacks() -> list[Any]:
    """What Fabric asks for when it is made: none, as it shows them no batches; with STROBE=1 its loops are recorded."""
    if is_set(WANTED):
        install()
    return []


def _batches(loader: Any, iterate: Callable[[Any], Any]) -> Any:
    """Those of a loop that begins now: through Strobe, or the loader's own where nothing is to be recorded."""
    batches = _begin(lambda loops, asked: loops.batches_of(asked), loader)
    source = iterate(loader)
    if batches is None:
        return source
    batches.source = source
    return batches


def _begin(how: Callable[[ModuleType, "Asked"], Any], loader: Any) -> Any:
    """What ``how`` makes of ``strobe.attach.loops`` and of what there is to record; None after an error."""
    try:
        from strobe.attach import loops
        from strobe.attach.settings import Asked, schedule_of

        place = os.environ.get(DIRECTORY)
        asked = Asked(loader, None, Path(place) if place else None, schedule_of(traces()), report=True, unasked=True)
        if _probed is not None:
            from strobe.attach.probing_loop import LoopProbe

            asked = replace(asked, directory=Path(_probed.folder), schedule={}, probe=LoopProbe(_probed))
        return how(loops, asked)
    except Exception as error:  # the user's training goes on without
        from strobe.attach.place import tell

        tell(error, None)
        return None


@cache
def _follow_updates() -> None:
    """Have torch's hooks on all optimizers, which stay, as none can be removed, or added, while torch calls them.

    They serve the record of a loop over a DataLoader, too, where the script does not ask for that. Where a script has
    no such optimizer, backward passes stand for updates.
    """
    from torch.optim import optimizer

    def step(optimizer: Any, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        passes.forget()
        return _before_update(optimizer, given, named)

    optimizer.register_optimizer_step_pre_hook(step)
    optimizer.register_optimizer_step_post_hook(_after_update)
    passes = Passes(_before_pass, _after_pass)
    passes.follow()


def _before_pass() -> None:
    if (training := _followed()) is not None:
        training.guarded(training.phases.calls_backward)


def _after_pass(passes: Passes | None) -> None:
    if (training := _followed()) is not None:
        training.guarded(training.phases.leave_until, "backward")
    if passes is not None:
        _before_update(passes, (), {})
        _after_update(passes)


def _before_update(optimizer: Any, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
    training = None if _is_compiling() else _followed()
    return None if training is None else training.phases.before_update(optimizer, given, named)


def _after_update(optimizer: Any, *_: Any) -> None:
    if _is_compiling():
        return
    from strobe.callbacks.accelerators import is_capturing

    if (training := _followed()) is not None:
        training.phases.after_update(optimizer)
    elif not isinstance(optimizer, Passes):
        note_thread()
    if training is None and not is_unasked(_home):
        return
    if is_capturing():  # it computes nothing now, and what ends a step would break the CUDA graph
        _tell_of_replays()
    elif training is not None:
        training.guarded(training.loops.updated, optimizer)
    else:
        _begin(lambda loops, asked: loops.begin_updates(asked, optimizer), Updates(optimizer))


@cache
def _tell_of_replays() -> None:
    from strobe.process.output import note

    note("Strobe sees no update where a CUDA graph replays it, so it may not record the steps that do so.")


def _is_compiling() -> bool:
    from torch.compiler import is_compiling

    return is_compiling()


def _followed() -> "Training | None":
    """The record that these hooks serve, of this process and thread."""
    known, mine = sys.modules.get("strobe.attach.training"), (os.getpid(), get_ident())
    trainings = known.recording if known else ()
    return next((one for one in trainings if one.unasked and (one.pid, one.thread) == mine), None)
