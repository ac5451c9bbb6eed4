"""What is measured, and that it orders rightly."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from strobe.app.engines.sampler import EndlessBatches, EpochOrder, ShardedBatches
from strobe.app.loaders.base import TileData
from strobe.app.model.classifier import ImageClassifier
from strobe.app.run import ceilings as measuring
from strobe.app.run.ceilings import SEVERAL, Ceilings, blank, load_batch, repeat, train_on
from strobe.errors import DataError
from support.ceilings_parts import composed, slow

KEYS = {
    "loader", "model", "transfer", "intervals", "cpu_seconds", "shared_cores", "joint", "batch_bytes", "drift",
    "alternatives", "seconds", "reason",
}  # fmt: skip


@pytest.mark.parametrize("workers", [0, 2])
def test_the_record_is_complete(sample_root: Path, workers: int) -> None:
    with composed(sample_root, f"engine.num_workers={workers}") as (cfg, data, overrides):
        record = Ceilings(cfg, data, overrides).measure()
    assert set(record) == KEYS == set(blank())
    assert record["reason"] is None
    for side in ("loader", "model"):
        low, high = record["intervals"][side]
        assert 0 < low <= record[side] <= high
        assert record["cpu_seconds"][side] > 0 or workers  # a worker's ticks are coarse
    assert record["transfer"] is record["intervals"]["transfer"] is None
    assert record["batch_bytes"] == 4 * (3 * 64 * 64 * 2 + 8)
    assert record["seconds"] > 0
    assert record["alternatives"] == []
    json.dumps(record, allow_nan=False)


def test_in_one_process_loading_and_training_take_turns(sample_root: Path) -> None:
    with composed(sample_root) as (cfg, data, overrides):
        record = Ceilings(cfg, data, overrides).measure()
    assert record["shared_cores"] is True
    assert record["joint"] == pytest.approx(1 / (1 / record["loader"] + 1 / record["model"]))


@pytest.mark.parametrize(("cores", "shared"), [(1, True), (64, False)])
def test_workers_share_cores_when_there_are_too_few(
    sample_root: Path, monkeypatch: pytest.MonkeyPatch, cores: int, shared: bool
) -> None:
    monkeypatch.setattr(measuring, "usable_cores", lambda: cores)
    with composed(sample_root, "engine.num_workers=1", "ceilings_seconds=1") as (cfg, data, overrides):
        record = Ceilings(cfg, data, overrides).measure()
    assert record["shared_cores"] is shared
    assert (record["joint"] is not None) is shared
    if shared:
        spent = sum(record["cpu_seconds"].values())
        assert record["joint"] == pytest.approx(min(cores / spent, record["loader"], record["model"]))


def test_a_slow_loader_is_slower_than_the_model_and_the_reverse(sample_root: Path) -> None:
    with composed(sample_root) as (cfg, data, overrides):
        quick = Ceilings(cfg, data, overrides).measure()
        slow(data, 0.5)
        slowed = Ceilings(cfg, data, overrides).measure()
    assert slowed["loader"] < 2 < slowed["model"]  # half a second a tile
    assert slowed["loader"] < quick["loader"]
    assert slowed["cpu_seconds"]["loader"] < 0.4  # asleep


@pytest.mark.parametrize(
    "override",
    [
        "loader.scale=torch",  # floats, which are normalised in place
        "model.scheduler=one_cycle",
        "trainer.accumulate_grad_batches=2",
        "trainer.precision=bf16-mixed",
        "trainer.overfit_batches=2",
        "trainer.fast_dev_run=true",
        "+trainer.profiler=simple",
        "model.weights=/nowhere.pt",
        "trainer.max_epochs=0",
        "trainer.val_check_interval=0.5",
    ],
)
def test_each_kind_of_training_can_be_replayed(sample_root: Path, tmp_path: Path, override: str) -> None:
    with composed(sample_root, override) as (cfg, data, _):
        batch = load_batch(data)
        before = [tensor.clone() for tensor in batch]
        assert train_on(batch, cfg, data).median > 0
    assert all(torch.equal(now, then) for now, then in zip(batch, before, strict=True))


def test_the_step_is_the_runs_own(sample_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its model gets what a training step gets of that batch: normalised, augmented, on its device."""
    seen: list[torch.Tensor] = []
    step = ImageClassifier.training_step

    def watched(self: ImageClassifier, batch: Any, batch_idx: int) -> torch.Tensor:
        seen.append(batch[0].clone())
        return step(self, batch, batch_idx)

    monkeypatch.setattr(ImageClassifier, "training_step", watched)
    for augment in ("true", "false"):
        for scale in ("device", "numpy"):
            seen.clear()
            given = f"data.augment={augment}", f"loader.scale={scale}"
            with composed(sample_root, *given) as (cfg, data, _):
                train_on(load_batch(data), cfg, data)
                plain = data.normalise(load_batch(data)[0])
            assert len(seen) >= 3
            assert seen[0].dtype == torch.float32
            alike = [torch.allclose(images, plain) for images in seen]
            assert all(alike) if augment == "false" else not all(alike)
            assert torch.allclose(torch.stack([s.mean() for s in seen]), plain.mean(), atol=1e-4)


