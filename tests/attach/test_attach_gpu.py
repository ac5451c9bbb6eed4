"""Somebody else's script on a GPU: time in which the GPU works, and time in which it waits for the host."""

import json
import time
from pathlib import Path

import pytest
import torch

from strobe import Strobe
from support.fitting import Model, fit

pytestmark = pytest.mark.gpu


class Starving(Model):
    """Lets the GPU wait in the middle of its forward pass."""

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        batch[0].sin()
        time.sleep(0.02)
        return super().training_step(batch)


def test_a_gpu_that_starves_within_a_phase_is_not_busy_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fit(Strobe("here"), model=Starving(), accelerator="gpu", devices=1, max_epochs=3)
    summary = json.loads((tmp_path / "here" / "summary.json").read_text())
    evidence, device = summary["trace_evidence"], summary["device_seconds"]
    assert evidence["steps"] == 2  # which are traced unasked
    assert device["forward"] > device["total"] / 2  # events count from the phase's first work to its last
    assert evidence["device_busy"] < 0.5
