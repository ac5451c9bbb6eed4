"""On a GPU the transfer has a ceiling; no copy of a batch is made while the model's is measured."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from strobe.probe.loader import Kind
from strobe.probe.model import AHEAD, Again
from support.probed import STEPS, probed, script

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


def test_the_transfer_of_a_scripts_batches_has_a_ceiling(tmp_path: Path) -> None:
    """A step sleeps for longer than a copy of 1.2 MB takes."""
    text = STEPS.replace('accelerator="cpu"', 'accelerator="cuda", devices=1')
    text = text.replace("rand(60, 4)", "rand(60, 100_000)").replace("Linear(4, 1)", "Linear(100_000, 1)")
    reason, record = probed(script(tmp_path, text), tmp_path / "out")
    assert reason is None
    ceilings = record["ceilings"]
    assert ceilings["batch_bytes"] == 3 * 400_000
    assert ceilings["transfer"] > ceilings["model"] > 0
