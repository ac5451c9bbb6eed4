"""Steps whose operations are followed, and networks for them."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

from strobe.callbacks.calls import Operation
from strobe.callbacks.dataflow import STEPS, Dataflow
from strobe.callbacks.wasted import wasted

Found = dict[str, dict[str, Any] | None]


def found(step: Callable[[], Any], *, steps: int = STEPS, ran: list[Operation] | None = None) -> Found:
    """What of a step is wasted, of the second one on; each kind has all of the phase, as if nothing else ran there."""
    flow = Dataflow(lambda: "backward" if torch._C._current_graph_task_id() != -1 else "forward")
    step()
    flow.begin()
    for _ in range(steps):
        step()
        flow.end_step({})
    flow.remove()
    assert flow.failure is None
    if ran is not None:
        ran += flow.operations
    return wasted(flow)


def kinds(told: Found) -> set[str]:
    return {name for name, one in told.items() if one is not None}


class Networks:
    """One to be trained on random numbers, another one, and optimizers of both."""

    def __init__(self, *, dropout: float = 0.0) -> None:
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Dropout(dropout), nn.Linear(16, 4))
        self.other = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
        self.both = [self.optimizer(self.net), self.optimizer(self.other)]

    @staticmethod
    def optimizer(module: nn.Module) -> Optimizer:
        return SGD(module.parameters(), lr=0.1)

    def train(self, loss: Tensor, optimizer: int = 0) -> None:
        self.both[optimizer].zero_grad()
        loss.backward()
        self.both[optimizer].step()

    @property
    def images(self) -> Tensor:
        return torch.randn(8, 4)
