"""Strobe on trainings that others wrote: what it finds, and that it disturbs nothing."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import EarlyStopping
from lightning.pytorch.demos.boring_classes import BoringModel, RandomDataset
from lightning.pytorch.profilers import PyTorchProfiler
from lightning.pytorch.utilities import CombinedLoader
from torch.utils.data import DataLoader, TensorDataset

from strobe import Strobe
from strobe.attach import callback, place
from strobe.attach.entry import traces
from strobe.attach.settings import SCHEDULE, SHORT, schedule_of, schedule_on
from strobe.callbacks import rows
from strobe.callbacks.steps import StepRecorder
from strobe.records.run import load_record
from support.fitting import Standstill, fit, standstill, trainer_with
from support.foreign import PROGRAMS, SLOW, STEP, Program
from support.interruptions import fill, small_disk
from support.programs import ALONE

__all__ = ["standstill"]

pytestmark = pytest.mark.filterwarnings("ignore:.*dataloader_iter")  # Lightning's, of a kind of program


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine on which nothing else runs, and an empty working directory."""
    monkeypatch.setattr(callback.contention, "between", lambda *_: dict(ALONE))
    monkeypatch.setattr(place, "_stopped", False)
    monkeypatch.chdir(tmp_path)


def trained(program: Program, clock: Standstill, *besides: Callback) -> tuple[Trainer, Any]:
    """The program, run from the same random numbers."""
    torch.manual_seed(7)
    model, loader, validation, callbacks = program.parts(clock)
    trainer = trainer_with(*callbacks, *besides, **program.settings)
    trainer.fit(model, loader, validation)
    return trainer, model


def record(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return found


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_what_is_slow_is_found_and_nothing_is_disturbed(
    program: Program, standstill: Standstill, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = []
    for besides in ([], [Strobe("here", trace={"wait": 0, "active": 2, "repeat": 1})]):
        trainer, model = trained(program, standstill, *besides)
        states = [optimizer.state_dict() for optimizer in trainer.optimizers]
        ended.append((model.state_dict(), states, torch.get_rng_state(), dict(trainer.callback_metrics)))
    torch.testing.assert_close(ended[0], ended[1], rtol=0, atol=0)
    summary = record(tmp_path / "here")
    first = summary["findings"][0]
    assert first["cause"] == program.cause, summary["verdict"]
    assert program.advice in first["advice"]
    assert all(not found["overrides"] for found in summary["findings"])  # which only the application takes
    said = capsys.readouterr()
    assert first["title"] in " ".join(said.err.split())
    assert not said.out  # which is the script's own
    assert summary["unit"] == "samples"
    total = summary["step_seconds"]["total"]
    assert summary["images_per_second"]["median"] == pytest.approx(program.samples / total, rel=0.2)


def test_what_a_cpu_transfers_is_not_called_scaling_of_images(standstill: Standstill, tmp_path: Path) -> None:
    trained(PROGRAMS["preparing"], standstill, Strobe("here"))
    told = (tmp_path / "here" / "summary.json").read_text() + (tmp_path / "here" / "report.html").read_text()
    assert "reparing batches (transfer hooks)" in told
    assert not [
        word
        for word in ("caling and", "caling the", "images take", "ceilings=", "profiler=", "train.py")
        if word in told
    ]


def test_nothing_is_written_beside_its_directory(standstill: Standstill, tmp_path: Path) -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):  # of a script that is done with it
        torch.ones(1)
    trained(PROGRAMS["automatic"], standstill, Strobe("here", trace={"wait": 2, "repeat": 1}))
    assert [path.name for path in tmp_path.iterdir()] == ["here"]
    names = {path.name for path in (tmp_path / "here").iterdir()}
    assert names == {"summary.json", "steps.csv", "report.html", "tables", "tensorboard", "traces.html"}
    assert len(record(tmp_path / "here")["traces"]) == 1


@pytest.mark.parametrize("lightnings", [True, False])
def test_a_script_that_uses_the_profiler_itself_keeps_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], lightnings: bool
) -> None:
    class Profiling(Callback):
        def on_train_start(self, *_: Any) -> None:
            schedule = torch.profiler.schedule(wait=2, warmup=1, active=2)
            self.profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], schedule=schedule)
            self.profile.start()

        def on_train_batch_end(self, *_: Any) -> None:
            self.profile.step()

        def on_train_end(self, *_: Any) -> None:
            self.profile.stop()

    settings: dict[str, Any] = {"profiler": PyTorchProfiler(tmp_path / "theirs")} if lightnings else {}
    fit(*([] if lightnings else [Profiling()]), Strobe("here", trace={"wait": 0, "active": 1}), **settings)
    assert (record(tmp_path / "here")["status"], record(tmp_path / "here")["traces"]) == ("completed", [])
    assert capsys.readouterr().err.count("Strobe records no trace: the script uses torch.profiler itself.") == 1


