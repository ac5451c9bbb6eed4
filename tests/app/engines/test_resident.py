"""The whole split on the training device."""

import gc
import weakref
from pathlib import Path

import pytest
import torch

from strobe.app.engines.base import read_pinned
from strobe.errors import ConfigError
from strobe.measure.environment import free_memory
from support.choices import make
from support.pipeline_parts import CPU, ENGINES, SIZE, batches, dataset, loader
from support.refusals import refusal


def test_batches_changed_in_place_leave_the_split_alone(tmp_path: Path) -> None:
    for form, name in (("array", "memory"), ("tiles", "tifffile")):
        resident = loader("resident", dataset(form, name, tmp_path), batches(), 0)
        first = [pixels.clone() for pixels, _ in resident]
        for pixels, _ in resident:
            pixels.view(torch.uint8).zero_()
        for pixels, (again, _) in zip(first, resident, strict=True):
            assert torch.equal(pixels.float(), again.float())
        assert first[0].float().any()


def test_a_batch_that_is_kept_stays_as_it_is(tmp_path: Path) -> None:
    resident = loader("resident", dataset("array", "memory", tmp_path), batches(batch_size=1), 0)
    kept = [(pixels, pixels.clone()) for _ in range(5) for pixels, _ in resident]
    assert all(torch.equal(pixels, copy) for pixels, copy in kept)


def test_all_splits_must_fit_before_the_first_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make(ENGINES["resident"], num_workers=0)
    images = {split: dataset("array", "memory", tmp_path) for split in ("train", "val")}
    loaders = {split: engine.loader(images[split], batches(split=split), seed=0, device=CPU) for split in images}
    monkeypatch.setattr("strobe.app.engines.resident.free_memory", lambda device: 11_000)
    text = refusal(lambda: next(iter(loaders["train"])), ConfigError)
    images_take = "the images take 11.9 kB (train 2.1 kB, val 2.1 kB, batches 7.7 kB), and 11.0 kB are free on cpu"
    assert text.startswith(f"engine=resident does not fit: {images_take}; set engine=torch")
    monkeypatch.setattr("strobe.app.engines.resident.free_memory", lambda device: 12_000)
    list(loaders["train"])
    monkeypatch.setattr(
        "strobe.app.engines.resident.free_memory", lambda device: 10_000
    )  # what was loaded is not counted twice
    assert len(list(loaders["val"])) == len(loaders["val"])


def test_a_training_step_on_a_gpu_must_fit_beside_all_splits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a device that works later, here one without memory; a dry step is tried once, on a training batch."""
    engine, meta = make(ENGINES["resident"], num_workers=0), torch.device("meta")
    images = {split: dataset("array", "memory", tmp_path) for split in ("train", "val")}
    loaders = {split: engine.loader(images[split], batches(split=split), seed=0, device=meta) for split in images}
    seen: list[torch.Tensor] = []
    engine.dry_step = seen.append
    monkeypatch.setattr("strobe.app.engines.resident.free_memory", lambda device: 16_000)
    monkeypatch.setattr("strobe.app.engines.resident.peak", lambda work, device: work() or 5_000)
    text = refusal(lambda: next(iter(loaders["val"])), ConfigError)
    assert "the images take 16.9 kB (" in text
    assert "batches 7.7 kB, training on them 5.0 kB)" in text
    (tried,) = seen
    pixels, _ = next(iter(loader("resident", images["train"], batches(), 0)))
    assert tried.shape == pixels.shape
    assert tried.dtype == torch.float32


def test_a_data_set_that_is_gone_needs_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, images = make(ENGINES["resident"], num_workers=0), dataset("array", "memory", tmp_path)
    engine.loader(dataset("array", "memory", tmp_path), batches(split="val"), seed=0, device=CPU)
    gc.collect()
    monkeypatch.setattr("strobe.app.engines.resident.free_memory", lambda device: 10_000)
    assert list(engine.loader(images, batches(), seed=0, device=CPU))


def test_free_memory_is_the_least_of_what_is_told(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:  2000 kB\nMemAvailable:  1000 kB\n")
    assert free_memory(meminfo=meminfo, cgroup=tmp_path) == 1_024_000
    for name, text in {"max": "900000\n", "current": "500000\n", "stat": "anon 1\ninactive_file 100000\n"}.items():
        (tmp_path / f"memory.{name}").write_text(text)
    assert free_memory(meminfo=meminfo, cgroup=tmp_path) == 500_000
    (tmp_path / "memory.max").write_text("max\n")
    assert free_memory(meminfo=meminfo, cgroup=tmp_path) == 1_024_000
    assert free_memory(meminfo=tmp_path / "none", cgroup=tmp_path / "none") is None


def test_images_that_vary_are_refused(tmp_path: Path) -> None:
    images = dataset("photos", "pil", tmp_path)
    images.varies = True
    text = refusal(lambda: loader("resident", images, batches(), 0), ConfigError)
    assert "engine=resident keeps one crop of each photo, but data.framing=" in text


def test_memory_is_free_again_with_the_data_set(tmp_path: Path) -> None:
    engine, images = make(ENGINES["resident"]), dataset("array", "memory", tmp_path)
    resident = engine.loader(images, batches(), seed=0, device=CPU)
    list(resident)
    split = engine.split(images, batches(), CPU)
    assert engine.split(images, batches(), CPU) is split
    assert len(split.labels) == SIZE
    held = weakref.ref(split)
    del split, resident, images
    gc.collect()
    assert held() is None


def test_only_data_sets_of_whole_batches_read_into_pinned_memory(tmp_path: Path) -> None:
    images = dataset("array", "memory", tmp_path)
    read_pinned(images, True)
    assert images.buffers.pinned
    read_pinned(images, False)
    assert not images.buffers.pinned
    read_pinned(dataset("tiles", "tifffile", tmp_path), True)  # makes none: nothing happens
