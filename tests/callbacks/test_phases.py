"""Where a step's time goes: the clock by itself, and under Lightning's own names for what it does."""

import contextlib
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from fitting import SAMPLES, trainer_with
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.profilers import PassThroughProfiler, SimpleProfiler
from torch.utils.data import DataLoader, default_collate

from callbacks.phases import PHASES, PhaseClock

pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers")

NAP = 0.02
OPTIMIZER, FORWARD = "[LightningModule]Model.optimizer_step", "[Strategy]SingleDeviceStrategy.training_step"
CLIPPING = "[LightningModule]Model.configure_gradient_clipping"  # belongs to no phase of its own


def nap() -> None:
    time.sleep(NAP)


@pytest.fixture
def clock() -> PhaseClock:
    return PhaseClock(PassThroughProfiler())


def test_time_goes_to_the_innermost_known_action_and_adds_up(clock: PhaseClock) -> None:
    outer = time.perf_counter()
    clock.restart()
    inner = time.perf_counter()
    with clock.profile(OPTIMIZER):
        nap()
        with clock.profile(CLIPPING):
            nap()
            with clock.profile(FORWARD):
                nap()
    nap()
    inner = time.perf_counter() - inner
    seconds = clock.lap()
    outer = time.perf_counter() - outer
    naps = {"optimizer": 2, "forward": 1, "other": 1}
    assert {phase for phase in PHASES if seconds[phase]} == naps.keys()
    assert all(seconds[phase] >= count * NAP for phase, count in naps.items())
    assert inner - 1e-9 <= sum(seconds.values()) <= outer + 1e-9


def test_a_lap_begins_the_next_step(clock: PhaseClock) -> None:
    nap()
    since = time.perf_counter()
    assert clock.lap()["other"] >= NAP
    assert 0 < sum(clock.lap().values()) <= time.perf_counter() - since


def test_a_restart_forgets_what_was(clock: PhaseClock) -> None:
    with clock.profile(FORWARD):
        nap()
    clock.restart()
    assert clock.lap()["forward"] == 0


def test_an_error_leaves_its_actions(clock: PhaseClock) -> None:
    with contextlib.suppress(ArithmeticError), clock.profile(OPTIMIZER), clock.profile(FORWARD):
        raise ArithmeticError
    clock.restart()
    nap()
    assert {phase for phase, value in clock.lap().items() if value} == {"other"}


class Sleepy(LightningModule):
    """A linear layer that naps in one phase of each step."""

    def __init__(self, phase: str) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)
        self.phase = phase

    def maybe_nap(self, phase: str) -> None:
        if phase == self.phase:
            nap()

    def train_dataloader(self) -> DataLoader[Any]:
        def collate(samples: list[Any]) -> Any:
            self.maybe_nap("data_wait")
            return default_collate(samples)

        return DataLoader(SAMPLES, batch_size=4, collate_fn=collate)

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        self.maybe_nap("transfer")
        return batch

    def on_train_batch_start(self, *_: Any) -> None:
        self.maybe_nap("other")

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        self.maybe_nap("forward")
        loss: torch.Tensor = self.layer(batch[0]).sum()
        loss.register_hook(lambda _: self.maybe_nap("backward"))
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.01)
        optimizer.register_step_post_hook(lambda *_: self.maybe_nap("optimizer"))
        return optimizer


class Laps(Callback):
    """Naps if that is the phase, and notes each step's phases."""

    def __init__(self) -> None:
        self.laps: list[dict[str, float]] = []

    def on_train_batch_start(self, trainer: Trainer, module: LightningModule, *_: Any) -> None:
        assert isinstance(module, Sleepy)
        module.maybe_nap("callbacks")

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        assert isinstance(trainer.profiler, PhaseClock)
        self.laps.append(trainer.profiler.lap())


@pytest.mark.parametrize("phase", PHASES)
def test_lightning_names_its_actions_as_the_clock_expects(clock: PhaseClock, phase: str) -> None:
    laps = Laps()
    trainer_with(laps, profiler=clock).fit(Sleepy(phase))
    _, *steps = laps.laps  # the first also holds the start of training
    assert len(steps) == 5
    assert all(step[phase] >= NAP for step in steps)
    totals = {name: sum(step[name] for step in steps) for name in PHASES}
    assert max(totals, key=lambda name: totals[name]) == phase


def test_the_inner_profiler_works_as_if_alone(tmp_path: Path) -> None:
    inner = SimpleProfiler(tmp_path, "inner")
    trainer_with(profiler=PhaseClock(inner)).fit(Sleepy("forward"))
    assert len(inner.recorded_durations["run_training_batch"]) == 6
    assert sum(inner.recorded_durations[FORWARD]) >= 6 * NAP
    assert "run_training_batch" in (tmp_path / "fit-inner.txt").read_text()
