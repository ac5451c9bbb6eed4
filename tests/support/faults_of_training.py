"""A callback that lets a training go wrong."""

import os
import signal
import time
from typing import Any

from lightning.pytorch.callbacks import Callback

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
