"""An interrupted run that is resumed ends exactly where an uninterrupted one does."""

import logging
import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf

from strobe.app.build.checkpoint import (
    KEEP_BEST,
    KEEP_LAST,
    WRITE_EVERY,
    Held,
    find_checkpoint,
    tidy,
    unkept,
    wanted,
    write_held,
)
from strobe.app.config.checks import without_hydra
from strobe.app.config.compose import composed, in_sweep
from strobe.errors import ConfigError
from strobe.records.files import size_of
from support.files import plant
from support.interruptions import before_each_step
from support.runs import ALL, CHECKPOINTS, QUICK, Train, trained

SETTINGS = (
    "trainer.max_epochs=3",
    "trainer.limit_train_batches=3",
    "model.scheduler=one_cycle",
    CHECKPOINTS,
)


Whole = tuple[Path, dict[str, Any]]  # a folder of checkpoints, and weights


def weights(directory: Path) -> dict[str, Any]:
    state = torch.load(directory / "checkpoints" / "last.ckpt", weights_only=True)
    optimizer = state["optimizer_states"][0]["state"]
    return state["state_dict"] | {f"moment {key}": value["exp_avg"] for key, value in optimizer.items()}


def assert_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one.keys() == other.keys()
    assert [name for name in one if not torch.equal(one[name], other[name])] == []


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory, sample_root: Path) -> Whole:
    """What a run that was left alone ended with: its folder of checkpoints, and weights."""
    ended = trained(tmp_path_factory.mktemp("whole"), *SETTINGS, ALL, defaults=QUICK, data_root=sample_root)
    assert ended.code == 0, ended.output
    return ended.directory / "checkpoints", weights(ended.directory)


@pytest.mark.parametrize(
    ("step", "settings"),
    [
        (4, [ALL]),
        (5, ["checkpoint.every_n_steps=2", "engine.num_workers=2"]),
        pytest.param(3, ["engine.num_workers=2", ALL], marks=pytest.mark.slow),
        pytest.param(7, ["checkpoint.every_n_steps=3"], marks=pytest.mark.slow),
    ],
    ids=["mid-epoch", "saved mid-epoch, workers", "first step, workers", "saved at an epoch's end"],
)
def test_ctrl_c_and_resume(
    train: Train,
    uninterrupted: Whole,
    monkeypatch: pytest.MonkeyPatch,
    step: int,
    settings: list[str],
) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with monkeypatch.context() as patch:
        before_each_step(patch, lambda model, _: model.global_step == step and os.kill(os.getpid(), signal.SIGINT))
        broken = train(*SETTINGS, *settings, name="run")
    assert broken.code == 130
    assert "Traceback" not in broken.output
    assert broken.summary["status"] == "interrupted"
    assert (broken.directory / "checkpoints" / "last.ckpt").is_file()
    given = [text for text in settings if text != ALL]  # a resumed run keeps them by itself
    resumed = train(*SETTINGS, *given, "ckpt_path=last", name="run")
    assert resumed.code == 0, resumed.output
    assert resumed.summary["status"] == "completed"
    assert_same(weights(resumed.directory), uninterrupted[1])


@pytest.mark.parametrize("enough", [False, True], ids=["too short", "long enough"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_a_run_that_is_broken_off_keeps_its_checkpoints_from_a_minute_on(
    train: Train, monkeypatch: pytest.MonkeyPatch, error: type[BaseException], enough: bool
) -> None:
    def stop(model: Any, _: Any) -> None:
        if model.global_step == 4:
            raise error

    with monkeypatch.context() as patch:
        before_each_step(patch, stop)
        if enough:
            patch.setattr("strobe.app.build.checkpoint.KEEP_BEST", 0.0)
        broken = train(*SETTINGS, "trainer.limit_val_batches=1")
    assert broken.summary["status"] != "completed"
    assert {path.name for path in broken.directory.rglob("*.ckpt")} == ({"best.ckpt", "last.ckpt"} if enough else set())
    assert (broken.directory / "checkpoints").exists() == enough
    assert ("so no checkpoint is kept; checkpoint.save=resume keeps one" in broken.output) != enough


@pytest.mark.parametrize(
    ("seconds", "kept"), [(KEEP_BEST - 1, set()), (KEEP_BEST, {"best.ckpt"}), (KEEP_LAST, {"best.ckpt", "last.ckpt"})]
)
def test_what_a_completed_run_keeps(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, seconds: float, kept: set[str]
) -> None:
    caplog.set_level(logging.INFO)
    assert set(unkept(seconds)) == {"best.ckpt", "last.ckpt"} - kept
    plant(tmp_path / "checkpoints", {"best.ckpt": b"weights", "last.ckpt": b"all"})
    tidy(tmp_path / "checkpoints", seconds, began=time.time() + 60)  # an earlier run's stay
    assert len(list(tmp_path.rglob("*.ckpt"))) == 2
    assert (". checkpoints/ still holds those of an earlier run" in caplog.text) == (not kept)
    tidy(tmp_path / "checkpoints", seconds, began=0.0)
    assert {path.name for path in tmp_path.rglob("*.ckpt")} == kept
    assert (tmp_path / "checkpoints").exists() == bool(kept)


def test_the_last_checkpoint_is_of_the_same_data_and_model_and_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept = ("checkpoints/last.ckpt", "summary.json")
    runs = {"old": (kept, "data.batch_size=8"), "new": (kept[1:], "seed=1"), "other": (kept, "model.stem=cifar")}
    for age, (name, (files, override)) in zip((3000, 2000, 1000), runs.items(), strict=True):
        saved = OmegaConf.to_yaml(without_hydra(composed([override])))
        plant(tmp_path / name, dict.fromkeys(files, b"") | {".hydra/config.yaml": saved.encode()})
        for number, file in enumerate(files):
            os.utime(tmp_path / name / file, times=(0, time.time() - age + number))
    last = tmp_path / "old" / "checkpoints" / "last.ckpt"
    assert find_checkpoint(composed(["ckpt_path=last"]), tmp_path / "mine", tmp_path) == last
    (warning,) = caplog.messages
    assert warning.startswith(f"ckpt_path=last takes {last} of ")
    assert warning.endswith("; 2 newer runs kept none, or trained something else")
    with pytest.raises(ConfigError, match=f"the newest, {tmp_path}/other/.* was saved with model.lr=0.001"):
        find_checkpoint(composed(["ckpt_path=last", "model.lr=0.5"]), tmp_path / "mine", tmp_path)


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ("trainer.max_epochs=3", "has trained 3 epochs already, and trainer.max_epochs=3; give trainer.max_epochs=4"),
        ("trainer.max_steps=5", "has trained 9 steps already, and trainer.max_steps=5; give trainer.max_steps=10"),
    ],
)
def test_a_checkpoint_with_nothing_left_to_train_is_refused(
    train: Train, uninterrupted: Whole, limit: str, said: str
) -> None:
    last = uninterrupted[0] / "last.ckpt"
    ended = train("trainer.max_epochs=9", limit, f"ckpt_path={last}")
    assert ended.code == 2
    assert f"ckpt_path={last} {said}" in ended.output
    assert not ended.directory.exists()


