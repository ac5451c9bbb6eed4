"""Whole runs: what they leave behind; what TensorBoard shows of one is tested beside a sweep's."""

import csv
import errno
import logging
import re
import shutil
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning import Trainer
from omegaconf import OmegaConf
from torch.distributed import HashStore
from torch.utils.data import DataLoader

from strobe.app.run import train as running
from strobe.app.run.train import explained, quieten
from strobe.callbacks.columns import PHASES
from strobe.errors import StrobeError
from strobe.measure import environment
from strobe.probe.ranks import Ranks
from support.cifar10_files import generated
from support.interruptions import before_each_step, raising
from support.places import DATA
from support.runs import ALL, CHECKPOINTS, Ended, Train


def test_the_record_is_complete_and_the_terminal_says_what_it_was(finished_run: Ended) -> None:
    summary = finished_run.summary
    assert summary["schema"] == 1
    assert summary["status"] == "completed"
    assert summary["error"] is None
    assert summary["choices"]["data"] == "sample"
    assert summary["data"] == "generated sample data"
    assert summary["batch_size"] == 4
    assert summary["world_size"] == 1
    assert sum(summary["steps"].values()) == 22
    assert summary["steps"]["profiled"] == 10  # two cycles of wait 1, warmup 1, active 3; waits start a warm-up
    rate = summary["images_per_second"]
    assert 0 < rate["low"] <= rate["median"] <= rate["high"]
    seconds = summary["step_seconds"]
    assert seconds["total"] == pytest.approx(sum(seconds[name] for name in PHASES), rel=1e-3)
    assert set(summary["metrics"]) >= {
        f"{stage}/{name}" for stage in ("train", "val", "test") for name in ("loss", "accuracy")
    }
    assert "test/accuracy/SeaLake" in summary["metrics"]
    for words in ("run completed", "generated sample data", "images/s"):
        assert words in finished_run.output
    assert re.search(r"2; to look at them: strobe view \S+/run --perfetto", finished_run.output)


def test_every_step_has_a_row(finished_run: Ended) -> None:
    with (finished_run.directory / "steps.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["step"]) for row in rows] == list(range(22))
    assert [int(row["epoch"]) for row in rows] == [0] * 11 + [1] * 11
    assert {row["images"] for row in rows} == {"4"}


def test_the_directory_holds_what_the_design_says(finished_run: Ended) -> None:
    names = {
        path.relative_to(finished_run.directory).as_posix()
        for path in finished_run.directory.rglob("*")
        if path.is_file()
    }
    assert {".hydra/config.yaml", "summary.json", "steps.csv", "train.log"} <= names
    assert {"checkpoints/best.ckpt", "checkpoints/last.ckpt"} <= names
    assert len(finished_run.summary["traces"]) == 2
    assert set(finished_run.summary["traces"]) <= names
    assert not [name for name in names if "partial" in name]
    log = (finished_run.directory / "train.log").read_text()
    assert "epoch 1, step 22" in log
    assert "epoch 1, step 22" not in finished_run.output  # where the progress bar shows the same
    assert "test/accuracy" in log
    state = torch.load(finished_run.directory / "checkpoints" / "last.ckpt", weights_only=True)  # runs no code
    assert state["global_step"] == 22
    assert {"tables/operators_by_shape.txt", "tables/operators_by_cpu_time.txt"} <= names
    with (finished_run.directory / "tables" / "operators_by_cpu_time.csv").open(newline="") as file:
        rows = {row["name"]: row for row in csv.DictReader(file)}
    steps = int(finished_run.summary["steps"]["profiled"])
    assert int(rows["aten::conv2d"]["calls"]) == 6 * 20 < steps * 20  # three active steps of two cycles


def test_the_csv_logger_leaves_pictures_as_files(train: Train) -> None:
    ended = train("logger=csv", "test=true")
    assert ended.code == 0, ended.output
    assert (ended.directory / "csv" / "metrics.csv").is_file()
    assert {path.name for path in (ended.directory / "pictures").iterdir()} == {"first_batch.png", "test_confusion.png"}


def test_all_bands(train: Train) -> None:
    ended = train(
        "data.bands=all", "model.stem=cifar", "data.batch_size=2", "trainer.limit_train_batches=2", whole=True
    )
    assert ended.code == 0, ended.output


def test_cifar10(train: Train, tmp_path: Path) -> None:
    real = DATA / "cifar10"
    root = real if real.is_dir() else generated(tmp_path / "generated")
    ended = train("data=cifar10", f"data.root={root}", "data.verify=false")
    assert ended.code == 0, ended.output
    assert ended.summary["choices"]["loader"] == "memory"


def test_a_bug_of_ours_is_shown_and_recorded(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    before_each_step(monkeypatch, lambda *_: raising(ZeroDivisionError("ours")))
    ended = train()
    assert ended.code == 1
    assert "Traceback" in ended.output
    assert "ZeroDivisionError: ours" in ended.output
    assert ended.summary["status"] == "failed"
    assert ended.summary["error"] == {"type": "ZeroDivisionError", "message": "ours"}


def test_a_rank_that_finds_nobody_says_so_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = torch.distributed.DistNetworkError("failed to recv, got 0 bytes\nException raised from recvBytes")
    assert explained(lost) is lost  # the first rank's own
    monkeypatch.setenv("RANK", "1")
    said = explained(lost)
    assert isinstance(said, StrobeError)
    assert str(said) == "Rank 1 cannot reach rank 0, or that has ended: failed to recv, got 0 bytes"


CPU_MEMORY = "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory\nframe #0"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RuntimeError(CPU_MEMORY), "out of memory at data.batch_size=9 (RuntimeError: [enforce fail at alloc_cpu"),
        (MemoryError(), "out of memory at data.batch_size=9 (MemoryError: ); give less"),
        (OSError(errno.EFBIG, "File too large"), "raise the limit (ulimit -f), or write no checkpoints"),
    ],
)
def test_what_a_machine_lacks_is_one_sentence(error: Exception, said: str, tmp_path: Path) -> None:
    told = explained(error, tmp_path, OmegaConf.create({"data": {"batch_size": 9}}))
    assert isinstance(told, StrobeError)
    assert said in str(told)
    assert "\n" not in str(told)


