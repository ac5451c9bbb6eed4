"""A loop of somebody's own under DDP, unwatched and then watched; rank 1 naps in its forward pass."""

import random
import time
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import strobe

NAP = 0.15  # seconds of a step: far more than another process takes, on a busy machine too
EPOCHS, BATCHES = 2, 12


def trained(watched: bool) -> list[Any]:
    """Weights, the optimizer's state, losses and random numbers."""
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(0)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    data = TensorDataset(torch.arange(8.0 * 8 * BATCHES).reshape(-1, 8) / 1000)
    loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
    for _ in range(EPOCHS):
        for (batch,) in strobe.watch(loader, optimizer=optimizer, directory="here") if watched else loader:
            optimizer.zero_grad()
            loss = model(batch).square().mean()
            if watched and dist.get_rank() == 1:
                time.sleep(NAP)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
    drawn = torch.get_rng_state(), random.getstate(), np.random.get_state()[1:]
    return [model.state_dict(), optimizer.state_dict(), losses, drawn]


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.testing.assert_close(trained(watched=True), trained(watched=False), rtol=0, atol=0)
    dist.destroy_process_group()