def test_a_short_run_tests_its_best_weights_and_writes_none(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = []
    load = Held.load_checkpoint
    monkeypatch.setattr(
        Held, "load_checkpoint", lambda self, path, **how: loaded.append(path) or load(self, path, **how)
    )
    monkeypatch.setattr("strobe.app.build.checkpoint.whole", lambda path: pytest.fail(f"it writes {path}"))
    ended = train("trainer.max_epochs=2", CHECKPOINTS, "test=true")
    assert ended.code == 0, ended.output
    assert [Path(path).name for path in loaded] == ["best.ckpt"]
    assert "test/accuracy" in ended.summary["metrics"]
    assert not (ended.directory / "checkpoints").exists()


def test_checkpoints_are_written_once_a_minute_as_they_were_saved(tmp_path: Path) -> None:
    own, others = tmp_path / "own" / "last.ckpt", [tmp_path / "users" / "last.ckpt", tmp_path / "own" / "epoch=0.ckpt"]
    held, weights = Held(own.parent), torch.zeros(3)
    for path in (own, own.with_name("best.ckpt"), *others):
        held.save_checkpoint({"weights": weights}, str(path))
    assert all(path.is_file() for path in others)
    assert not own.exists()
    held.remove_checkpoint(str(own.with_name("best.ckpt")))
    weights += 1
    held.write()
    assert torch.equal(torch.load(own)["weights"], torch.zeros(3))
    assert not own.with_name("best.ckpt").exists()
    held._written -= WRITE_EVERY
    held.save_checkpoint({"weights": weights}, str(own))
    assert torch.equal(held.load_checkpoint(own)["weights"], torch.ones(3))
    assert not held.held


def test_what_a_run_does_not_keep_is_not_written_at_its_end(tmp_path: Path) -> None:
    trainer: Any = SimpleNamespace(strategy=SimpleNamespace(checkpoint_io=Held(tmp_path)))
    for name in ("best.ckpt", "last.ckpt"):
        trainer.strategy.checkpoint_io.save_checkpoint({}, str(tmp_path / name))
    write_held(trainer, but=unkept(KEEP_BEST))
    assert [path.name for path in tmp_path.iterdir()] == ["best.ckpt"]


@pytest.mark.parametrize(
    ("overrides", "saved"),
    [
        ([], "auto"),
        (["checkpoint.every_n_steps=5"], "resume"),
        (["ckpt_path=last"], "resume"),
        (["hydra.job.num=3"], "none"),  # of a sweep
        (["hydra.job.num=3", "checkpoint.save=weights"], "weights"),
        (["trainer.enable_checkpointing=false", "checkpoint.save=resume"], "none"),
    ],
)
def test_what_is_saved(overrides: list[str], saved: str) -> None:
    assert wanted(composed(overrides)) == saved
    assert in_sweep() == ("hydra.job.num=3" in overrides)


def test_weights_alone_are_kept_and_cannot_be_resumed_from(train: Train) -> None:
    ended = train("trainer.max_epochs=2", CHECKPOINTS, "checkpoint.save=weights", "test=true")
    assert ended.code == 0, ended.output
    (best,) = (ended.directory / "checkpoints").iterdir()
    assert "optimizer_states" not in torch.load(best, weights_only=True)
    assert ended.summary["bytes"] == pytest.approx(size_of(ended.directory), abs=100)
    resumed = train(f"ckpt_path={best}", name="resumed")
    assert resumed.code == 2
    assert "holds weights only" in resumed.output
    assert "Traceback" not in resumed.output


def test_from_the_best_checkpoint(train: Train, uninterrupted: Whole) -> None:
    """It is saved before the epoch that it belongs to has ended."""
    resumed = train(*SETTINGS, f"ckpt_path={uninterrupted[0] / 'best.ckpt'}")
    assert resumed.code == 0, resumed.output
    assert_same(weights(resumed.directory), uninterrupted[1])
