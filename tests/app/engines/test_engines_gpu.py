"""Engines whose batches go to a GPU: pinned on their way, or resident there; pixels and order as on the CPU."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from strobe.app.engines.base import BatchLoader
from strobe.app.engines.resident import peak
from strobe.errors import ConfigError
from support.choices import make
from support.pipeline_parts import BESIDE, ENGINES, batches, dataset, loader
from support.refusals import refusal

pytestmark = pytest.mark.gpu
FORMS = pytest.mark.parametrize(("form", "name"), [("tiles", "tifffile"), ("tiles", "packed"), ("array", "memory")])


def on_gpu(engine: str, form: str, name: str, folder: Path, workers: int = 0) -> BatchLoader:
    made = make(ENGINES[engine], num_workers=workers)
    found: BatchLoader = made.loader(dataset(form, name, folder), batches(), seed=1, device=torch.device("cuda", 0))
    return found


def expected(form: str, name: str, folder: Path) -> list[tuple[Tensor, Tensor]]:
    plain = loader("torch", dataset(form, name, folder), batches(), 0)
    return [(pixels.clone(), labels.clone()) for pixels, labels in plain]


@FORMS
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("engine", BESIDE)
def test_batches_are_pinned_and_as_on_the_cpu(engine: str, workers: int, form: str, name: str, tmp_path: Path) -> None:
    given = list(on_gpu(engine, form, name, tmp_path, workers))
    assert all(pixels.is_pinned() and labels.is_pinned() for pixels, labels in given)
    for (pixels, labels), (same, classes) in zip(given, expected(form, name, tmp_path), strict=True):
        assert torch.equal(pixels.float(), same.float())
        assert torch.equal(labels, classes)


@FORMS
@pytest.mark.parametrize("engine", BESIDE)
def test_a_transfer_under_way_is_not_overwritten(engine: str, form: str, name: str, tmp_path: Path) -> None:
    batch_loader = on_gpu(engine, form, name, tmp_path)
    torch.cuda._sleep(100_000_000)  # clock cycles, so that all transfers wait while batches are made
    sent = [pixels.to("cuda", non_blocking=True) for pixels, _ in batch_loader]
    for pixels, (same, _) in zip(sent, expected(form, name, tmp_path), strict=True):
        assert torch.equal(pixels.float().cpu(), same.float())


@FORMS
def test_a_resident_split_lies_on_the_gpu(form: str, name: str, tmp_path: Path) -> None:
    given = list(on_gpu("resident", form, name, tmp_path))
    assert all(pixels.is_cuda and labels.is_cuda for pixels, labels in given)
    for (pixels, labels), (same, classes) in zip(given, expected(form, name, tmp_path), strict=True):
        assert torch.equal(pixels.float().cpu(), same.float())
        assert torch.equal(labels.cpu(), classes)


def test_a_split_that_does_not_fit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda *_: (0, 80 << 30))
    for kept in ("memory_reserved", "memory_allocated"):  # what an earlier test left would leave room between them
        monkeypatch.setattr(torch.cuda, kept, lambda *_: 0)
    text = refusal(lambda: list(on_gpu("resident", "array", "memory", tmp_path)), ConfigError)
    assert text.startswith("engine=resident does not fit")
    assert "are free on cuda:0" in text


def test_the_most_that_work_takes_is_told_without_what_lies_there() -> None:
    kept = torch.ones(1 << 20, device="cuda")

    def work() -> None:
        kept.double().exp()

    taken = peak(work, kept.device)
    assert 2 * 8 * kept.numel() <= taken < 3 * 8 * kept.numel()
