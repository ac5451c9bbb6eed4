"""Where a step's time goes: naps come back in the phase, and under the name, in which they were taken."""

import contextlib
import csv
import time
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.profilers import PassThroughProfiler, SimpleProfiler
from torch.utils.data import DataLoader, Dataset, default_collate

from strobe.callbacks.columns import PHASES
from strobe.callbacks.phase_clock import PhaseClock
from strobe.callbacks.phases import owners
from strobe.callbacks.steps import StepRecorder
from support.fitting import trainer_with

pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers")

NAP = 0.02
BATCHES = 8
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
    seconds = clock.lap().phases
    outer = time.perf_counter() - outer
    naps = {"optimizer": 2, "forward": 1, "other": 1}
    assert {phase for phase in PHASES if seconds[phase]} == naps.keys()
    assert all(seconds[phase] >= count * NAP for phase, count in naps.items())
    assert inner - 1e-6 <= sum(seconds.values()) <= outer + 1e-6


def test_a_lap_begins_the_next_step(clock: PhaseClock) -> None:
    nap()
    since = time.perf_counter()
    assert clock.lap().phases["other"] >= NAP
    assert 0 < sum(clock.lap().phases.values()) <= time.perf_counter() - since


def test_a_restart_forgets_what_was_and_tells_it(clock: PhaseClock) -> None:
    with clock.profile(FORWARD):
        nap()
    assert clock.restart().phases["forward"] >= NAP
    assert clock.lap().phases["forward"] == 0


def test_an_error_leaves_its_actions(clock: PhaseClock) -> None:
    with contextlib.suppress(ArithmeticError), clock.profile(OPTIMIZER), clock.profile(FORWARD):
        raise ArithmeticError
    clock.restart()
    nap()
    assert {phase for phase, value in clock.lap().phases.items() if value} == {"other"}


