"""Steps in which kernels for a GPU are compiled anew."""

import pytest
import torch
from torch.utils.data import TensorDataset

from strobe.callbacks.steps import StepRecorder
from strobe.records.steps import measure_steps
from support.fitting import Model, fit
from support.steps import column, recorder

__all__ = ["recorder"]

pytestmark = pytest.mark.gpu


def test_a_step_that_compiles_anew_says_so_and_counts_in_no_mean(recorder: StepRecorder) -> None:
    model = Model()
    model.layer.compile()
    fit(recorder, model=model, data=TensorDataset(torch.randn(10, 4)), max_epochs=4, accelerator="gpu", devices=1)
    assert column(recorder, "compiled")[:6] == [1, 0, 1, 0, 0, 0]
    assert measure_steps(recorder.path, device="cuda")["recompiled"] == 2
