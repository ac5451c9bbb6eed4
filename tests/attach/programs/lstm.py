# Bottleneck: a callback samples from the model for 0.3 s every fourth step. Cause: callback Sample.
# Slow.

import time

import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.demos.lstm import LightningLSTM, SequenceSampler
from torch.utils.data import DataLoader, TensorDataset


class Sample(Callback):
    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if batch_idx % 4 == 3:
            time.sleep(0.3)


class Model(LightningLSTM):
    def prepare_data(self):
        pass  # it would download


tokens = torch.arange(80 * 6).view(80, 6) % 32
text = TensorDataset(tokens[:, :-1], tokens[:, 1:].contiguous())
loader = DataLoader(text, batch_sampler=SequenceSampler(text, batch_size=4))
quiet = {"logger": False, "enable_progress_bar": False, "enable_checkpointing": False}
trainer = Trainer(max_epochs=1, accelerator="cpu", callbacks=[Sample()], **quiet)
trainer.fit(Model(vocab_size=32), loader)
