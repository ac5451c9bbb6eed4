"""In the process of a script that is probed: its first training is taken over; of several ranks, that of each."""

import os
import sys
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from strobe.attach.between import Pauses
from strobe.attach.callback import Strobe
from strobe.attach.probing import Probe
from strobe.attach.probing_loop import leave
from strobe.attach.record import batches_of
from strobe.diagnose.rank import NO_BATCHES
from strobe.probe import takeover
from strobe.probe.asked import Asked

_taken: set[str] = set()


def attend(asked: Asked) -> None:
    """Take over the first training of this process, of each Lightning that it has imported."""
    pipe = Connection(asked.pipe) if os.getpid() == asked.process else None  # of a rank that Lightning started
    for name in takeover.PACKAGES:
        if name in sys.modules and name not in _taken:
            _taken.add(name)
            trainer = sys.modules[name].Trainer
            takeover.without_loggers(trainer, asked.scratch)
            takeover.on_fit(trainer, partial(_begin, asked, pipe), partial(_ended, pipe))


def _begin(asked: Asked, pipe: Connection | None, trainer: Any) -> None:
    if trainer.num_nodes > 1:
        leave(pipe, f"it trains on {trainer.num_nodes} nodes, and only one can be probed")
    if trainer.world_size > 1 and (way := getattr(trainer.strategy.launcher, "_start_method", None)):
        leave(pipe, f'its ranks begin by {way}; those of Trainer(strategy="ddp") can be probed')
    if pipe is None and os.getppid() != asked.process:
        leave(pipe, "another program starts its ranks; give the script itself, whose Trainer starts them")
    pauses = Pauses()
    pauses.note(trainer)
    takeover.silence(trainer, asked.scratch)
    trainer.callbacks = [*(one for one in trainer.callbacks if not _measures(one)), Probe(asked, pipe, pauses)]


def _measures(callback: Any) -> bool:
    """Whether it is one of Strobe's own, which would measure the measuring."""
    return isinstance(callback, Strobe) or type(callback).__module__.startswith("strobe.")


def _ended(pipe: Connection | None, trainer: Any) -> None:
    told = f": {NO_BATCHES}" if batches_of(trainer) == 0 else ""
    leave(pipe, f"its training ended before it could be measured{told}")
