"""Ceilings at the end of a run."""

import random
from collections.abc import Callable

import numpy as np
import pytest
import torch

from support.runs import CHECKPOINTS, Ended


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_run_ends_the_same_with_and_without(train: Callable[..., Ended], workers: int) -> None:
    """Weights, the optimizer's state, metrics, and every generator that a run draws from."""
    states, records, checkpoints = [], [], []
    for ceilings in ("true", "false"):
        given = f"ceilings={ceilings}", "ceilings_seconds=0.3", f"engine.num_workers={workers}"
        ended = train(*given, "trainer.max_epochs=2", CHECKPOINTS, name=ceilings)
        assert ended.code == 0, ended.output
        states.append((torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate()))
        records.append(ended.summary)
        checkpoints.append(
            [
                torch.load(ended.directory / "checkpoints" / f"{name}.ckpt", weights_only=True)
                for name in ("best", "last")
            ]
        )
    measured, not_measured = records
    assert measured["ceilings"]["loader"] > 0
    assert measured["ceilings"]["model"] > 0
    assert not_measured["ceilings"] is None
    assert states[0] == states[1]
    assert measured["metrics"] == not_measured["metrics"]
    for first, second in zip(*checkpoints, strict=True):
        assert first["state_dict"].keys() == second["state_dict"].keys()
        assert all(torch.equal(value, second["state_dict"][key]) for key, value in first["state_dict"].items())
        for key, moments in first["optimizer_states"][0]["state"].items():
            other = second["optimizer_states"][0]["state"][key]
            assert all(torch.equal(torch.as_tensor(moments[name]), torch.as_tensor(other[name])) for name in moments)
