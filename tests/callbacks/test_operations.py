"""Differentiable operations are counted in the thread that makes them."""

from threading import Thread

import pytest
import torch

from strobe.callbacks.threads import Operations, fixed_seconds


def test_those_with_a_gradient_are_counted() -> None:
    weight, counted = torch.ones(3, requires_grad=True), Operations()
    loss = (weight * 2).exp().sum()
    loss.backward()
    with torch.no_grad():
        weight.mul_(2).exp().sum()
    torch.ones(3).exp()
    counted.end()
    assert counted.costs is not None
    assert counted.costs["count"] == 3
    kept = dict(counted.costs)
    (weight * 2).sum()
    counted.end()
    assert counted.costs == kept


def test_another_thread_does_not_know_them() -> None:
    counted = Operations()
    other = Thread(target=counted.end)
    other.start()
    other.join()
    assert counted.costs is None


def test_a_torch_that_does_not_number_them_leaves_them_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.autograd, "_get_sequence_nr")
    counted = Operations()
    counted.end()
    assert counted.costs is None


@pytest.mark.parametrize("off", [torch.no_grad, torch.inference_mode])
def test_their_cost_is_measured_however_the_caller_computes(off: type) -> None:
    state = torch.get_rng_state()
    with off():
        assert min(fixed_seconds().values()) > 0
    assert torch.equal(torch.get_rng_state(), state)