class Naps:
    """Takes a nap where it is told to, and notes how long each really was."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.taken: list[float] = []

    def at(self, place: str) -> None:
        if place == self.place:
            since = time.perf_counter()
            nap()
            self.taken.append(time.perf_counter() - since)


class Drowsy(Dataset[Any]):
    def __init__(self, naps: Naps) -> None:
        self.naps = naps

    def __len__(self) -> int:
        return 2 * BATCHES

    def __getitem__(self, index: int) -> torch.Tensor:
        if index % 2 == 0:  # once a batch
            self.naps.at("__getitem__")
        return torch.ones(4)


class Sleepy(LightningModule):
    """A linear layer that naps in one place of each step."""

    def __init__(self, naps: Naps, updates: str = "automatic") -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)
        self.naps = naps
        self.updates = updates
        self.automatic_optimization = updates == "automatic"

    def train_dataloader(self) -> DataLoader[Any]:
        def collate(samples: list[Any]) -> Any:
            self.naps.at("collate")
            return default_collate(samples)

        return DataLoader(Drowsy(self.naps), batch_size=2, collate_fn=collate)

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        self.naps.at("transfer")
        return batch

    def on_train_batch_start(self, *_: Any) -> None:
        self.naps.at("module hook")

    def lr_scheduler_step(self, *_: Any) -> None:
        self.naps.at("between phases")

    def training_step(self, batch: torch.Tensor) -> torch.Tensor | None:
        self.naps.at("forward")
        loss: torch.Tensor = self.layer(batch).sum()
        loss.register_hook(lambda _: self.naps.at("backward"))
        if self.updates == "automatic":
            return loss
        optimizers: Any = self.optimizers(use_pl_optimizer=self.updates == "manual")
        self.manual_backward(loss)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        return None

    def configure_optimizers(self) -> Any:
        if self.updates == "automatic":
            optimizer = self._optimizer()
            schedule = torch.optim.lr_scheduler.ConstantLR(optimizer)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}
        return [self._optimizer(), torch.optim.Adam(self.parameters())]

    def _optimizer(self) -> torch.optim.Optimizer:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.01)
        optimizer.register_step_post_hook(lambda *_: self.naps.at("optimizer"))
        return optimizer


class Slow(Callback):
    def __init__(self, naps: Naps) -> None:
        self.naps = naps

    def on_train_batch_end(self, *_: Any) -> None:
        self.naps.at("callback")

    def on_save_checkpoint(self, *_: Any) -> None:
        self.naps.at("on_save_checkpoint")


class Log(CSVLogger):
    naps: Naps

    def log_metrics(self, *arguments: Any, **named: Any) -> None:
        self.naps.at("logger")
        super().log_metrics(*arguments, **named)


def recorded(naps: Naps, folder: Path, updates: str = "automatic", **settings: Any) -> list[dict[str, float]]:
    folder.mkdir()
    recorder, log = StepRecorder(folder / "steps.csv"), Log(folder)
    log.naps = naps
    checkpoint = ModelCheckpoint(folder / "checkpoints", every_n_train_steps=1)
    settings = {"logger": log, "log_every_n_steps": 1, "enable_checkpointing": True} | settings
    trainer = trainer_with(Slow(naps), recorder, checkpoint, **settings)
    trainer.fit(Sleepy(naps, updates))
    assert "log_metrics" not in vars(log)  # given back
    with recorder.path.open(newline="") as file:
        return [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]


PLACES = {
    "__getitem__": "data_wait",
    "collate": "data_wait",
    "transfer": "transfer",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimizer",
    "callback": "callbacks/Slow",
    "on_save_checkpoint": "callbacks/Slow",
    "logger": "callbacks/Log",
    "module hook": "callbacks/Sleepy",
    "between phases": "other",
}


@pytest.mark.parametrize("place", PLACES)
def test_a_nap_comes_back_where_it_was_taken(tmp_path: Path, place: str) -> None:
    naps, awake = Naps(place), recorded(Naps("nowhere"), tmp_path / "awake")
    rows = recorded(naps, tmp_path / "asleep")
    column = PLACES[place]
    own = median(row[column] for row in awake[1:])
    errors = []
    for row, taken in zip(rows[1:], naps.taken[-len(rows) + 1 :], strict=True):
        errors.append(abs(row[column] - own - taken))
        assert row[column] >= NAP
        assert row["callbacks"] == pytest.approx(sum(row[name] for name in row if "/" in name), abs=1e-5)
        assert row["total"] == pytest.approx(sum(row[phase] for phase in PHASES), rel=0.01)
    for name in ("data_wait", "transfer", "forward", "backward", "optimizer", "other"):
        assert name == column or median(row[name] for row in rows) < NAP / 2
    # Another process that interrupts one step adds to its phase; a wrong attribution would be in all of them.
    assert sorted(errors)[len(errors) // 4] <= max(0.05 * NAP, 0.001)


@pytest.mark.filterwarnings("ignore:Using ModelCheckpoint with manual optimization")
@pytest.mark.parametrize("updates", ["manual", "by hand"])
@pytest.mark.parametrize("place", ["forward", "backward", "optimizer"])
def test_manual_optimization(tmp_path: Path, updates: str, place: str) -> None:
    rows = recorded(Naps(place), tmp_path / "run", updates)
    assert [row["updates"] for row in rows] == [2] * BATCHES
    assert all(row[place] >= NAP for row in rows)
    assert all(median(row[phase] for row in rows) < NAP / 2 for phase in PHASES if phase not in (place, "callbacks"))


def test_accumulation_updates_now_and_then(tmp_path: Path) -> None:
    rows = recorded(Naps("optimizer"), tmp_path / "run", accumulate_grad_batches=2)
    assert [row["updates"] for row in rows] == [0, 1] * 4
    assert [row["optimizer"] >= NAP for row in rows] == [False, True] * 4


def test_callbacks_of_one_class_are_numbered(tmp_path: Path) -> None:
    naps = Naps("nowhere")
    checkpoints = [ModelCheckpoint(tmp_path / str(n), every_n_train_steps=n) for n in (1, 2)]
    trainer = trainer_with(*checkpoints, Slow(naps), Callback(), enable_checkpointing=True)
    trainer.strategy.connect(Sleepy(naps))
    assert owners(trainer) == ["Slow", "ModelCheckpoint", "ModelCheckpoint 2", "Sleepy"]


def test_the_inner_profiler_works_as_if_alone(tmp_path: Path) -> None:
    inner = SimpleProfiler(tmp_path, "inner")
    naps = Naps("forward")
    trainer_with(StepRecorder(tmp_path / "steps.csv"), profiler=inner).fit(Sleepy(naps))
    assert len(inner.recorded_durations["run_training_batch"]) == BATCHES
    assert sum(inner.recorded_durations[FORWARD]) >= BATCHES * NAP
    assert "run_training_batch" in (tmp_path / "fit-inner.txt").read_text()


def test_loggers_and_profiler_are_given_back_after_an_error(tmp_path: Path) -> None:
    class Fails(Sleepy):
        def training_step(self, batch: torch.Tensor) -> None:
            raise ArithmeticError

    log = Log(tmp_path)
    trainer = trainer_with(StepRecorder(tmp_path / "steps.csv"), logger=log, log_every_n_steps=1)
    before = trainer.profiler
    with pytest.raises(ArithmeticError):
        trainer.fit(Fails(Naps("nowhere")))
    assert trainer.profiler is before
    assert "log_metrics" not in vars(log)
