"""Measuring changes nothing, and leaves nothing behind however it ends."""

import multiprocessing
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning import LightningModule

from strobe.app.model.classifier import ImageClassifier
from strobe.app.run.ceilings import Ceilings
from strobe.errors import DataError
from strobe.measure.untouched import untouched
from strobe.probe.loader import measure_loader
from support.ceilings_parts import composed, order, random_states, slow


def shared_memory() -> set[str]:
    return {path.name for path in Path("/dev/shm").glob("*")}


@pytest.mark.parametrize("workers", [0, 2])
def test_measuring_changes_nothing(sample_root: Path, workers: int) -> None:
    with composed(sample_root, f"engine.num_workers={workers}") as (cfg, data, overrides):
        attributes = dict(vars(data))
        expected = [batch[1].tolist() for batch in data.batches("train", 4, shuffle=True)]
        before, orders, shared = random_states(), order(data), shared_memory()
        ceilings = Ceilings(cfg, data, overrides)
        ceilings.measure()
        assert ceilings.alternative("model", ["data.batch_size=8"]) is not None
        assert ceilings.alternative("loader", ["loader=rasterio", "threads=2"]) is not None
        assert random_states() == before
        assert order(data) == orders
        assert vars(data) == attributes
        assert [batch[1].tolist() for batch in data.batches("train", 4, shuffle=True)] == expected
        assert shared_memory() <= shared
    assert not multiprocessing.active_children()


def test_flags_and_threads_are_put_back() -> None:
    before = random_states()
    with pytest.raises(ZeroDivisionError), untouched(threads=3):  # noqa: PT012
        assert torch.get_num_threads() == 3
        torch.use_deterministic_algorithms(mode=True)
        torch.backends.cudnn.benchmark = True
        torch.rand(3)
        raise ZeroDivisionError
    assert random_states() == before
    assert not torch.are_deterministic_algorithms_enabled()
    assert not torch.backends.cudnn.benchmark


@pytest.mark.parametrize("persistent", ["true", "false"])
@pytest.mark.parametrize("error", [DataError("tile.tif cannot be read"), KeyboardInterrupt()], ids=["data", "ctrl-c"])
def test_nothing_is_left_behind_by_an_error(
    sample_root: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, persistent: str
) -> None:
    """The error comes while workers run, from the loader or from the person."""
    from strobe.measure.timing import Meter

    shared = shared_memory()

    def failing(self: Meter, images: int) -> bool:
        assert len(multiprocessing.active_children()) == 2
        raise error

    monkeypatch.setattr(Meter, "add", failing)
    given = "engine.num_workers=2", f"engine.persistent_workers={persistent}"
    with composed(sample_root, *given) as (_, data, _overrides), pytest.raises(type(error)) as caught:
        measure_loader(data, shuffle=True, seconds=0.3)
    assert caught.value is error  # and its traceback is held here, with all its frames
    assert not multiprocessing.active_children()
    assert shared_memory() <= shared


def test_ctrl_c_while_waiting_for_a_batch(sample_root: Path) -> None:
    with composed(sample_root, "engine.num_workers=1", "ceilings_seconds=60") as (cfg, data, overrides):
        slow(data, 0.2)
        timer = threading.Timer(2.5, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            Ceilings(cfg, data, overrides).measure()
        timer.join()
    assert not multiprocessing.active_children()


def test_ctrl_c_while_training(sample_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: LightningModule, batch: Any, batch_idx: int) -> torch.Tensor:
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("not reached")

    handler = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(ImageClassifier, "training_step", interrupted)
    before = random_states()
    with composed(sample_root) as (cfg, data, overrides), pytest.raises(KeyboardInterrupt):
        Ceilings(cfg, data, overrides).measure()
    assert signal.getsignal(signal.SIGINT) is handler
    assert random_states() == before