def test_a_run_whose_folder_is_removed_says_so(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    def remove(model: Any, _: Any) -> None:
        if model.trainer.global_step == 2:
            shutil.rmtree(model.trainer.default_root_dir)

    before_each_step(monkeypatch, remove)
    ended = train("logger=csv")
    assert ended.code == 1
    assert "Traceback" not in ended.output
    assert f"{ended.directory} was removed while training ran" in ended.output


@pytest.mark.parametrize(("code", "ends"), [(3, 3), ("enough", 1)])
def test_a_callback_that_ends_the_run_chooses_its_exit_code(
    code: object, ends: int, train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    before_each_step(monkeypatch, lambda *_: raising(SystemExit(code)))
    ended = train()
    assert ended.code == ends, ended.output
    assert f"It ended itself: sys.exit({code!r})." in ended.output


def test_a_run_whose_gpu_answers_no_more_leaves_its_record(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after an assertion there; a tensor without data stands for one that lies there."""
    failed = RuntimeError("CUDA error: device-side assert triggered")

    def fails(*_: Any) -> None:
        monkeypatch.setattr(environment, "_gpu", lambda _: torch.device("cuda", 0))
        for question in ("get_device_name", "max_memory_allocated"):
            monkeypatch.setattr(torch.cuda, question, lambda _: raising(failed))
        raise failed

    before_each_step(monkeypatch, fails)
    metrics = {"train/loss": torch.empty((), device="meta"), "val/loss": torch.tensor(0.5)}
    monkeypatch.setattr(Trainer, "callback_metrics", property(lambda _: metrics))
    ended = train()
    assert ended.code == 1, ended.output
    assert ended.summary["status"] == "failed"
    assert ended.summary["error"] == {"type": "RuntimeError", "message": str(failed)}
    assert ended.summary["metrics"] == {"val/loss": 0.5}
    assert (ended.summary["environment"]["gpu"], ended.summary["memory"]["device_peak_bytes"]) == (None, None)
    assert (ended.directory / "report.html").is_file()


@pytest.mark.parametrize(("backend", "before"), [("nccl", True), ("gloo", False)])
def test_the_report_is_there_before_ranks_measure_whose_failure_may_end_this_process(
    backend: str, before: bool, train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[tuple[bool, bool]] = []

    def measure(_: Any, parts: Any, summary: dict[str, Any], *__: Any) -> None:
        page = Path(parts.trainer.default_root_dir) / "report.html"
        found.append((page.is_file(), summary["verdict"] is not None))

    ranks = Ranks(HashStore(), 0, 1, backend=backend)
    monkeypatch.setattr(running, "together", lambda *_, **__: nullcontext(ranks))
    monkeypatch.setattr(running, "measure_ceilings", measure)
    ended = train("ceilings=true")
    assert ended.code == 0, ended.output
    assert found == [(before, before)]
    assert (ended.directory / "report.html").is_file()


def test_checkpoints_every_few_epochs_and_at_the_end(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    save, saved = Trainer.save_checkpoint, set()

    def saving(self: Trainer, *given: Any, **options: Any) -> None:
        saved.add(self.global_step)
        save(self, *given, **options)

    monkeypatch.setattr(Trainer, "save_checkpoint", saving)
    ended = train("trainer.max_epochs=3", "checkpoint.every_n_epochs=2", CHECKPOINTS, ALL)
    assert ended.code == 0, ended.output
    assert saved == {8, 12}
    state = torch.load(ended.directory / "checkpoints" / "last.ckpt", weights_only=True)
    assert state["global_step"] == 12


def test_a_warning_is_told_once(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python gives one again whenever the filters change, as libraries do between two DataLoaders."""
    monkeypatch.setattr(logging.getLogger("py.warnings"), "filters", [])
    logging.captureWarnings(capture=False)  # what another test may have left
    try:
        warnings.simplefilter("default")
        quieten()
        for number in range(3):
            warnings.filterwarnings("ignore", f"no such warning {number}")
            DataLoader(range(4), num_workers=999)
        warnings.warn("another one", stacklevel=1)
    finally:
        logging.captureWarnings(capture=False)
    told = [record.getMessage() for record in caplog.records if record.name == "py.warnings"]
    assert ["999 worker processes" in text for text in told] == [True, False]
