"""Where a callback stands among the others of a trainer."""

from typing import Any

from lightning.pytorch import Callback
from lightning.pytorch.callbacks import Checkpoint


def move_behind_checkpoints(trainer: Any, callback: Callback) -> None:
    """Let a callback come after the checkpoints, which Lightning puts last: a step then holds what they do for it."""
    place = trainer.callbacks.index(callback)
    others = [other for other in trainer.callbacks if other is not callback]
    after = [n for n, other in enumerate(others, start=1) if isinstance(other, Checkpoint)]
    place = max([place, *after])
    trainer.callbacks = [*others[:place], callback, *others[place:]]