def test_the_files_of_a_script_are_not_counted_among_those_of_a_record(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(bytes(10**8))
    fit(Strobe("."))
    written = sum((tmp_path / name).stat().st_size for name in ("summary.json", "steps.csv", "report.html"))
    assert record(tmp_path)["bytes"] == pytest.approx(written, abs=20)


def test_a_bound_is_told_and_no_speed_that_nobody_measured(standstill: Standstill, tmp_path: Path) -> None:
    trained(PROGRAMS["automatic"], standstill, Strobe("here"))
    summary = record(tmp_path / "here")
    bound = (STEP + SLOW) / STEP
    assert f"{bound:.1f}x" in summary["verdict"]
    assert summary["findings"][0]["predicted_speedup"]["low"] == pytest.approx(1, abs=0.05)
    assert (summary["ceilings"], summary["overrides"], summary["unit"]) == (None, [], "samples")
    assert load_record(tmp_path / "here").setting("engine.num_workers") == 0  # for a report that is made again


def test_rates_count_steps_where_no_batch_tells_its_size(standstill: Standstill, tmp_path: Path) -> None:
    program = Program(PROGRAMS["no tensors"].model, PROGRAMS["no tensors"].loader, "data", "loader")
    model, loader, validation, _ = program.parts(standstill)
    model.log = lambda *_, **__: None
    trainer_with(Strobe("here")).fit(model, loader, validation)
    summary = record(tmp_path / "here")
    assert summary["unit"] == "steps"
    assert summary["images_per_second"]["median"] == pytest.approx(1 / (STEP + SLOW))
    assert "Steps/s of each step" in (tmp_path / "here" / "report.html").read_text()


@pytest.mark.parametrize(
    ("error", "raised", "status"),
    [(ArithmeticError, ArithmeticError, "failed"), (KeyboardInterrupt, SystemExit, "interrupted")],
)
def test_a_training_that_breaks_off_has_its_verdict(
    tmp_path: Path, error: type[BaseException], raised: type[BaseException], status: str
) -> None:
    class Breaking(Callback):
        def on_train_batch_end(self, trainer: Any, model: Any, outputs: Any, batch: Any, number: int) -> None:
            if number == 4:
                raise error("the script's own")

    with pytest.raises(raised):
        fit(Breaking(), Strobe("here"))
    summary = record(tmp_path / "here")
    assert (summary["status"], summary["error"]["type"]) == (status, error.__name__)
    assert summary["error"]["message"] == ("It was ended by Ctrl-C." if status == "interrupted" else "the script's own")
    assert (tmp_path / "here" / "report.html").is_file()


def test_a_worker_that_learns_of_sigterm_first_makes_no_failure(tmp_path: Path) -> None:
    class Ended(Callback):
        def on_train_batch_end(self, *_: Any) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            raise RuntimeError("DataLoader worker (pid 715) is killed by signal: Terminated. ")

    with pytest.raises(RuntimeError):
        fit(Ended(), Strobe("here"))
    summary = record(tmp_path / "here")
    assert summary["status"] == "interrupted"
    assert summary["error"]["message"] == "It was ended by SIGTERM, which SLURM, kill and timeout send."


def test_a_closed_terminal_ends_it_with_the_exit_code_that_it_would_have(tmp_path: Path) -> None:
    class Closed(Callback):
        def on_train_batch_end(self, *_: Any) -> None:
            os.kill(os.getpid(), signal.SIGHUP)

    with pytest.raises(SystemExit) as ended:
        fit(Closed(), Strobe("here"))
    assert ended.value.code == 128 + signal.SIGHUP
    assert record(tmp_path / "here")["error"]["message"].startswith("It was ended by SIGHUP")


@pytest.mark.parametrize("ending", [{"max_steps": 5}, {"max_time": {"seconds": 0}}, {"early": True}])
def test_a_training_that_ends_early_is_complete(tmp_path: Path, ending: dict[str, Any]) -> None:
    class Watched(BoringModel):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            self.log("train", 1.0)
            return super().training_step(batch, batch_idx)

    early = [EarlyStopping("train", patience=1, check_on_train_epoch_end=True)] if ending.pop("early", False) else []
    trainer_with(*early, Strobe("here"), **{"max_epochs": 3, "limit_train_batches": 6} | ending).fit(Watched())
    assert record(tmp_path / "here")["status"] == "completed"


def test_each_fit_has_a_record_and_none_is_overwritten(tmp_path: Path) -> None:
    strobe = Strobe("here")
    trainer = fit(strobe)
    trainer.fit_loop.max_epochs = 2
    trainer.fit(trainer.lightning_module, trainer.train_dataloader, trainer.train_dataloader)
    trainer.validate(trainer.lightning_module, trainer.train_dataloader, verbose=False)
    fit(strobe)
    assert [record(tmp_path / name)["steps"]["skipped"] for name in ("here", "here-2", "here-3")] == [3, 3, 3]
    assert {path.name for path in tmp_path.iterdir()} == {"here", "here-2", "here-3"}


def test_of_two_one_records(tmp_path: Path) -> None:
    fit(Strobe("one"), Strobe("two"))
    assert [path.name for path in tmp_path.iterdir()] == ["one"]


def test_a_callback_of_the_scripts_may_pass_its_hooks_on(tmp_path: Path) -> None:
    class Composite(Callback):
        def __init__(self, part: Callback) -> None:
            for hook in (name for name in dir(Callback) if name.startswith("on_") or name in ("setup", "teardown")):
                setattr(self, hook, lambda *given, hook=hook, **named: getattr(part, hook)(*given, **named))

    strobe = Strobe("here")
    assert fit(Composite(strobe)).global_step == 6
    fit(strobe)
    assert [record(tmp_path / name)["steps"]["skipped"] for name in ("here", "here-2")] == [3, 3]
    assert not [hook for hook in dir(Callback) if hook.startswith("on_") and hook in vars(strobe)]


@pytest.mark.parametrize("where", ["on_fit_start", "on_train_batch_end", "teardown"])
def test_its_own_error_is_said_once_and_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], where: str
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ArithmeticError("Strobe's own")

    monkeypatch.setattr(StepRecorder, where, broken)
    trainer = fit(Strobe("here"), max_epochs=2)
    assert trainer.global_step == 12
    assert type(trainer.profiler).__name__ == "PassThroughProfiler"
    assert capsys.readouterr().err.count("Strobe stopped measuring") == 1
    assert "Strobe's own" in (tmp_path / "here" / "strobe-error.txt").read_text()


