"""Ceilings of objects that are handed in: what is measured, and that nothing is left behind however it ends."""

import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning import LightningDataModule
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, default_collate

from strobe.callbacks.spans import span
from strobe.errors import DataError
from strobe.measure.timing import Meter, Rate
from strobe.measure.untouched import untouched
from strobe.probe.asked import MODEL, Asked
from strobe.probe.loader import MOST_KINDS, Kind, loading_parts, measure_loader, staying
from strobe.probe.model import ALONE, Again, Standing, end_threads, measure_model
from strobe.probe.trainer_sides import TrainerSides
from support.fitting import Model, trainer_with
from support.processes import wait_for

CPU = torch.device("cpu")
IMAGES = TensorDataset(torch.arange(40.0).view(10, 4), torch.arange(10))


def shared_memory(of: list[int]) -> list[Path]:
    """What these processes have left for others; torch names it after the process."""
    return [path for pid in of for path in Path("/dev/shm").glob(f"torch_{pid}_*")]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_is_drained_over_epochs(workers: int) -> None:
    """Three batches an epoch, the last one of two images; a whole one is kept, in memory of its own."""
    loader = DataLoader(IMAGES, 4, num_workers=workers, persistent_workers=workers > 0)
    found = measure_loader(loader, device=CPU, seconds=0.1)
    del loader
    assert 0 < found.rate.low <= found.rate.median <= found.rate.high
    assert found.rate.cpu_seconds is not None
    assert [len(part) for part in found.batch] == [4, 4]
    assert not any(part.is_shared() for part in found.batch)
    assert not multiprocessing.active_children()


class Images(TensorDataset):
    """Marks what it does, as the application's loaders do."""

    def __getitem__(self, index: int) -> Any:
        with span("read", 1):
            time.sleep(0.002)
            with span("decode", 1):
                time.sleep(0.02)
        return super().__getitem__(index)


class SleepingBatches:
    def __iter__(self) -> Iterator[list[int]]:
        time.sleep(0.05)
        yield [0, 1, 2, 3]


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[torch.Tensor]:
        yield from torch.zeros(3, 4)


def sleeping_collate(items: list[Any]) -> Any:
    time.sleep(0.3)
    return default_collate(items)


def test_the_parts_of_making_a_batch_are_told_apart_also_of_a_foreign_loader() -> None:
    loader = DataLoader(Images(*IMAGES.tensors), batch_sampler=SleepingBatches(), collate_fn=sleeping_collate)
    found = loading_parts(loader, seconds=0.01)
    assert found is not None
    assert found["batches"] == 1
    assert found["cores"] < 0.5  # asleep
    parts = found["parts"]
    assert 4 * 0.02 < parts["decode"] < parts["collate"]  # far apart: a busy machine may add to each
    assert 4 * 0.002 < parts["read"] < parts["decode"]
    assert parts["sampler"] >= 0.05
    assert sum(parts.values()) <= found["seconds"]  # each moment is in one part at most; a busy machine has others
    assert loading_parts([IMAGES[:]], seconds=0.01) is None  # no data set of items
    streamed = loading_parts(DataLoader(Stream(), batch_size=2, num_workers=2), seconds=60)
    assert streamed is not None
    assert streamed["batches"] == 2  # its three samples, in this process
    assert span("read") is span("decode")  # nobody records any more


def test_the_batch_that_is_kept_is_a_whole_one() -> None:
    sizes = [2, 4, 4]  # the first was the end of an epoch
    batches = [(torch.zeros(size, 3), torch.zeros(size)) for size in sizes]
    assert len(measure_loader(batches, device=CPU, seconds=0.05).batch[1]) == 4
    with pytest.raises(ValueError, match="no batch"):
        measure_loader([], device=CPU, seconds=0.05)


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("error", [DataError("tile.tif cannot be read"), KeyboardInterrupt()], ids=["data", "ctrl-c"])
def test_an_error_leaves_no_worker(monkeypatch: pytest.MonkeyPatch, error: BaseException, persistent: bool) -> None:
    """The error comes while workers run, from the loader or from the person."""
    workers: list[int] = []

    def failing(self: Meter, images: int) -> bool:
        workers.extend(child.pid or 0 for child in multiprocessing.active_children())
        raise error

    monkeypatch.setattr(Meter, "add", failing)
    with pytest.raises(type(error)) as caught:
        measure_loader(DataLoader(IMAGES, 4, num_workers=2, persistent_workers=persistent), device=CPU, seconds=0.3)
    assert caught.value is error  # and its traceback is held here, with all its frames
    assert len(workers) == 2
    assert not multiprocessing.active_children()
    assert not shared_memory([*workers, os.getpid()])


