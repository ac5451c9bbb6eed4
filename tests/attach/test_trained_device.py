"""Which device a loop trains on that names no optimizer, in a process whose CUDA has begun; none is needed here."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import strobe
from strobe.attach.settings import device_of
from strobe.duel import turning
from support.fitting import Standstill, standstill
from support.watched import Loop, alone, record, rows

__all__ = ["alone", "standstill"]
CPU, FIRST, SECOND = torch.device("cpu"), torch.device("cuda", 0), torch.device("cuda", 1)


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """CUDA has begun, and the first of its devices is the current one; call it with the bytes that are held there."""
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)

    def hold(size: int) -> None:
        monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: size)

    hold(0)
    yield hold
    monkeypatch.undo()


def optimizer_of(*devices: torch.device) -> Any:
    """One that trains parameters which say that they lie on these devices."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    places: list[Any] = [SimpleNamespace(device=device) for device in devices]
    optimizer.param_groups[0]["params"] = places
    return optimizer


@pytest.mark.parametrize(
    ("held", "places", "found"),
    [
        (8, [SECOND], SECOND),
        (8, [CPU, SECOND], SECOND),
        (8, [SECOND, FIRST], FIRST),
        (0, [CPU], CPU),
        (8, [CPU], FIRST),  # offloaded
    ],
)
def test_the_device_is_that_of_the_scripts_optimizers(
    begun: Callable[[int], None], held: int, places: list[torch.device], found: torch.device
) -> None:
    begun(held)
    optimizers = [optimizer_of(place) for place in places]
    assert device_of(None) == found
    assert device_of(optimizers) == places[0]


@pytest.mark.usefixtures("alone", "begun")
def test_a_loop_on_the_cpu_is_one_beside_a_gpu_too(standstill: Standstill) -> None:
    loop = Loop(standstill)
    loop.train(strobe.watch(loop.loader(), directory="here"), epochs=2)
    strobe.attach.loops.close()
    assert record()["accelerator"] == "cpu"
    assert (record()["environment"]["gpu"], record()["memory"]["device_peak_bytes"]) == (None, None)
    assert not [name for name in rows()[0] if name.startswith("device_")]


def test_a_duel_waits_for_each_gpu_that_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    waited = list[int]()
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    monkeypatch.setattr(torch._C, "_cuda_hasPrimaryContext", lambda number: number != 1, raising=False)
    assert turning._now() > 0
    assert waited == [0, 2]
