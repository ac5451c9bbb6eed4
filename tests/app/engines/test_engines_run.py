"""Each engine in the application: the same training, resumable, and one sentence when it cannot be."""

import sys
import threading

import pytest
import torch
from torch import Tensor

from support.interruptions import before_each_step
from support.pipeline_parts import ENGINES
from support.runs import CHECKPOINTS, Train, broken_off, weights

COMMON = ("loader=tifffile", CHECKPOINTS, "trainer.max_epochs=2", "trainer.limit_train_batches=3")


@pytest.fixture(scope="module")
def kept() -> dict[str, Tensor]:
    """What a run with engine=torch and without workers ends with, once a test has made it."""
    return {}


@pytest.mark.parametrize("name", [name for name in ENGINES if name != "torch"])
def test_an_engine_trains_as_torch_does_though_it_was_broken_off(
    name: str, train: Train, kept: dict[str, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not kept:
        plain = train(*COMMON, "engine=torch", "engine.num_workers=0", "checkpoint.save=resume", name="plain")
        assert plain.code == 0, plain.output
        kept.update(weights(plain.directory))
    options = (*COMMON, f"engine={name}", "engine.num_workers=2", "checkpoint.every_n_steps=1")
    rest = broken_off(train, monkeypatch, *options, "trainer.num_sanity_val_steps=1")
    assert rest.summary["num_workers"] == (0 if name == "resident" else 2)  # beside training
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("loader")] == []
    found = weights(rest.directory)
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