class Doubling(LightningDataModule):
    """Doubles what comes to the device, in place."""

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        batch[0].mul_(2)
        return batch


class Seeing(Model):
    """Notes what it trains on."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[torch.Tensor] = []

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        self.seen.append(batch[0].clone())
        return super().training_step(batch)


def test_a_model_is_trained_on_one_batch_made_ready_by_the_datas_hooks() -> None:
    pixels = torch.rand(8, 4)
    batch, before = (pixels, torch.zeros(8)), pixels.clone()
    model, data = Seeing(), Doubling()
    rate = measure_model(
        lambda: model, lambda: trainer_with(**ALONE | {"accumulate_grad_batches": 2}), batch, data=data, seconds=0.1
    )
    assert 0 < rate.low <= rate.median <= rate.high
    assert len(model.seen) > 4
    assert all(torch.equal(seen, 2 * before) for seen in model.seen)
    assert torch.equal(pixels, before)
    assert data.trainer is None


def test_ctrl_c_while_training_is_heard_also_the_next_time() -> None:
    class Interrupted(Model):
        def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
            signal.raise_signal(signal.SIGINT)
            raise AssertionError("not reached")

    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        measure_model(
            Interrupted,
            lambda: trainer_with(**ALONE),
            (torch.rand(8, 4), torch.zeros(8)),
            data=LightningDataModule(),
            seconds=0.1,
        )
    assert signal.getsignal(signal.SIGINT) is handler


@pytest.mark.parametrize("persistent", [True, False])
def test_core_seconds_of_workers_count_also_when_they_have_gone(persistent: bool) -> None:
    """Each image costs at least 5 ms of some worker, also of those that end with their epoch."""
    loader = DataLoader(Busy(*IMAGES.tensors), 1, num_workers=2, persistent_workers=persistent)
    cpu = measure_loader(loader, device=CPU, seconds=0.4).rate.cpu_seconds
    assert cpu is not None
    assert cpu >= 0.7 * BUSY


BUSY = 0.005


class Busy(TensorDataset):
    """Computes."""

    def __getitem__(self, index: int) -> Any:
        until = time.thread_time() + BUSY
        while time.thread_time() < until:
            pass
        return super().__getitem__(index)


def test_a_batch_of_each_shape_is_kept_and_replayed_as_often_as_it_came() -> None:
    batches = [torch.zeros(2 if number % 4 else 3, 4) for number in range(8)]
    found = measure_loader(batches, device=CPU, seconds=0.05)
    assert [len(kind.batch) for kind in found.kinds] == [3, 2]
    assert found.kinds[1].count == pytest.approx(3 * found.kinds[0].count, abs=3)
    kinds = [Kind(torch.zeros(3, 4), 10), Kind(torch.zeros(2, 4), 30)]
    replayed = islice(Again(kinds, CPU, Meter(1.0, warmup=1)), 8)
    assert sorted(len(batch) for batch in replayed) == [2] * 6 + [3] * 2
    many = [torch.zeros(size, 1) for size in range(1, 100)]
    assert len(measure_loader(many, device=CPU, seconds=0.05).kinds) == MOST_KINDS


class Digits(Model):
    """Notes how float32 is multiplied."""

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        seen[self].add(torch.get_float32_matmul_precision())
        return super().training_step(batch)


seen: dict[Model, set[str]] = {}


def test_models_that_take_turns_each_have_the_kernels_that_they_were_made_with() -> None:
    models = {digits: Digits() for digits in ("highest", "high")}
    batch = torch.rand(8, 4), torch.zeros(8)

    def standing(digits: str) -> Standing:
        seen[models[digits]] = set()
        torch.set_float32_matmul_precision(digits)
        return Standing(
            lambda: models[digits], lambda: trainer_with(**ALONE), batch, data=LightningDataModule()
        ).start()

    with untouched():
        sides = [standing(digits) for digits in models]
        for side in (*sides, *sides):
            side.turn(0.0)
        for side in sides:
            side.close()
    assert [seen.pop(model) for model in models.values()] == [{digits} for digits in models]
    assert torch.get_float32_matmul_precision() == "highest"


def test_models_that_take_turns_leave_each_other_no_threads_that_wait() -> None:
    """While there are more of them than cores, OpenMP lets each sleep as soon as it has nothing to do."""

    def threads() -> int:
        return len(list(Path("/proc/self/task").iterdir()))

    batch = torch.rand(100_000, 4), torch.zeros(8)
    with untouched(2):
        end_threads()
        before = threads()
        batch[0].sin()
        assert wait_for(lambda: threads() == before + 1)
        side = Standing(Model, lambda: trainer_with(**ALONE), batch, data=LightningDataModule()).start()
        assert wait_for(lambda: threads() == before + 1)  # that of the model alone
        batch[0].sin()
        side.turn(0.0)
        assert wait_for(lambda: threads() == before + 1)
        side.close()


@pytest.mark.parametrize(("device", "together"), [("cpu", 1), ("meta", 8)])
def test_copies_for_a_device_that_works_later_are_made_before_the_steps_that_use_them(
    device: str, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two readings of the clock, which wait for the device; what they took is left out."""
    seconds, excluded = iter(range(1000)), list[float]()
    monkeypatch.setattr("strobe.probe.model.clock", lambda _: lambda: next(seconds))
    meter = SimpleNamespace(exclude=excluded.append)
    again = iter(Again([Kind(torch.ones(2))], torch.device(device), meter))
    batches = [next(again) for _ in range(16)]
    assert len({id(batch) for batch in batches}) == 16
    assert excluded == [1] * (16 // together)
    assert next(seconds) == 2 * 16 // together


def test_a_loader_that_can_be_read_only_once_is_told() -> None:
    with pytest.raises(ValueError, match="no batch in a second epoch"):
        measure_loader(iter([torch.zeros(2, 4)] * 3), device=CPU, seconds=0.5)


class Makers(Dataset[int]):
    """The process that makes each item."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        return os.getpid()


def test_workers_stay_between_epochs_while_their_loader_is_measured() -> None:
    loader = DataLoader(Makers(), num_workers=1)
    with staying([loader]):
        measured = {int(batch) for _ in range(2) for batch in loader}
    trained = [{int(batch) for batch in loader} for _ in range(2)]
    assert [len(each) for each in (measured, *trained)] == [1, 1, 1]
    assert len({*measured, *trained[0], *trained[1]}) == 3
    assert not multiprocessing.active_children()


@pytest.mark.parametrize(("second", "kept"), [(120.0, 120.0), (50.0, 60.0), (7.0, None)])
def test_a_model_that_is_slower_alone_than_in_training_is_measured_once_more(second: float, kept: float) -> None:
    summary = {"images_per_second": {"median": 100.0, "low": 90.0, "high": 110.0}}
    trainer = SimpleNamespace(accumulate_grad_batches=1, strategy=SimpleNamespace(root_device=CPU))
    sides = TrainerSides(Asked(("train.py",), "", "", 1.0, (MODEL,)), lambda *_: None)
    sides.count(torch.ones(2), None)
    sides._again = Again([Kind(torch.ones(2))], CPU, before := Meter(1.0, warmup=1))
    assert not sides.end_replay(trainer, Rate(60.0 if kept else 6.0, 5.0, 70.0 if kept else 8.0, None), summary)
    assert sides.meter is sides._again.meter is not before
    assert sides.end_replay(trainer, Rate(second, 0.9 * second, 1.1 * second, None), summary)
    assert sides.ceilings["model"] == kept
