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

from strobe.app.data.synthetic import generate
from strobe.app.model.classifier import ImageClassifier
from strobe.errors import DataError
from support.files import tree
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
    """What one test leaves to the next ones."""
    return {}


@pytest.fixture
def expected(train: Train, kept: dict[str, Tensor]) -> dict[str, Tensor]:
    """What a run with engine=torch and without workers ends with."""
    if not kept:
        plain = train(*COMMON, "engine=torch", "engine.num_workers=0", "trainer.limit_train_batches=3", name="plain")
        assert plain.code == 0, plain.output
        kept.update(weights(plain.directory))
    return kept


@pytest.mark.parametrize("name", [name for name in ENGINES if name != "torch"])
def test_an_engine_trains_as_torch_does_and_resumes(
    name: str, train: Train, expected: dict[str, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = (*COMMON, f"engine={name}", "trainer.limit_train_batches=3")
    whole = train(*options, "trainer.num_sanity_val_steps=1", name="whole")
    assert whole.code == 0, whole.output
    assert whole.summary["num_workers"] == (0 if name == "resident" else 2)  # beside training
    original = ImageClassifier.training_step

    def breaking_off(self: ImageClassifier, batch: Any, batch_idx: int) -> Tensor:
        if self.trainer.global_step == 4:  # within the second epoch
            raise DataError("the end")
        return original(self, batch, batch_idx)

    with monkeypatch.context() as patch:
        patch.setattr(ImageClassifier, "training_step", breaking_off)
        half = train(*options, name="half")
    assert half.code == 1
    gc.collect()
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("loader")] == []
    rest = train(*options, f"ckpt_path={half.directory / 'checkpoints' / 'last.ckpt'}", name="rest")
    assert rest.code == 0, rest.output
    unbroken, resumed = weights(whole.directory), weights(rest.directory)
    assert [key for key in expected if not torch.equal(expected[key], unbroken[key])] == []
    assert [key for key in expected if not torch.equal(expected[key], resumed[key])] == []


@pytest.mark.parametrize("name", ["spdl", "resident"])
def test_overfitting_sees_the_same_batches(name: str, train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[Tensor, Tensor]] = []
    original = ImageClassifier.training_step

    def noting(self: ImageClassifier, batch: Any, batch_idx: int) -> Tensor:
        seen.append((batch[0].clone(), batch[1].clone()))
        return original(self, batch, batch_idx)

    monkeypatch.setattr(ImageClassifier, "training_step", noting)
    options = ("trainer.overfit_batches=2", "trainer.limit_train_batches=null", "trainer.limit_val_batches=null")
    ended = train(f"engine={name}", *options, "trainer.max_epochs=2", "data.augment=false", "test=false")
    assert ended.code == 0, ended.output
    assert len(seen) == 4
    for (pixels, labels), (again, labels_again) in zip(seen[:2], seen[2:], strict=True):
        assert torch.equal(labels, labels_again)
        assert torch.equal(pixels, again)
    assert not torch.equal(seen[0][0], seen[1][0])


def test_a_broken_file_is_named_with_threads(train: Train, tmp_path: Path) -> None:
    root = tmp_path / "data"
    generate(root / "tiles" / "seed42-10", tiles_per_class=10, seed=42)
    for path in root.rglob("*.tif"):
        if path.name.endswith(("3.tif", "4.tif", "5.tif", "6.tif")):
            path.write_bytes(b"nothing")
    assert tree(root)
    ended = train("data=sample", f"data.root={root}", "data.tiles_per_class=10", "engine=spdl", "engine.num_workers=2")
    assert ended.code == 1
    assert "cannot be read as a tile" in ended.output
    assert "Traceback" not in ended.output
    assert ended.summary["error"]["type"] == "DataError"


def test_order_given_up_does_not_fit_determinism(train: Train) -> None:
    ended = train("engine=spdl", "engine.ordered=false", "trainer.deterministic=true")
    assert ended.code == 1
    assert "engine.ordered=false does not fit trainer.deterministic=true" in ended.output


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
