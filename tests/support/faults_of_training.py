"""A callback that lets a training go wrong, and a command that takes turns until it is ended."""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from lightning.pytorch.callbacks import Callback

from strobe.app.tuning.trainee import Trainee

STEP = 1  # in which training goes wrong
WARM = 5  # in which it hangs: it is ready then


class Fault(Callback):
    """Goes wrong in one of the ways in which trainings do."""

    def __init__(self, how: str) -> None:
        self.how = how

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if batch_idx != (WARM if self.how == "hangs" else STEP):
            return
        print("about to go wrong", flush=True)
        if self.how == "ends":
            trainer.should_stop = True
        if self.how == "mistake":
            raise ValueError("a mistake\nof ours")
        if self.how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.how == "hangs":
            time.sleep(600)


def main() -> None:
    """Take a turn, say the session, and take turns for ever."""
    folder, *overrides = sys.argv[1:]
    with Trainee(overrides, Path(folder), timeout=100) as trainee:
        trainee.start()
        trainee.turn(0.1)
        assert trainee.session is not None
        print(trainee.session, flush=True)
        time.sleep(600)


if __name__ == "__main__":
    main()
