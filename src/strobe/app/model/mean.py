"""A mean that costs a training step next to nothing."""

import torch
from torch import Tensor
from torchmetrics import Metric


class Mean(Metric):
    """The mean of batch means, weighted by the images in each, over all ranks.

    torchmetrics' MeanMetric looks for NaN in each update, which waits for the GPU, and leaves such values out; here
    one that is not a number shows in the mean.
    """

    full_state_update = False
    total: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("total", torch.zeros(()), dist_reduce_fx="sum")
        self.add_state("count", torch.zeros(()), dist_reduce_fx="sum")

    def update(self, mean: Tensor, images: int) -> None:
        """Add a batch."""
        self.total += mean * images
        self.count += images

    def compute(self) -> Tensor:
        """The mean so far."""
        return self.total / self.count
