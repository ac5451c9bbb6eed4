"""Numbers that leave torch without an operation are seen, and nothing else changes."""

import threading
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from strobe.callbacks import taken_out
from strobe.callbacks.dataflow import Dataflow


@pytest.fixture
def seen() -> Iterator[list[Tensor]]:
    tensors: list[Tensor] = []
    taken_out.watch(tensors.append)
    yield tensors
    taken_out.forget(tensors.append)
    assert not {"data", "tolist"} & vars(Tensor).keys()


def test_each_reading_is_seen_and_gives_what_it_gave(seen: list[Tensor]) -> None:
    weight, given = torch.nn.Parameter(torch.ones(2)), torch.arange(3.0)
    assert weight.data.requires_grad is False
    assert given.tolist() == [0.0, 1.0, 2.0]
    weight.data = given
    assert weight.data_ptr() == given.data_ptr()
    assert [one is weight for one in seen] == [True, False]


def test_what_somebody_else_replaces_meanwhile_stays() -> None:
    taken_out.watch(print)
    Tensor.tolist = lambda _: "theirs"  # type: ignore[method-assign, assignment, return-value]
    try:
        taken_out.forget(print)
        taken_out.forget(print)
        assert torch.ones(1).tolist() == "theirs"
        assert "data" not in vars(Tensor)
    finally:
        del Tensor.tolist


def test_what_another_thread_takes_out_does_not_count() -> None:
    flow = Dataflow(lambda: "forward")
    flow.begin()
    doubled = 2 * torch.ones(4, requires_grad=True)
    for read in (doubled.tolist, lambda: doubled.data):
        other = threading.Thread(target=read)
        other.start()
        other.join()
    assert not flow.operations[-1].ends
    doubled.tolist()
    assert flow.operations[-1].ends
    flow.remove()
    assert flow.failure is None
