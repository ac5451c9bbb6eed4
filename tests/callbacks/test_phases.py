"""Where a step's time goes: naps come back in the phase, and under the name, in which they were taken."""

import contextlib
import csv
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.profilers import SimpleProfiler
from torch.utils.data import DataLoader, Dataset, default_collate
from torchmetrics import Metric

from strobe.callbacks.owners import class_of, owners
from strobe.callbacks.phases import PhaseClock
from strobe.callbacks.steps import StepRecorder
from support.fitting import Standstill, standstill, trainer_with

__all__ = ["standstill"]


NAP = 0.02
BATCHES = 8
NUMBERS = ("step", "epoch", "images", "updates", "optimizers", "profiled")
OPTIMIZER, FORWARD = "[LightningModule]Model.optimizer_step", "[Strategy]SingleDeviceStrategy.training_step"
UNKNOWN = "[LightningModule]Model.log_grad_norm"  # belongs to no phase of its own


@pytest.fixture
def clock(standstill: Standstill) -> PhaseClock:
    return PhaseClock()


def test_time_goes_to_the_innermost_known_action_and_adds_up(clock: PhaseClock, standstill: Standstill) -> None:
    standstill.nap(NAP)
    assert clock.restart().phases["other"] == NAP
    with clock.watch.profiler.profile(OPTIMIZER):
        standstill.nap(NAP)
        with clock.watch.profiler.profile(UNKNOWN):
            standstill.nap(2 * NAP)
            with clock.watch.profiler.profile(FORWARD):
                standstill.nap(4 * NAP)
    standstill.nap(8 * NAP)
    seconds = clock.lap().phases
    assert {phase: value for phase, value in seconds.items() if value} == {
        "optimizer": 3 * NAP,
        "forward": 4 * NAP,
        "other": 8 * NAP,
    }
    assert sum(clock.lap().phases.values()) == 0  # a lap begins the next step


def test_an_action_may_be_named_by_its_keyword(standstill: Standstill) -> None:
    clock, trainer = PhaseClock(), trainer_with()
    trainer.strategy.connect(Sleepy(Naps("nowhere", standstill)))
    clock.install(trainer)
    with trainer.profiler.profile(action_name=FORWARD):
        standstill.nap(NAP)
    clock.remove(trainer)
    assert clock.lap().phases["forward"] == NAP


def test_an_error_leaves_its_actions(clock: PhaseClock, standstill: Standstill) -> None:
    with (
        contextlib.suppress(ArithmeticError),
        clock.watch.profiler.profile(OPTIMIZER),
        clock.watch.profiler.profile(FORWARD),
    ):
        raise ArithmeticError
    clock.restart()
    standstill.nap(NAP)
    assert {phase for phase, value in clock.lap().phases.items() if value} == {"other"}


class Naps:
    """Takes a nap where it is told to."""

    def __init__(self, place: str, clock: Standstill) -> None:
        self.place = place
        self.clock = clock

    def at(self, place: str) -> None:
        if place == self.place:
            self.clock.nap(NAP)


class Drowsy(Dataset[Any]):
    def __init__(self, naps: Naps) -> None:
        self.naps = naps

    def __len__(self) -> int:
        return 2 * BATCHES

    def __getitem__(self, index: int) -> torch.Tensor:
        if index % 2 == 0:  # once a batch
            self.naps.at("__getitem__")
        return torch.ones(4)


class Tally(Metric):
    full_state_update = False

    def __init__(self, naps: Naps) -> None:
        super().__init__()
        self.naps = naps

    def update(self, batch: torch.Tensor) -> None:
        self.naps.at("metric")

    def compute(self) -> torch.Tensor:
        return torch.zeros(())


class Sleepy(LightningModule):
    """A linear layer that naps in one place of each step."""

    def __init__(self, naps: Naps, updates: str = "automatic") -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)
        self.tally = Tally(naps)
        self.naps = naps
        self.updates = updates
        self.automatic_optimization = updates == "automatic"

    def train_dataloader(self) -> DataLoader[Any]:
        def collate(samples: list[Any]) -> Any:
            self.naps.at("collate")
            return default_collate(samples)

        return DataLoader(Drowsy(self.naps), batch_size=2, collate_fn=collate)

    def on_before_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        self.naps.at("before the transfer")
        return batch

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        self.naps.at("transfer")
        return batch

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        self.naps.at("after the transfer")
        return batch

    def on_train_batch_start(self, *_: Any) -> None:
        self.naps.at("module hook")

    def lr_scheduler_step(self, *_: Any) -> None:
        self.naps.at("scheduler")

    def configure_gradient_clipping(self, *_: Any, **__: Any) -> None:
        self.naps.at("clipping")

    def on_before_backward(self, *_: Any) -> None:
        self.naps.at("hook before backward")

    def on_after_backward(self) -> None:
        self.naps.at("hook after backward")

    def on_before_optimizer_step(self, *_: Any) -> None:
        self.naps.at("hook before the update")

    def training_step(self, batch: torch.Tensor) -> torch.Tensor | None:
        self.naps.at("forward")
        self.tally(batch)
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


class Turns(Sleepy):
    """It turns to manual optimization late."""

    def __init__(self, naps: Naps, updates: str) -> None:
        super().__init__(naps, updates)
        self.automatic_optimization = True

    def on_train_start(self) -> None:
        self.automatic_optimization = False

    def optimizers(self, **_: Any) -> Any:
        return [super().optimizers()]

    def configure_optimizers(self) -> Any:
        return self._optimizer()


