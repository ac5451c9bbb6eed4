"""Each engine in the application: the same training, resumable, and one sentence when it cannot be."""

import gc
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from strobe.errors import DataError
from support.interruptions import before_each_step, raising
from support.pipeline_parts import ENGINES
from support.runs import CHECKPOINTS

Train = Callable[..., Any]
COMMON = ("loader=tifffile", CHECKPOINTS, "trainer.max_epochs=2", "checkpoint.every_n_steps=1", "engine.num_workers=2")


def weights(directory: Path) -> dict[str, Tensor]:
    """What a run ended with."""
    state: dict[str, Tensor] = torch.load(directory / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
    return state


@pytest.fixture(scope="module")
def kept() -> dict[str, Tensor]:
    """What a run with engine=torch and without workers ends with, once a test has made it."""
    return {}


@pytest.mark.parametrize("name", [name for name in ENGINES if name != "torch"])
def test_an_engine_trains_as_torch_does_and_resumes(
    name: str, train: Train, kept: dict[str, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not kept:
        plain = train(*COMMON, "engine=torch", "engine.num_workers=0", "trainer.limit_train_batches=3", name="plain")
        assert plain.code == 0, plain.output
        kept.update(weights(plain.directory))
    options = (*COMMON, f"engine={name}", "trainer.limit_train_batches=3")
    whole = train(*options, "trainer.num_sanity_val_steps=1", name="whole")
    assert whole.code == 0, whole.output
    assert whole.summary["num_workers"] == (0 if name == "resident" else 2)  # beside training
    end = DataError("the end")
    with monkeypatch.context() as patch:  # within the second epoch
        before_each_step(patch, lambda model, _: model.trainer.global_step == 4 and raising(end))
        half = train(*options, name="half")
    assert half.code == 1
    gc.collect()
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("loader")] == []
    rest = train(*options, f"ckpt_path={half.directory / 'checkpoints' / 'last.ckpt'}", name="rest")
    assert rest.code == 0, rest.output
    for ended in (whole, rest):
        found = weights(ended.directory)
        assert [key for key in kept if not torch.equal(kept[key], found[key])] == []


@pytest.mark.parametrize("name", ["spdl", "resident"])
def test_overfitting_sees_the_same_batches(name: str, train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[Tensor, Tensor]] = []
    before_each_step(monkeypatch, lambda _, batch: seen.append((batch[0].clone(), batch[1].clone())))
    options = ("trainer.overfit_batches=2", "trainer.limit_train_batches=null", "trainer.limit_val_batches=null")
    ended = train(f"engine={name}", *options, "trainer.max_epochs=2", "data.augment=false", "test=false")
    assert ended.code == 0, ended.output
    assert len(seen) == 4
    for (pixels, labels), (again, labels_again) in zip(seen[:2], seen[2:], strict=True):
        assert torch.equal(labels, labels_again)
        assert torch.equal(pixels, again)
    assert not torch.equal(seen[0][0], seen[1][0])


def test_without_spdl_one_sentence_says_what_to_install(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "spdl.pipeline", None)
    ended = train("engine=spdl")
    assert ended.code == 1
    assert "pip install '.[spdl]'" in ended.output
    assert "Traceback" not in ended.output


@pytest.mark.parametrize("name", ["spdl", pytest.param("resident", marks=pytest.mark.slow)])
def test_ceilings_are_measured(name: str, train: Train) -> None:
    ended = train(f"engine={name}", "engine.num_workers=1", "ceilings=true", "ceilings_seconds=0.1", "loader=tifffile")
    assert ended.code == 0, ended.output
    ceilings = ended.summary["ceilings"]
    assert ceilings["reason"] is None
    assert ceilings["loader"] > 0
    proposed = [override for entry in ceilings["alternatives"] for override in entry["overrides"]]
    if name == "resident":
        assert not [override for override in proposed if override.startswith("engine.num_workers")]
