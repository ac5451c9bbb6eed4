"""Accelerators other than CUDA's have what they have in common with it."""

import ast
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.accelerators import CUDAAccelerator
from torch.profiler import ProfilerActivity

from strobe.callbacks import accelerators
from strobe.measure.timing import clock
from support.fitting import trainer_with
from support.places import ROOT

CPU, CUDA, XPU, MPS = (torch.device(kind) for kind in ("cpu", "cuda", "xpu", "mps"))
CUDAS_OWN = {  # what only CUDA has, or is asked for by that name
    "callbacks/accelerators.py",
    "callbacks/device_clock.py",  # the default of a clock that is given no device
    "callbacks/memory.py",  # the allocator's history
    "callbacks/tracer.py",  # CUPTI
    "src/strobe/app/build/trainer.py",  # trainer.accelerator=cuda
    "src/strobe/app/config/lightning.py",
    "src/strobe/bench/suites/workers/pipelines.py",  # SPDL's transfers
    "src/strobe/bench/suites/workers/suite.py",  # whether there may be such transfers
    "src/strobe/diagnose/rules/gpu.py",  # records of such runs
    "src/strobe/doctor.py",
    "src/strobe/duel/turning.py",  # imports nothing of ours
    "src/strobe/measure/environment.py",  # compute capability
    "src/strobe/measure/untouched.py",  # TensorFloat-32
    "src/strobe/probe/changes.py",
}


def says_cuda(path: Path) -> bool:
    nodes = ast.walk(ast.parse(path.read_text()))
    return any(getattr(node, "attr", None) == "cuda" or getattr(node, "value", None) == "cuda" for node in nodes)


def test_only_what_is_cudas_own_says_cuda() -> None:
    files = [*(ROOT / "src").rglob("*.py"), *(ROOT / "callbacks").rglob("*.py"), ROOT / "train.py"]
    assert {str(path.relative_to(ROOT)) for path in files if says_cuda(path)} == CUDAS_OWN


def test_devices_and_what_can_be_recorded_of_them() -> None:
    assert [accelerators.is_accelerator(device) for device in (CPU, torch.device("meta"))] == [False, False]
    assert all(map(accelerators.is_accelerator, (CUDA, XPU, MPS)))
    recorded = {device.type: accelerators.activities(device)[1:] for device in (CPU, CUDA, XPU, MPS)}
    assert recorded == {"cpu": [], "cuda": [ProfilerActivity.CUDA], "xpu": [ProfilerActivity.XPU], "mps": []}


@pytest.mark.parametrize(("device", "given"), [(CUDA, (CUDA,)), (XPU, (XPU,)), (MPS, ())])
def test_a_clock_waits_for_the_device(
    device: torch.device, given: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[tuple[Any, ...]] = []
    monkeypatch.setattr(getattr(torch, device.type), "synchronize", lambda *named: waited.append(named))
    assert clock(device)() > 0
    assert waited == [given]


def test_asking_what_is_in_use_begins_nothing() -> None:
    before = torch.cuda.is_initialized()
    found = accelerators.in_use()
    assert torch.cuda.is_initialized() == before == (found is not None)


def test_lightnings_word_on_a_gpu_that_is_not_used_is_no_error_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor on a machine that has one, where each test on a CPU would fail."""
    monkeypatch.setattr(CUDAAccelerator, "is_available", lambda: True)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        trainer_with()
    assert any("GPU available but not used" in str(one.message) for one in told)
    trainer_with()  # with the filters of pyproject.toml