def test_a_directory_that_cannot_be_made_ends_no_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert fit(Strobe("file/here")).global_step == 6
    said = capsys.readouterr().err
    assert "Strobe stopped measuring: its record could not be written: [Errno 20] Not a directory" in said
    assert "give another folder. Your training is not affected." in said


def test_a_disk_without_room_for_a_record_keeps_what_room_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And rows, which are written meanwhile, find it."""
    monkeypatch.setattr(rows, "FLUSH_SECONDS", 0.0)
    with small_disk(tmp_path / "disk", 1) as disk:
        fit(Strobe(disk / "here", report=False), max_epochs=8)  # whose rows take more than a page
        assert record(disk / "here")["status"] == "completed"
        assert {path.name for path in (disk / "here").iterdir()} == {"steps.csv", "summary.json"}


def test_a_disk_that_is_full_is_named_and_is_no_error_of_strobes_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with small_disk(tmp_path / "disk", 1) as disk:
        fill(disk)
        fit(Strobe(disk / "here", report=False))
        left = {path.name for path in disk.rglob("*") if path.is_file()}
    said = capsys.readouterr().err
    assert "its record could not be written: [Errno 28] No space left on device" in said
    assert "strobe-error.txt" not in left


@pytest.mark.parametrize(("variable", "own"), [(None, SHORT), ("0", {}), ("1", SCHEDULE)])
def test_a_gpu_is_traced_for_two_steps_unless_it_is_said_otherwise(
    variable: str | None, own: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its work cannot be told from its waiting otherwise."""
    monkeypatch.setattr(os, "environ", {} if variable is None else {"STROBE_TRACE": variable})
    cpu, gpu = torch.device("cpu"), torch.device("cuda", 0)
    assert schedule_on(gpu, schedule_of(traces())) == own
    assert schedule_on(cpu, schedule_of(None)) == schedule_on(gpu, schedule_of(False)) == {}
    assert schedule_on(cpu, schedule_of(True)) == schedule_on(gpu, schedule_of({})) == SCHEDULE
    assert SHORT["repeat"] * SHORT["active"] == 2


