"""The mistakes that the grid injects: each gives what code without it gives, and is slow in the way that it says."""

import bz2
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import Callback

from strobe.app.loaders.base import LoadedData
from strobe.app.loaders.memory import MemoryLoader
from strobe.app.loaders.sources import ArraySource
from strobe.validation import injected_mistakes as mistakes
from strobe.validation.injected_faults import SmallClassifier
from support.classifiers import OPTIONS
from support.composing import composed_data

PHOTOS = torch.randint(0, 256, (12, 3, 16, 16), dtype=torch.uint8)
SOURCE = ArraySource(PHOTOS, torch.arange(12) % 3, torch.tensor([1, 5, 2, 7, 9, 11]))
BATCH = (torch.randn(8, 4, 16, 16), torch.arange(8) % 3)


def dataset_of(kind: type[MemoryLoader]) -> Any:
    return kind(scale="device", batched=True).dataset(SOURCE)


def model_of(kind: Any) -> Any:
    """One whose step can be taken without a trainer."""
    model = kind(**OPTIONS)
    model.log = lambda *_, **__: None
    return model


def batch_of(data: LoadedData, indices: list[int]) -> Any:
    together = getattr(data, "__getitems__", None)
    return data.collate(together(indices) if together else [data[index] for index in indices])


@pytest.mark.filterwarnings("ignore:Creating a tensor from a list:UserWarning")  # which is the mistake
@pytest.mark.parametrize("kind", [mistakes.TextPhotos, mistakes.ListedPhotos, mistakes.ShardedPhotos])
def test_photos_are_the_same_however_slowly_they_are_made(kind: type[MemoryLoader]) -> None:
    for indices in ([0, 3, 4], [5]):
        (pixels, labels), (same, also) = (batch_of(dataset_of(one), indices) for one in (kind, MemoryLoader))
        assert (pixels.dtype, labels.dtype) == (torch.uint8, torch.int64)
        assert torch.equal(pixels, same)
        assert torch.equal(labels, also)


def test_a_shard_is_unpacked_when_its_predecessor_is_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    unpacked: list[bytes] = []

    def decompress(packed: bytes) -> bytes:
        unpacked.append(packed)
        return bz2.BZ2Decompressor().decompress(packed)

    data = mistakes.ShardedData(MemoryLoader(scale="device", batched=True), SOURCE, mistakes.shard(768, images=6))
    monkeypatch.setattr(bz2, "decompress", decompress)
    counts = [(batch_of(data, [0, 1, 2]), len(unpacked))[1] for _ in range(5)]
    assert counts == [1, 1, 2, 2, 3]


def test_tiles_of_an_archive_are_the_files_and_enlarged_ones_have_four_times_the_pixels(
    sample_root: Path, tmp_path: Path
) -> None:
    root = shutil.copytree(sample_root, tmp_path / "data")  # in which the archive is written
    common = ("data=sample", f"data.root={root}", "data.tiles_per_class=10", "loader=tifffile")
    plain, zipped, enlarged = (
        composed_data(*common, *more)
        for more in (
            (),
            ("loader._target_=strobe.validation.injected_mistakes.ZippedTiles",),
            ("loader._target_=strobe.validation.injected_mistakes.EnlargedTiles",),
        )
    )
    for data in (plain, zipped, enlarged):
        data.setup()
    pixels, same, larger = (data.datasets["train"][3][0] for data in (plain, zipped, enlarged))
    assert torch.equal(pixels, same)
    assert larger.shape == (3, 128, 128)
    assert torch.equal(pixels, larger[:, ::2, ::2])


def test_adam_by_hand_is_adam() -> None:
    ours, theirs = ([torch.ones(3, 2, requires_grad=True)] for _ in range(2))
    optimizers = mistakes.HandWrittenAdam(ours, lr=0.01), torch.optim.Adam(theirs, lr=0.01, weight_decay=1e-4)
    for step in range(4):
        for weights, optimizer in zip((ours, theirs), optimizers, strict=True):
            weights[0].grad = torch.full((3, 2), float(step + 1))
            optimizer.step()
    torch.testing.assert_close(ours[0], theirs[0])


def test_a_network_cell_by_cell_learns() -> None:
    model = SmallClassifier(kind="strobe.validation.injected_mistakes.CellByCellNetwork", **OPTIONS)
    logits = model(BATCH[0])
    assert logits.shape == (8, 3)
    logits.square().sum().backward()
    assert all(weights.grad is not None for weights in (*model.network.cell.parameters(), model.network.conv1.weight))


def test_each_step_matches_its_images_and_a_bank_grows_with_each() -> None:
    matching, bank = model_of(mistakes.MatchingClassifier), model_of(mistakes.BankClassifier)
    for model in (matching, bank, bank):
        assert model.training_step(BATCH, 0).requires_grad
    assert [sorted(matched) for matched in matching.matched] == [list(range(64))] * 8
    assert bank.bank.shape == (16, 64)
    assert bank.hardest.shape == (8,)


def test_the_images_of_an_epoch_are_clustered_at_its_end() -> None:
    model = mistakes.ClusteringClassifier(**OPTIONS)
    model.on_train_batch_end(None, BATCH, 0)
    model.on_train_epoch_end()
    assert sorted(model.labels.tolist()) == list(range(8))  # each image began as a cluster's centre


def test_a_simulator_answers_each_step_and_is_started_once() -> None:
    model = model_of(mistakes.SimulatorClassifier)
    model.seconds = 0.0
    try:
        model.training_step(BATCH, 0)
        model.training_step(BATCH, 1)
        assert model.reward == 1
        assert mistakes.simulator.cache_info().currsize == 1
    finally:
        with mistakes.simulator(0.0) as program:
            program.kill()
        mistakes.simulator.cache_clear()


def test_double_weights_compute_in_double_and_one_thread_is_set() -> None:
    threads = torch.get_num_threads()
    try:
        assert mistakes.DoubleClassifier(**OPTIONS)(BATCH[0]).dtype == torch.float64
        mistakes.OneThreadClassifier(**OPTIONS).setup("fit")
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("kind", [mistakes.PlotThread, mistakes.MonitorThread])
def test_a_thread_beside_training_ends_with_it(kind: type[Callback]) -> None:
    before, thread = set(threading.enumerate()), kind()
    thread.on_train_start(None, None)  # type: ignore[arg-type]
    assert len(set(threading.enumerate()) - before) == 1  # another test's may have ended meanwhile
    thread.on_train_end(None, None)  # type: ignore[arg-type]
    assert not set(threading.enumerate()) - before


def test_a_run_logs_what_it_is_told_to(train: Any) -> None:
    """In one run, which all hooks that need a trainer share."""
    ended = train(
        "model._target_=support.classifiers.AllHabits",
        "logger=csv",
        "trainer.log_every_n_steps=1",
        "+callbacks.added._target_=strobe.validation.injected_mistakes.SpectralNorms",
        "+callbacks.added.every=2",
    )
    assert ended.summary["status"] == "completed"
    logged = next(ended.directory.rglob("metrics.csv")).read_text().partition("\n")[0].split(",")
    assert {"loss/0", "loss/3", "norm/weight/network.conv1.weight", "mean/gradient/network.head.bias"} <= set(logged)
