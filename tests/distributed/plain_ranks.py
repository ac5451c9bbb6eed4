"""A loop of somebody's own under DDP, unwatched and then watched; rank 1 naps in its forward pass."""

import time
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import strobe

NAP = 0.15  # seconds of a step: far more than another process takes, on a busy machine too
EPOCHS, BATCHES = 2, 12


def trained(watched: bool) -> dict[str, Any]:
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
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
    return model.state_dict()


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.testing.assert_close(trained(watched=True), trained(watched=False), rtol=0, atol=0)
    dist.destroy_process_group()
