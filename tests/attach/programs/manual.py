# Bottleneck: a callback uploads for 6 ms after each batch, 80% of a step. Cause: callback Upload.

import time

from lightning.pytorch import Callback, Trainer
from lightning.pytorch.demos.boring_classes import ManualOptimBoringModel


class Upload(Callback):
    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        time.sleep(0.006)


trainer = Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, callbacks=[Upload()])
trainer.fit(ManualOptimBoringModel())
