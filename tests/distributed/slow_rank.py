"""A script that knows nothing of Strobe; rank 1 naps in its forward pass. It exits with the code that it is given."""

import sys
import time
from typing import Any

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.demos.boring_classes import BoringModel, RandomDataset


class Model(BoringModel):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        time.sleep(0.1 * self.global_rank)
        return super().training_step(batch, batch_idx)


if __name__ == "__main__":
    torch.set_num_threads(1)
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    trainer = Trainer(accelerator="cpu", devices=2, strategy="ddp", max_epochs=1, limit_val_batches=0, **quiet)
    trainer.fit(Model(), torch.utils.data.DataLoader(RandomDataset(32, 128), batch_size=2))
    print(f"rank {trainer.global_rank} made {trainer.global_step} steps")
    sys.exit(int(sys.argv[1]))
