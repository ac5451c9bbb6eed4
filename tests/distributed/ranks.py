"""Somebody's training on two processes; rank 1 naps in its data, its forward pass and a callback, an epoch each."""

import os
import random
import re
import signal
import sys
import time
from collections import Counter
from typing import Any

import numpy as np
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch.distributed import ProcessGroup

NAP = 0.02  # seconds of a step
FAULT = os.environ.get("FAULT")
EPOCHS = ("data_wait", "forward", "callbacks")
called: list[str] = []


def nap(trainer: Any, phase: str) -> None:
    if trainer.global_rank == 1 and FAULT is None and EPOCHS[trainer.current_epoch] == phase:
        time.sleep(NAP)


class Data(torch.utils.data.Dataset[Any]):
    trainer: Any = None

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        if index % 4 < 2:
            nap(self.trainer, "data_wait")
        return torch.arange(8.0) + index, index % 2


class Model(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        layers = torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2)
        self.net = torch.nn.Sequential(*layers)  # whose buffers rank 0 broadcasts in each forward pass

    def training_step(self, batch: Any, number: int) -> torch.Tensor:
        nap(self.trainer, "forward")
        if FAULT and (self.global_rank, self.trainer.global_step) == (int(FAULT[-1]), 6):
            os.kill(os.getpid(), getattr(signal, FAULT.split()[0], signal.SIGKILL))
            time.sleep(1000 if "hang" in FAULT else 0)
        loss = torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        self.log("loss", loss, sync_dist=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


def count_collectives() -> None:
    """Have each collective that Python asks a process group for named in ``called``."""

    def counted(name: str, method: Any) -> Any:
        def call(*given: Any, **named: Any) -> Any:
            called.append(name)
            return method(*given, **named)

        return call

    for name, method in list(vars(ProcessGroup).items()):
        if re.search("reduce|gather|scatter|broadcast|barrier|alltoall", name):
            setattr(ProcessGroup, name, counted(name, method))


class Napping(Callback):
    def on_train_start(self, *_: Any) -> None:
        called.clear()

    def on_train_end(self, *_: Any) -> None:
        self.collectives = dict(Counter(called))

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        nap(trainer, "callbacks")


def trained(name: str, *besides: Any) -> Trainer:
    """Train, the same each time, and leave weights, optimizer state, metrics, random numbers and collectives."""
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(0)
    napping, quiet = Napping(), ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    trainer = Trainer(
        accelerator="cpu",
        devices=2,
        num_nodes=int(os.environ.get("NODES", "1")),
        strategy="ddp",
        max_epochs=-1 if FAULT else len(EPOCHS),  # until the fault ends it
        callbacks=[napping, *besides],
        **dict.fromkeys(quiet, False),
    )
    Data.trainer, model = trainer, Model()
    trainer.fit(model, torch.utils.data.DataLoader(Data(), batch_size=4))
    drawn = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    states = model.state_dict(), trainer.optimizers[0].state_dict(), dict(trainer.callback_metrics), drawn
    torch.save([*states, getattr(napping, "collectives", None)], f"{name}{trainer.global_rank}.pt")
    return trainer


if __name__ == "__main__":
    torch.set_num_threads(1)
    signal.signal(signal.SIGTERM, lambda number, _: print("the script's own handler heard", number, flush=True))
    if "plain" in sys.argv:  # first without Strobe
        count_collectives()
        trained("plain")

    from strobe import Strobe

    class Counting(Strobe):
        passes = 0

        def on_before_backward(self, *_: Any) -> None:
            self.passes += 1

    counting = Counting("here", report=False)
    if trained("recorded", counting).is_global_zero:
        print("passes:", counting.passes)
