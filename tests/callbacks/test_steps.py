"""The rows of steps.csv, from real training runs."""

import csv
import mmap
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.utilities import CombinedLoader
from rich.console import Console
from torch.utils.data import DataLoader, TensorDataset

from strobe.callbacks import rows as step_rows
from strobe.callbacks.batches import elements_of, size_of
from strobe.callbacks.clock import Lap
from strobe.callbacks.columns import GAPS, PHASES, RANKS
from strobe.callbacks.phases import PhaseClock, StandIn
from strobe.callbacks.rows import StepRows
from strobe.callbacks.steps import ProgressBar, StepRecorder
from strobe.callbacks.trace import TraceProfiler
from strobe.callbacks.waits import Waits
from strobe.records.steps import measure_steps
from support.fitting import SAMPLES, SOME_VALIDATION, Model, Stream, fit, trainer_with
from support.steps import column, recorder, rows, seconds

__all__ = ["recorder"]


UNEVEN = TensorDataset(torch.randn(22, 4))  # five batches of four and one of two
IMAGES = [4, 4, 4, 4, 4, 2]


class Hoarding(Callback):
    """Keeps 8 MB of each step, not of what malloc has left over from other tests, and lets time pass."""

    def on_train_batch_end(self, *_: Any) -> None:
        block = mmap.mmap(-1, 8_000_000, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        block.write(bytes(len(block)))
        self.kept = [*getattr(self, "kept", []), block]
        time.sleep(0.01)


def test_memory_that_grows_with_the_steps_is_seen(recorder: StepRecorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_rows, "ASKED_SECONDS", 0.0)
    fit(recorder, Hoarding(), max_epochs=5)
    growth = measure_steps(recorder.path)["memory_growth"]
    assert growth["memory"]["steady"]
    assert growth["memory"]["bytes_per_second"] > 0
    grown = growth["memory"]["last_bytes"] - growth["memory"]["first_bytes"]  # from the first quarter to the last
    assert grown > 3_000_000 * len(rows(recorder))
    assert growth["workers_memory"] is None  # there are none


@pytest.mark.parametrize(
    "settings",
    [{}, {"accumulate_grad_batches": 4}, SOME_VALIDATION, {"enable_checkpointing": True}],
    ids=["plain", "accumulation", "validation", "checkpoints"],
)
def test_one_row_a_training_step(recorder: StepRecorder, tmp_path: Path, settings: dict[str, Any]) -> None:
    began = time.perf_counter()
    fit(recorder, data=UNEVEN, max_epochs=2, default_root_dir=tmp_path, **settings)
    assert 0 < sum(seconds(recorder, "total")) < time.perf_counter() - began
    assert column(recorder, "step") == list(range(12))
    assert column(recorder, "epoch") == [0] * 6 + [1] * 6
    assert column(recorder, "images") == IMAGES * 2
    assert column(recorder, "profiled") == [0] * 12
    for row in rows(recorder):
        parts = [float(row[phase]) for phase in PHASES]
        assert min(parts) >= 0
        assert float(row["total"]) == pytest.approx(sum(parts), abs=1e-6)  # of seven decimals each


def test_data_of_unknown_length(recorder: StepRecorder) -> None:
    fit(recorder, data=Stream(), max_epochs=2)
    assert column(recorder, "step") == list(range(12))


def test_a_step_that_compiles_anew_says_so(recorder: StepRecorder) -> None:
    """As the last batch of an epoch does, when another size comes for the first time."""
    torch.compiler.reset()  # else a size that another test has compiled for is no new one
    model = Model()
    model.layer.compile(backend="eager")
    fit(recorder, model=model, data=TensorDataset(torch.randn(10, 4)), max_epochs=2)
    assert column(recorder, "compiled") == [1, 0, 1, 0, 0, 0]


def test_a_step_that_starts_workers_says_so(recorder: StepRecorder) -> None:
    """Of two loaders the shorter one, which begins anew every second batch, and keeps no workers."""

    class Pairs(Model):
        def training_step(self, batch: dict[str, list[torch.Tensor]]) -> torch.Tensor:
            return super().training_step(batch["long"])

    data = TensorDataset(torch.randn(12, 4))
    short = DataLoader(data, batch_size=6, num_workers=1)
    both = CombinedLoader({"long": DataLoader(data, batch_size=2), "short": short}, "max_size_cycle")
    trainer_with(recorder).fit(Pairs(), both, DataLoader(SAMPLES, batch_size=4))
    assert column(recorder, "workers_started") == [0, 0, 1, 0, 1, 0]


@pytest.mark.parametrize(
    ("error", "raised"), [(ArithmeticError, ArithmeticError), (KeyboardInterrupt, SystemExit)], ids=["error", "Ctrl-C"]
)
def test_a_run_that_breaks_off_keeps_its_rows(
    recorder: StepRecorder,
    monkeypatch: pytest.MonkeyPatch,
    error: type[BaseException],
    raised: type[BaseException],
) -> None:
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # Lightning would leave SIGINT ignored
    with pytest.raises(raised):
        fit(recorder, model=Model(4, error))
    assert column(recorder, "step") == [0, 1, 2, 3]


def test_a_second_fit_starts_the_file_anew(recorder: StepRecorder) -> None:
    model = Model()
    trainer = fit(recorder, model=model)
    profiler = trainer.profiler
    assert not isinstance(profiler, StandIn)  # given back
    trainer.fit_loop.max_epochs = 2
    trainer.fit(model, DataLoader(SAMPLES, batch_size=4), DataLoader(SAMPLES))
    assert column(recorder, "step") == list(range(6, 12))
    assert trainer.profiler is profiler


def test_batches_of_a_kind_of_their_own(tmp_path: Path) -> None:
    class Ours:
        def __init__(self, rows: list[Any]) -> None:
            self.rows = torch.stack([row[0] for row in rows])

    class OfOurs(Model):
        def training_step(self, batch: Ours) -> torch.Tensor:
            return super().training_step([batch.rows])

    recorder = StepRecorder(tmp_path / "steps.csv")
    trainer = trainer_with(recorder, log_every_n_steps=0)
    trainer.fit(OfOurs(), DataLoader(SAMPLES, 4, collate_fn=Ours), DataLoader(SAMPLES))
    with recorder.path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["images"] for row in rows] == [""] * 6


