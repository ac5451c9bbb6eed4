# Bottleneck: training_step waits for a robot for 8 ms, until somebody presses Ctrl-C. Cause: stalled forward. Ends
# with SystemExit.

import os
import signal
import time

from lightning.pytorch import Trainer
from lightning.pytorch.demos.boring_classes import BoringModel


class Model(BoringModel):
    def training_step(self, batch, batch_idx):
        time.sleep(0.008)
        if batch_idx == 40:
            os.kill(os.getpid(), signal.SIGINT)
        return super().training_step(batch, batch_idx)


trainer = Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_progress_bar=False)
trainer.fit(Model())
