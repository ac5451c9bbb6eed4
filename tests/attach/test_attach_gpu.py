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


class Behind(Model):
    """Gives the GPU some hundred long kernels a step, which are submitted at once, and asks it for nothing."""

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        numbers = torch.ones(2048, 2048, device=self.device)
        for _ in range(100):
            numbers = numbers @ numbers / 2048
        return super().training_step(batch)


def test_a_gpu_that_is_behind_its_host_is_not_starved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fit(Strobe("here"), model=Behind(), accelerator="gpu", devices=1, max_epochs=20)
    summary = json.loads((tmp_path / "here" / "summary.json").read_text())
    step, device = summary["step_seconds"]["total"], summary["device_seconds"]["total"]
    assert step > 0.95 * device
    assert summary["trace_evidence"]["busy_seconds"] > 0.8 * device
    assert not {"launch_bound", "uneven_steps", "slowing_down"} & {one["cause"] for one in summary["findings"]}