CYCLE: list[Any] = []
CYCLE += [CYCLE, CYCLE]


def images(channels: int, *sizes: int) -> list[torch.Tensor]:
    return [torch.empty(channels, 8, size) for size in sizes]


@pytest.mark.parametrize(
    ("batch", "size"),
    [
        ([torch.empty(6, 3, 8, 8), torch.empty(6)], 6),
        ([torch.empty(6, 3, 8, 8), torch.empty(6, 3, 4, 4)], 6),  # crops
        ([torch.empty(6, 10, 4), torch.empty(6, 12, 4)], 6),  # sequences and their targets
        ((tuple(images(3, 8, 9, 7, 9)), tuple({"boxes": torch.empty(number, 4)} for number in range(4))), 4),
        ([(image, {"labels": torch.empty(2)}) for image in images(3, 8, 8, 8, 8)], 4),
        ([{"image": image, "mask": torch.empty(8, 8)} for image in images(1, 8, 9)], 2),
        ((images(3, 8, 8), images(1, 8, 8)), 2),
        ({"text": torch.empty(300), "offsets": torch.empty(8)}, 300),  # the first one, as Lightning has it
        (["a", {"n": torch.tensor(1.0)}], None),
        ((list(range(5000)), torch.empty(6, 4)), 6),
        ([[[1, 2], [3, 4]] for _ in range(5000)], None),  # no step pays for them
        (CYCLE, None),
    ],
)
def test_a_batch_is_as_large_as_its_tensors_or_its_list_of_images(batch: Any, size: int | None) -> None:
    assert size_of(batch) == size


