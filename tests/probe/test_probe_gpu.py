"""The model's ceiling on a GPU: no copy of a batch is made while it is measured."""

from types import SimpleNamespace

import pytest
import torch

from strobe.probe.loader import Kind
from strobe.probe.model import AHEAD, Again

pytestmark = pytest.mark.gpu


def test_copies_are_made_before_the_steps_that_use_them() -> None:
    excluded = list[float]()
    batches = iter(
        Again([Kind(torch.ones(1 << 20))], torch.device("cuda", 0), SimpleNamespace(exclude=excluded.append))
    )
    kept = [next(batches)]
    held = torch.cuda.memory_allocated()
    kept += [next(batches) for _ in range(AHEAD - 1)]
    assert torch.cuda.memory_allocated() == held
    assert len(excluded) == 1
    kept.append(next(batches))  # the first of the next ones
    assert torch.cuda.memory_allocated() > held
    assert len({batch.data_ptr() for batch in kept}) == AHEAD + 1
    assert all(torch.equal(batch, kept[0]) for batch in kept)
