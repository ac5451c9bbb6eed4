# Bottleneck: a callback sleeps 6 ms a step; the model is compiled in the first one. Cause: callback Upload.
# Slow.

import time

import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.demos.boring_classes import BoringModel


class Upload(Callback):
    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        time.sleep(0.006)


trainer = Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_progress_bar=False, callbacks=[Upload()])
trainer.fit(torch.compile(BoringModel()))
