# Bottleneck: two workers, which load a catalogue for 0.2 s, start anew in each epoch of 10 steps. Cause:
# workers_restart.

import time

from lightning.pytorch import Trainer
from lightning.pytorch.demos.boring_classes import BoringModel, RandomDataset
from torch.utils.data import DataLoader


def load_catalogue(worker):
    time.sleep(0.2)


loader = DataLoader(RandomDataset(32, 80), batch_size=8, num_workers=2, worker_init_fn=load_catalogue)
trainer = Trainer(max_epochs=5, accelerator="cpu", logger=False, enable_progress_bar=False, limit_val_batches=0)
trainer.fit(BoringModel(), loader)
