# Bottleneck: a callback reads the norms of 20 weights 20 times after each batch. Cause: callback Norms.

import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import EMAWeightAveraging
from lightning.pytorch.demos.boring_classes import BoringModel


class Deep(BoringModel):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Sequential(torch.nn.Linear(32, 2), *(torch.nn.Linear(2, 2) for _ in range(9)))


class Norms(Callback):
    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.norms = [float(weight.norm().item()) for _ in range(20) for weight in pl_module.parameters()]


trainer = Trainer(
    max_epochs=1, accelerator="cpu", logger=False, enable_progress_bar=False, callbacks=[Norms(), EMAWeightAveraging()]
)
trainer.fit(Deep())
