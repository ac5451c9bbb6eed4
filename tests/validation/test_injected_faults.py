"""The bottlenecks that the grid injects: each does what the thing it slows down does, and no less slowly than told."""

import csv
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from strobe.records.step_table import read_table
from strobe.validation.injected_faults import (
    LockedClassifier,
    ManyTensorsClassifier,
    PacedStream,
    PythonAugmentation,
    SlowCallback,
    SlowLogger,
    SlowTransform,
    SmallClassifier,
)
from support.classifiers import OPTIONS
from support.composing import composed_data

FAULTS = "strobe.validation.injected_faults"


def seconds_of(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def test_a_slow_callback_waits_after_each_batch() -> None:
    assert seconds_of(SlowCallback(seconds=0.05).on_train_batch_end) >= 0.05


def test_a_slow_callback_waits_after_one_batch_in_so_many() -> None:
    slow = SlowCallback(seconds=0.05, every=3)
    assert [seconds_of(slow.on_train_batch_end) >= 0.05 for _ in range(6)] == [False, False, True] * 2


def test_a_slow_logger_waits_and_logs(tmp_path: Path) -> None:
    logger = SlowLogger(save_dir=tmp_path, name="", version="", seconds=0.05)
    assert seconds_of(lambda: logger.log_metrics({"loss": 2.5}, step=7)) >= 0.05
    logger.finalize("success")
    with (tmp_path / "metrics.csv").open() as file:
        assert list(csv.DictReader(file)) == [{"loss": "2.5", "step": "7"}]


def test_a_slow_disk_gives_the_same_pixels_later(sample_root: Path) -> None:
    common = ("data=sample", f"data.root={sample_root}", "data.tiles_per_class=10", "loader=tifffile")
    slow = composed_data(*common, "loader._target_=strobe.validation.injected_faults.SlowDisk", "+loader.seconds=0.05")
    quick = composed_data(*common)
    for data in (slow, quick):
        data.setup()
    assert seconds_of(lambda: slow.datasets["train"][0]) >= 0.05
    for (pixels, label), (same, also) in zip(
        (slow.datasets["train"][index] for index in (0, 5)),
        (quick.datasets["train"][index] for index in (0, 5)),
        strict=True,
    ):
        assert torch.equal(pixels, same)
        assert label == also


def test_transforms_wait_by_the_image_or_by_the_batch_and_work_on_a_copy() -> None:
    pixels = torch.randint(0, 256, (4, 3, 16, 16), dtype=torch.uint8)
    before = pixels.clone()
    common: dict[str, Any] = {"scale": "device", "batched": True}
    for kind, least in ((SlowTransform, 0.08), (PacedStream, 0.02)):
        slow = kind(seconds=0.02, **common)
        assert seconds_of(lambda slow=slow: slow.scaled(pixels, 255.0, 4)) >= least
    augmented = PythonAugmentation(rounds=2, **common).scaled(pixels, 255.0, 4)
    one = PythonAugmentation(rounds=2, **common).scaled(pixels[0], 255.0)
    assert (augmented.shape, augmented.dtype) == (pixels.shape, torch.uint8)
    assert torch.equal(augmented[0], one)
    assert not torch.equal(augmented, before)
    assert torch.equal(pixels, before)


def test_a_lock_that_a_thread_holds_delays_the_step_and_ends_with_training() -> None:
    model, before = LockedClassifier(seconds=0.05, **OPTIONS), set(threading.enumerate())
    model.on_train_start()
    while not model.lock.locked():
        time.sleep(0.001)
    assert seconds_of(lambda: model.lock.acquire() and model.lock.release()) > 0
    assert len(set(threading.enumerate()) - before) == 1  # another test's may have ended meanwhile
    model.on_train_end()
    while set(threading.enumerate()) - before:
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("model", "at_least", "below"),
    [
        (SmallClassifier(**OPTIONS), 1, 30_000),
        (SmallClassifier(kind=f"{FAULTS}.PooledNetwork", **OPTIONS), 1, 30_000),
        (SmallClassifier(kind=f"{FAULTS}.WideNetwork", **OPTIONS), 1 << 23, 9e6),
        (ManyTensorsClassifier(**OPTIONS), 1500, 30_000),
    ],
)
def test_the_networks_have_the_size_that_they_are_for(model: SmallClassifier, at_least: int, below: float) -> None:
    assert at_least <= sum(weights.numel() for weights in model.parameters()) < below
    images = torch.randn(5, 4, 16, 16)
    logits = model(images)
    assert logits.shape == (5, 3)
    logits.square().sum().backward()
    assert all(weights.grad is not None and weights.grad.any() for weights in model.network.parameters())
    assert {"classes", "fused", "optimizer"} <= model.hparams.keys()  # what a checkpoint keeps


def test_the_layout_reaches_the_small_network() -> None:
    weights = SmallClassifier(**OPTIONS | {"channels_last": True}).network.conv2.weight
    assert weights.is_contiguous(memory_format=torch.channels_last)
    assert not weights.is_contiguous()


def test_a_run_takes_them_by_its_configuration(train: Any) -> None:
    ended = train(
        "model._target_=strobe.validation.injected_faults.SmallClassifier",
        "+model.kind=strobe.validation.injected_faults.WideNetwork",
        "loader=tifffile",
        "loader._target_=strobe.validation.injected_faults.SlowDisk",
        "+loader.seconds=0.02",
        "logger=csv",
        "logger._target_=strobe.validation.injected_faults.SlowLogger",
        "+logger.seconds=0.01",
        "+callbacks.slow._target_=strobe.validation.injected_faults.SlowCallback",
        "+callbacks.slow.seconds=0.03",
        "model.fused=true",
    )
    assert ended.summary["status"] == "completed"
    rows = read_table(ended.directory / "steps.csv").rows()
    assert len(rows) == 4
    assert all(row["data_wait"] >= 4 * 0.02 and row["callbacks"] >= 0.03 for row in rows)