def test_elements_of_a_batch_are_all_or_unknown() -> None:
    assert elements_of([{"a": torch.empty(2, 3)}, torch.empty(4)]) == 10
    assert elements_of([torch.empty(2)] * 2000) is None


def test_of_two_recorders_neither_leaves_anything_behind(tmp_path: Path) -> None:
    logger = CSVLogger(tmp_path)
    recorders = [StepRecorder(tmp_path / name) for name in ("one.csv", "two.csv")]
    trainer = fit(*recorders, logger=[logger, logger], log_every_n_steps=6)
    assert type(trainer.profiler).__name__ == "PassThroughProfiler"
    assert not {"log_metrics", "save"} & vars(logger).keys()
    assert [column(each, "step") for each in recorders] == [list(range(6))] * 2


def test_collectives_are_as_before_when_two_have_timed_them() -> None:
    from torch._C._distributed_c10d import Work

    before = vars(Work)["wait"]
    first, second = Waits(PhaseClock()), Waits(PhaseClock())
    for one in (first, second):
        one.install()
    first.remove()
    assert vars(Work)["wait"] is not before
    second.remove()
    assert vars(Work)["wait"] is before


def test_rows_reach_the_disk_while_training_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_rows, "FLUSH_SECONDS", 0)
    seen = []

    class Look(Callback):
        def on_train_batch_end(self, *_: Any) -> None:
            seen.append(len(recorder.path.read_text().splitlines()))

    recorder = StepRecorder(tmp_path / "steps.csv")
    fit(Look(), recorder)
    assert seen == [1, 1, 2, 3, 4, 5]  # a row waits for what follows its step


def test_the_bar_shows_the_rate_and_the_waiting(recorder: StepRecorder) -> None:
    shown: list[dict[str, Any]] = []

    class Bar(ProgressBar):
        def get_metrics(self, trainer: Trainer, pl_module: LightningModule) -> dict[str, Any]:
            shown.append(super().get_metrics(trainer, pl_module))
            return shown[-1]

    fit(recorder, Bar(), enable_progress_bar=True)
    live = recorder.live()
    assert live is not None
    assert [("images/s" in metrics, "waiting" in metrics) for metrics in shown[:3]] == [
        (False, False),
        (True, True),
        (True, True),
    ]
    assert re.fullmatch(r"[\d,]+", shown[-1]["images/s"])
    assert 0 <= live[1] < 1
    whole = sum(sum(seconds(recorder, name)) for name in ("total", *GAPS))
    assert sum(seconds(recorder, "data_wait")) / whole == pytest.approx(live[1], abs=1e-4)
    assert 24 / whole == pytest.approx(live[0], rel=1e-3)


@pytest.mark.parametrize(("width", "columns"), [(80, 3), (120, 3), (200, 5)])
def test_a_terminal_that_is_not_wide_has_the_figures_on_one_line(
    recorder: StepRecorder, width: int, columns: int
) -> None:
    bar = ProgressBar()
    bar._console = Console(width=width)
    found = bar.configure_columns(trainer_with(recorder))
    assert len(found) == columns
    assert found[1].bar_width == (10 if width == 80 else 40)


@pytest.mark.parametrize("late", [False, True])
def test_steps_of_a_device_are_in_their_rows(tmp_path: Path, late: bool) -> None:
    """A busy one tells of a step when its row has long been there; after an error of it, one is not known."""
    rows = StepRows(tmp_path / "steps.csv", [], device=True)
    for number in range(3):
        rows.add([number, 0, 4, 1, 1, 0, 0, 0, None, None], Lap({"forward": 1}, 1))
        if not late:
            rows.tell([{"total": number + 1.0}])
        rows.write(time.monotonic())
    if late:
        rows.tell([{"total": 1.0}, {"total": 2.0}])
    rows.close()
    with (tmp_path / "steps.csv").open(newline="") as file:
        found = [row["device_total"] for row in csv.DictReader(file)]
    assert found == ["1.0000000", "2.0000000", "" if late else "3.0000000"]


