"""``train.py``: one rank asks itself before each batch what Lightning asks several: whether one got SIGTERM."""

from pathlib import Path
from typing import Any

from lightning.pytorch.loops.training_epoch_loop import _TrainingEpochLoop

advance = _TrainingEpochLoop.advance


def asking(self: _TrainingEpochLoop, fetcher: Any) -> None:
    self._broadcast_sigterm_tensor()
    advance(self, fetcher)


_TrainingEpochLoop.advance = asking  # type: ignore[method-assign]
application = Path(__file__).parents[3] / "train.py"
exec(compile(application.read_text(), application, "exec"), {"__name__": "__main__"})
