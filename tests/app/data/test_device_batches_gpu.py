"""Batches on their way to a GPU: with all their digits, and without a wait."""

from contextlib import suppress
from pathlib import Path

import pytest
import torch

from app.data.test_device_batches import FLOATS, Noting
from strobe.app.build.trainer import build_trainer
from strobe.callbacks.lightnings import move_data_to_device
from strobe.probe.model import ALONE
from support.choices import make
from support.fitting import Model, never_waiting
from support.pipeline_parts import BESIDE, ENGINES, batches, dataset

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("precision", ["bf16-true", "64-true"])
def test_images_keep_their_digits_until_they_are_standardised(precision: str) -> None:
    data = Noting()
    with suppress(EOFError):
        build_trainer(ALONE | {"accelerator": "gpu", "devices": 1, "precision": precision}).fit(
            Model(), datamodule=data
        )
    assert data.came.is_cuda
    assert torch.equal(data.came.cpu(), FLOATS)


@pytest.mark.parametrize("engine", BESIDE)
def test_no_transfer_is_waited_for(engine: str, tmp_path: Path) -> None:
    device = torch.device("cuda", 0)
    made = make(ENGINES[engine], num_workers=0)
    loader = made.loader(dataset("array", "memory", tmp_path), batches(), seed=1, device=device)
    with never_waiting():
        sent = [move_data_to_device(batch, device) for batch in loader]
    assert all(pixels.is_cuda and labels.is_cuda for pixels, labels in sent)