def recorded(
    naps: Naps, folder: Path, updates: str = "automatic", model: type[Sleepy] = Sleepy, **settings: Any
) -> list[dict[str, float]]:
    folder.mkdir()
    recorder, log = StepRecorder(folder / "steps.csv"), Log(folder)
    log.naps = naps
    checkpoint = ModelCheckpoint(folder / "checkpoints", every_n_train_steps=1)
    settings = {"logger": log, "log_every_n_steps": 1, "enable_checkpointing": True} | settings
    trainer = trainer_with(Slow(naps), recorder, checkpoint, **settings)
    module = model(naps, updates)
    update = module.tally.update
    trainer.fit(module)
    assert "log_metrics" not in vars(log)  # given back
    assert module.tally.update is update
    with recorder.path.open(newline="") as file:
        return [{key: float(value) for key, value in row.items() if value} for row in csv.DictReader(file)]


PLACES = {
    "__getitem__": "data_wait",
    "collate": "data_wait",
    "before the transfer": "prepare",
    "transfer": "transfer",
    "after the transfer": "prepare",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimizer",
    "callback": "callbacks/Slow",
    "on_save_checkpoint": "callbacks/Slow",
    "logger": "callbacks/Log",
    "module hook": "callbacks/Sleepy",
    "hook before the update": "callbacks/Sleepy",
    "hook before backward": "callbacks/Sleepy",
    "hook after backward": "callbacks/Sleepy",
    "clipping": "callbacks/Gradient clipping",
    "scheduler": "callbacks/Learning-rate scheduler",
    "metric": "callbacks/Tally",
}


@pytest.mark.parametrize("place", PLACES)
def test_a_nap_comes_back_where_it_was_taken(tmp_path: Path, standstill: Standstill, place: str) -> None:
    rows = recorded(Naps(place, standstill), tmp_path / "asleep")
    column = PLACES[place]
    whole = {column, "callbacks"} if "/" in column else {column}
    for row in rows[1:]:  # the first batch is fetched before training begins
        assert row["total"] == row[column] == pytest.approx(NAP)
        spent = {name for name in row if row[name] and name not in NUMBERS}
        assert spent - {"between", "checkpoints", "after/Log"} == whole | {"total"}


@pytest.mark.filterwarnings("ignore:Using ModelCheckpoint with manual optimization")
@pytest.mark.parametrize("updates", ["manual", "by hand"])
@pytest.mark.parametrize("place", ["forward", "backward", "optimizer", "hook after backward"])
def test_manual_optimization(tmp_path: Path, standstill: Standstill, updates: str, place: str) -> None:
    rows = recorded(Naps(place, standstill), tmp_path / "run", updates)
    assert [row["updates"] for row in rows] == [2] * BATCHES
    column = PLACES[place]
    assert [row[column] for row in rows] == pytest.approx([NAP] * BATCHES)
    assert [row["total"] for row in rows] == [row[column] for row in rows]


@pytest.mark.filterwarnings("ignore:Using ModelCheckpoint with manual optimization")
def test_a_module_that_turns_to_manual_optimization_late(tmp_path: Path, standstill: Standstill) -> None:
    rows = recorded(Naps("backward", standstill), tmp_path / "run", "manual", Turns)
    assert [row["backward"] for row in rows] == pytest.approx([NAP] * BATCHES)


def test_accumulation_updates_now_and_then(tmp_path: Path, standstill: Standstill) -> None:
    rows = recorded(Naps("optimizer", standstill), tmp_path / "run", accumulate_grad_batches=2)
    assert [row["updates"] for row in rows] == [0, 1] * 4
    assert [row["optimizer"] for row in rows] == pytest.approx([0, NAP] * 4)


def test_callbacks_of_one_class_are_numbered(tmp_path: Path, standstill: Standstill) -> None:
    naps = Naps("nowhere", standstill)
    checkpoints = [ModelCheckpoint(tmp_path / str(n), every_n_train_steps=n) for n in (1, 2)]
    trainer = trainer_with(*checkpoints, Slow(naps), Callback(), enable_checkpointing=True)
    trainer.strategy.connect(Sleepy(naps))
    assert owners(trainer) == ["Slow", "ModelCheckpoint", "ModelCheckpoint 2", "Sleepy", "Gradient clipping", "Tally"]


def test_the_inner_profiler_works_as_if_alone(tmp_path: Path, standstill: Standstill) -> None:
    inner = SimpleProfiler(tmp_path, "inner")
    naps = Naps("forward", standstill)
    trainer_with(StepRecorder(tmp_path / "steps.csv"), profiler=inner).fit(Sleepy(naps))
    assert len(inner.recorded_durations["run_training_batch"]) == BATCHES
    assert len(inner.recorded_durations[FORWARD]) == BATCHES
    assert "run_training_batch" in (tmp_path / "fit-inner.txt").read_text()


def test_loggers_and_profiler_are_given_back_after_an_error(tmp_path: Path, standstill: Standstill) -> None:
    class Fails(Sleepy):
        def training_step(self, batch: torch.Tensor) -> None:
            raise ArithmeticError

    log = Log(tmp_path)
    trainer = trainer_with(StepRecorder(tmp_path / "steps.csv"), logger=log, log_every_n_steps=1)
    before = trainer.profiler
    with pytest.raises(ArithmeticError):
        trainer.fit(Fails(Naps("nowhere", standstill)))
    assert trainer.profiler is before
    assert "log_metrics" not in vars(log)


@pytest.mark.parametrize("around", ["", "_.<locals>.", "main.<locals>.made.<locals>."])
def test_a_class_is_named_without_the_function_that_it_is_defined_in(around: str) -> None:
    assert class_of(f"{around}Ema{{'decay': 0.9}}") == "Ema"
    assert class_of(f"{around}Outer.Inner") == "Outer.Inner"