def test_what_fails_is_null_and_says_why(sample_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(self: ImageClassifier, batch: Any, batch_idx: int) -> torch.Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has ...")

    monkeypatch.setattr(ImageClassifier, "training_step", exhausted)
    with composed(sample_root) as (cfg, data, overrides):
        record = Ceilings(cfg, data, overrides).measure()
    assert record["loader"] > 0
    assert record["model"] is record["joint"] is None
    assert record["reason"] == "model: OutOfMemoryError: CUDA out of memory"


def test_a_loader_that_fails_leaves_the_model(sample_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetch = TileData.__getitem__
    calls: list[int] = []

    def damaged(self: TileData, index: int) -> Any:
        calls.append(index)
        if len(calls) == 6:
            raise DataError("tile_7.tif cannot be read; replace or remove the file")
        return fetch(self, index)

    monkeypatch.setattr(TileData, "__getitem__", damaged)
    with composed(sample_root) as (cfg, data, overrides):
        record = Ceilings(cfg, data, overrides).measure()
    assert record["loader"] is record["joint"] is None
    assert record["model"] > 0
    assert record["reason"] == "loader: tile_7.tif cannot be read; replace or remove the file"


def test_several_ranks_are_not_measured(sample_root: Path) -> None:
    with composed(sample_root, "trainer=ddp", "trainer.devices=2", "trainer.accelerator=cpu") as (cfg, data, given):
        ceilings = Ceilings(cfg, data, given)
        assert ceilings.measure() == blank(SEVERAL)
        assert ceilings.alternative("model", ["data.batch_size=8"]) is None


@pytest.mark.parametrize("world", [1, 2])
def test_the_endless_order_yields_each_index_once_an_epoch(world: int) -> None:
    size, epochs = 103, 3
    seen: dict[int, list[int]] = {epoch: [] for epoch in range(epochs)}
    for rank in range(world):
        endless = EndlessBatches(EpochOrder(size, shuffle=True, seed=1), 8, rank=rank, world=world)
        for indices in endless:
            if indices.epoch == epochs:
                break
            seen[indices.epoch] += indices
    assert all(sorted(indices) == list(range(size)) for indices in seen.values())
    assert seen[0] != seen[1] != seen[2]
    first = ShardedBatches(EpochOrder(size, shuffle=True, seed=1), 8, world=world)
    endless = iter(EndlessBatches(EpochOrder(size, shuffle=True, seed=1), 8, world=world))
    assert [list(indices) for indices in first] == [list(next(endless)) for _ in range(len(first))]


def test_an_empty_order_ends() -> None:
    assert list(EndlessBatches(EpochOrder(0, shuffle=True, seed=1), 8)) == []


@pytest.mark.parametrize("size", [1, 3, 4, 11])
def test_a_batch_is_repeated_to_a_size(size: int) -> None:
    pixels, labels = repeat((torch.arange(4.0).view(4, 1, 1, 1), torch.arange(4)), size)
    assert labels.tolist() == [index % 4 for index in range(size)]
    assert pixels.shape == (size, 1, 1, 1)
    assert pixels.flatten().tolist() == labels.tolist()


def test_a_measurement_leaves_a_copy_of_its_data_alone(sample_root: Path) -> None:
    with composed(sample_root) as (_, data, _overrides):
        again = data.loaded_by(copy.copy(data))
        assert again.found is data.found
        assert again.datasets["train"] is not data.datasets["train"]
        assert again.classes == data.classes
