"""The clock of a GPU's phases on a real one: no call waits, and known work comes back in its phase."""

import time
from pathlib import Path
from typing import Any

import pytest
import torch

from strobe.callbacks import StepRecorder
from strobe.callbacks.clock import Clock
from strobe.callbacks.device_clock import DEVICE_PHASES, DeviceClock
from strobe.callbacks.waits import Waits
from strobe.records.step_table import read_table
from support.fitting import Model, fit, never_waiting

pytestmark = pytest.mark.gpu

CYCLES = 20_000_000  # some 10 ms on a GPU of 1 to 2 GHz
WORK = {"transfer": 1, "forward": 2, "backward": 4, "optimizer": 1}


def work(times: int) -> None:
    for _ in range(times):
        torch.cuda._sleep(CYCLES)


def step(clock: DeviceClock) -> None:
    for phase, times in WORK.items():
        clock.mark(phase)
        work(times)
    clock.mark("callbacks")
    clock.lap()


@pytest.fixture
def unit() -> float:
    """Seconds of one piece of work, when the GPU's clock has risen."""
    work(20)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    work(10)
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 10_000


def test_known_work_comes_back_in_its_phase_and_nothing_waits(unit: float) -> None:
    clock = DeviceClock()
    begin = time.perf_counter()
    with never_waiting():
        clock.restart()
        for _ in range(3):
            step(clock)
        early = clock.ready()
    submitted = time.perf_counter() - begin
    assert submitted < 3 * 8 * unit / 2
    steps = early + clock.finish()
    assert len(steps) == 3
    for each in steps:
        assert each["total"] == pytest.approx(sum(each[phase] for phase in (*DEVICE_PHASES, "idle")))
        assert each["idle"] < unit / 2
        for phase, times in WORK.items():
            assert each[phase] == pytest.approx(times * unit, rel=0.3)


def test_a_device_without_work_is_idle_and_gaps_are_left_out(unit: float) -> None:
    clock = DeviceClock()
    time.sleep(5 * unit)
    clock.mark("forward")
    work(1)
    clock.mark(None)
    clock.lap()
    clock.mark("transfer")
    work(20)
    clock.restart()
    clock.mark("forward")
    work(1)
    clock.mark(None)
    clock.lap()
    first, second = clock.finish()
    assert first["idle"] >= 4 * unit
    assert first["transfer"] == 0
    assert second["total"] < 4 * unit
    assert clock.finish() == []


def test_a_loop_in_a_stream_of_its_own_is_timed_there(unit: float) -> None:
    clock = DeviceClock()
    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(2):
            step(clock)
    *_, last = clock.finish()
    for phase, times in WORK.items():
        assert last[phase] == pytest.approx(times * unit, rel=0.3)


def test_the_host_spends_little_on_it() -> None:
    clock = DeviceClock()
    for _ in range(10):
        clock.mark("forward")
        clock.mark(None)
        clock.lap()
        clock.ready()
    count = 1000
    begin = time.perf_counter()
    with never_waiting():
        for _ in range(count):
            for phase in ("data_wait", "transfer", None, "callbacks", "forward", "backward", "optimizer", None):
                clock.mark(phase)
            clock.lap()
            clock.ready()
    assert (time.perf_counter() - begin) / count < 100e-6
    clock.finish()


def test_a_wait_for_other_ranks_is_told_within_its_phase(unit: float) -> None:
    clock = DeviceClock()
    with never_waiting():
        clock.restart()
        clock.mark("backward")
        work(2)
        clock.wait()
        work(4)
        clock.waited()
        work(1)
        clock.mark(None)
        clock.lap()
    (step,) = clock.finish()
    assert step["exposed_wait"] == pytest.approx(4 * unit, rel=0.3)
    assert step["backward"] == pytest.approx(7 * unit, rel=0.3)


def test_the_last_local_gradient_is_marked_behind_all_work_of_the_backward_pass(unit: float) -> None:
    """Without others to wait for, all that the gradients take is own work."""

    class Slow(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, values: torch.Tensor) -> torch.Tensor:
            return values.clone()

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            work(4)
            return gradient

    clock = Clock(DeviceClock())
    waits = Waits(clock)
    weight = torch.ones(4, device="cuda", requires_grad=True)
    clock.restart()
    loss = Slow.apply(weight).sum()
    waits.watch(loss)
    clock.enter("backward")
    loss.backward()
    clock.leave()
    clock.lap()
    assert clock.device is not None
    (step,) = clock.device.finish()
    assert step["backward"] > 3 * unit
    assert step["exposed_wait"] < unit


class Augmenting(Model):
    """Works on a batch that has come to the GPU."""

    def on_after_batch_transfer(self, batch: list[torch.Tensor], dataloader_idx: int) -> list[torch.Tensor]:
        work(4)
        return batch


def test_a_transfer_is_the_copy_only(unit: float, tmp_path: Path) -> None:
    fit(StepRecorder(tmp_path / "steps.csv"), model=Augmenting(), accelerator="gpu", devices=1)
    rows = read_table(tmp_path / "steps.csv").rows()
    for row in rows[1:]:
        assert row["device_prepare"] == pytest.approx(4 * unit, rel=0.3)
        assert row["device_transfer"] < unit
