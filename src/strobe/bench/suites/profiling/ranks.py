"""One of several ranks of a training that does next to nothing, which Strobe watches and does not watch in turns.

``python -m torch.distributed.run --standalone --nproc-per-node=2 -m strobe.bench.suites.profiling.ranks FOLDER``
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from lightning import Trainer
from lightning.pytorch.callbacks import Callback

from strobe.app.run.train import quieten
from strobe.bench.suites.profiling.cells import QUIET, RANKS_FILE, Attached, Tiny, tiny_loader
from strobe.measure.timing import mirrored

STEPS, FIRST = 1500, 300  # of each training; of these, some that are not timed


class Timed(Callback):
    """How long a mean step takes."""

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        """Look at the clock."""
        if trainer.global_step == FIRST:
            self._began = time.perf_counter()
        elif trainer.global_step == STEPS:
            self.seconds = (time.perf_counter() - self._began) / (STEPS - FIRST)


def main(folder: Path) -> None:
    """Train four times; rank 0 leaves the seconds of a mean step of each, by whether it was watched."""
    quieten()
    torch.set_num_threads(1)
    ranks = int(os.environ["WORLD_SIZE"])
    steps: dict[str, list[float]] = {"watched": [], "unwatched": []}
    for watched in (*mirrored((False, True), 0), *mirrored((False, True), 1)):
        callbacks = [timed := Timed(), *([Attached(folder / "record")] if watched else [])]
        trainer = Trainer(
            accelerator="cpu",
            devices=ranks,
            strategy="ddp",
            max_epochs=-1,
            max_steps=STEPS,
            callbacks=callbacks,
            **QUIET,
        )
        trainer.fit(Tiny(), tiny_loader())
        steps["watched" if watched else "unwatched"].append(timed.seconds)
    if trainer.is_global_zero:
        (folder / RANKS_FILE).write_text(json.dumps(steps))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