@pytest.mark.parametrize("trace", [{"warm": 1}, {"active": 0}])
def test_a_wrong_schedule_is_refused_where_it_is_written(trace: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="active"):
        Strobe(trace=trace)


def test_the_default_directory_is_named_after_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "script", lambda: "train")
    fit(strobe := Strobe(report=False))
    assert strobe.place is not None
    assert strobe.place.parent.parent == Path("strobe-runs").absolute()
    assert strobe.place.name.endswith("-train")
    assert {path.name for path in strobe.place.iterdir()} == {"summary.json", "steps.csv"}


def test_an_average_of_the_weights_is_one_of_the_users_module(tmp_path: Path) -> None:
    """What copies a module while it is watched gets a copy that updates itself."""
    import copy

    import torchmetrics

    class Measured(BoringModel):
        def __init__(self) -> None:
            super().__init__()
            self.mean = torchmetrics.MeanMetric()

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            self.mean(1.0)
            return super().training_step(batch, batch_idx)

    class Copies(Callback):
        def on_train_batch_end(self, trainer: Any, module: Any, *_: Any) -> None:
            self.copy = copy.deepcopy(module.mean)
            torch.save(module.mean, tmp_path / "metric.pt")

    copies = Copies()
    model = Measured()
    trainer_with(copies, Strobe("here"), limit_train_batches=2).fit(model)
    before = model.mean.weight.clone()
    copies.copy(5.0)
    assert copies.copy.weight == before + 1
    assert model.mean.weight == before


def test_a_disk_that_fills_leaves_the_record(tmp_path: Path) -> None:
    class Filling(Callback):
        def on_train_batch_end(self, *_: Any) -> None:
            fill(disk)

    with small_disk(tmp_path / "disk", 8) as disk:
        fit(Strobe(disk / "here", report=False), Filling())
        summary = record(disk / "here")
        assert (summary["status"], sum(summary["steps"].values())) == ("completed", 6)
        assert {path.name for path in (disk / "here").iterdir()} == {"steps.csv", "summary.json"}


def test_several_loaders_without_workers_can_have_some(tmp_path: Path) -> None:
    class Taking(BoringModel):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return super().training_step(batch["first"], batch_idx)

    def settings(workers: int) -> Any:
        first, second = RandomDataset(32, 24), TensorDataset(torch.rand(24, 3))
        loaders = {"first": DataLoader(first, 4), "second": DataLoader(second, 4, num_workers=workers)}
        trainer_with(Strobe("here"), max_epochs=1, limit_val_batches=0).fit(
            Taking(), CombinedLoader(loaders, "min_size")
        )
        return load_record(max(tmp_path.glob("here*")))

    assert settings(0).setting("engine.num_workers") == 0
    assert record(tmp_path / "here")["data"] == "RandomDataset and TensorDataset"
    assert settings(1).setting("engine.num_workers") is None  # of which one?