@pytest.mark.parametrize("ranks", [False, True])
def test_a_gap_is_no_longer_than_that_of_the_device(tmp_path: Path, ranks: bool) -> None:
    """The host validates for 8 s and saves for 2, but waits at first for 6 until the device has done the steps."""
    path, among = tmp_path / "steps.csv", [None] * len(RANKS) * ranks
    rows = StepRows(path, [], between=["Audit"], device=True, ranks=ranks)
    first: dict[str, float] = {"total": 1.0}
    gaps = [({"total": 1.0, "gap": 20.0}, 10.0), (first, 4.0), ({"total": 1.0}, 0.0)]
    for number, (device, _) in enumerate(gaps):
        rows.add([number, 0, 4, 1, 1, 0, 0, 0, None, None], Lap({"forward": 1}, 1), among)
        if number:
            rows.tell([gaps[number - 1][0]])
        rows.write(time.monotonic() + 100)
        if number < 2:
            rows.follow({"validation": 8.0, "checkpoints": 2.0}, Lap({"callbacks/Audit": 5 * 10**9}))
        if device is first:
            rows.write(time.monotonic() + 100)  # when it is not yet known
            first["gap"] = 4.0
    rows.tell([gaps[-1][0]])
    rows.close()
    with path.open(newline="") as file:
        found = [{name: float(row[name]) for name in (*GAPS, "after/Audit")} for row in csv.DictReader(file)]
    assert [sum(row[name] for name in GAPS) for row in found] == pytest.approx([most for _, most in gaps])
    assert found[1] == pytest.approx({"validation": 3.2, "checkpoints": 0.8, "between": 0.0, "after/Audit": 2.0})


def test_a_rank_has_its_latest_step_on_the_disk_before_it_is_known_what_follows(tmp_path: Path) -> None:
    """What follows it then stands in its row, whatever had been written."""

    def read() -> list[tuple[str, str]]:
        with (tmp_path / "steps.csv").open(newline="") as file:
            return [(row["step"], row["validation"]) for row in csv.DictReader(file)]

    rows = StepRows(tmp_path / "steps.csv", [], device=False, ranks=True)
    for number in range(3):
        rows.add([number, 0, 4, 1, 1, 0, 0, 0, None, None], Lap({"forward": 1}, 1), [None] * len(RANKS))
        rows.write(time.monotonic())
        assert [step for step, _ in read()] == [str(each) for each in range(number + 1)]
        if number:
            rows.follow({"validation": 9.5})
            rows.follow({"validation": 0.5})
    rows.close()
    rows.follow({"validation": 1.0})
    assert read() == [("0", "0.0"), ("1", "10.0000000"), ("2", "10.0000000")]


def test_seconds_of_undisturbed_steps_reach_every_logger(recorder: StepRecorder, tmp_path: Path) -> None:
    loggers = [CSVLogger(tmp_path, version=name) for name in ("one", "two")]
    profiler = TraceProfiler(tmp_path / "traces", active=1, wait=2)
    fit(recorder, profiler, logger=loggers, log_every_n_steps=2)
    expected = [row for row in rows(recorder) if row["step"] in ("1", "3", "5") and row["profiled"] == "0"]
    for logger in loggers:
        with Path(logger.log_dir, "metrics.csv").open(newline="") as file:
            found = list(csv.DictReader(file))
        assert [int(row["step"]) for row in found] == [int(row["step"]) + 1 for row in expected]
        for name in (*PHASES, "total"):
            logged = [float(row[f"step_seconds/{name}"]) for row in found]
            assert logged == pytest.approx([float(row[name]) for row in expected], abs=1e-6)
