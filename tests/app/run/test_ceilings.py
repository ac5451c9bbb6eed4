"""What is measured of a run's parts, and of what could replace them; that it orders rightly and changes nothing."""

import copy
import itertools
import json
import logging
import math
import multiprocessing
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra.core.hydra_config import HydraConfig

from strobe.app.data.sample import Sample
from strobe.app.loaders.base import Batch, TileData
from strobe.app.run import ceilings as measuring
from strobe.app.run.ceilings import APART, Ceilings, load_batch, repeat, train_on
from strobe.errors import DataError
from strobe.measure.timing import Rate
from strobe.probe import ceilings as shared
from strobe.probe.ceilings import blank
from support.ceilings_parts import composed, order, random_states, slow
from support.interruptions import before_each_step, raising

KEYS = {
    "loader", "model", "transfer", "intervals", "cpu_seconds", "shared_cores", "joint", "batch_bytes", "drift", "off",
    "alternatives", "seconds", "machine", "reason", "image_size", "loading", "between", "storage",
}  # fmt: skip


@pytest.mark.parametrize("workers", [0, 2])
def test_measuring_fills_the_record_and_changes_nothing(sample_root: Path, workers: int) -> None:
    with composed(sample_root, f"engine.num_workers={workers}") as (cfg, data, overrides):
        attributes = dict(vars(data))
        expected = [batch[1].tolist() for batch in data.batches("train", 4, shuffle=True)]
        before, orders = random_states(), order(data)
        ceilings = Ceilings(cfg, data, overrides)
        record = ceilings.measure()
        assert ceilings.alternative("model", ["data.batch_size=8"]) is not None
        assert ceilings.alternative("loader", ["loader=rasterio", "threads=2"]) is not None
        record["alternatives"].append(ceilings.alternative("model", ["data.batch_size=8", "threads=2"]))
        ceilings.close()
        assert random_states() == before
        assert order(data) == orders
        assert vars(data) == attributes
        assert [batch[1].tolist() for batch in data.batches("train", 4, shuffle=True)] == expected
    assert not multiprocessing.active_children()
    assert set(record) == KEYS == set(blank())
    assert record["reason"] is None
    for side in ("loader", "model"):
        low, high = record["intervals"][side]
        assert 0 < low <= record[side] <= high
        assert record["cpu_seconds"][side] > 0
    assert record["transfer"] is record["intervals"]["transfer"] is None
    assert record["batch_bytes"] == 4 * (3 * 64 * 64 * 2 + 8)
    assert record["seconds"] > 0
    assert [entry["overrides"][0] for entry in record["alternatives"]] == ["data.batch_size=8"]
    if workers == 0:  # loading and training take turns
        assert record["shared_cores"] is True
        assert record["joint"] == pytest.approx(1 / (1 / record["loader"] + 1 / record["model"]))
    json.dumps(record, allow_nan=False)


@pytest.mark.parametrize(("cores", "joint"), [(1, 1 / 0.015), (2, 100.0), (64, None)])
def test_workers_share_cores_when_there_are_too_few(
    sample_root: Path, monkeypatch: pytest.MonkeyPatch, cores: int, joint: float | None
) -> None:
    monkeypatch.setattr(shared, "usable_cores", lambda: cores)
    rates = {"loader": Rate(400.0, 390.0, 410.0, 0.005), "model": Rate(100.0, 99.0, 101.0, 0.01), "transfer": None}
    monkeypatch.setattr(Ceilings, "_attempt", lambda _, side, *parts: rates[side])
    with composed(sample_root, "engine.num_workers=2") as (cfg, data, overrides):
        record = Ceilings(cfg, data, overrides).measure()
    assert record["shared_cores"] is (joint is not None)
    assert record["joint"] == (joint and pytest.approx(joint))


def test_a_slow_loader_is_slower_than_the_model(sample_root: Path) -> None:
    with composed(sample_root) as (cfg, data, overrides):
        slow(data, 0.1)
        record = Ceilings(cfg, data, overrides).measure()
    assert record["loader"] < 10 < record["model"]  # a tenth of a second a tile
    assert record["cpu_seconds"]["loader"] < 0.08  # asleep


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
def test_each_kind_of_training_can_be_replayed(sample_root: Path, override: str) -> None:
    with composed(sample_root, override) as (cfg, data, _):
        batch = load_batch(data)
        before = [tensor.clone() for tensor in batch]
        assert train_on(batch, cfg, data).median > 0
    assert all(torch.equal(now, then) for now, then in zip(batch, before, strict=True))


@pytest.mark.parametrize("scale", ["device", "numpy"])
@pytest.mark.parametrize("augments", [True, False])
def test_the_step_is_the_runs_own(
    sample_root: Path, monkeypatch: pytest.MonkeyPatch, scale: str, augments: bool
) -> None:
    """Its model gets what a training step gets of that batch: normalised, augmented, on its device."""
    seen: list[torch.Tensor] = []
    before_each_step(monkeypatch, lambda _, batch: seen.append(batch[0].clone()))
    with composed(sample_root, f"data.augment={str(augments).lower()}", f"loader.scale={scale}") as (cfg, data, _):
        train_on(load_batch(data), cfg, data)
        plain = data.normalise(load_batch(data)[0])
    assert len(seen) >= 3
    assert seen[0].dtype == torch.float32
    alike = [torch.allclose(images, plain) for images in seen]
    assert not all(alike) if augments else all(alike)
    assert torch.allclose(torch.stack([s.mean() for s in seen]), plain.mean(), atol=1e-4)


def test_what_fails_is_null_and_says_why(sample_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has ...")
    before_each_step(monkeypatch, lambda *_: raising(error))
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


def test_ctrl_c_while_waiting_for_a_batch(sample_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = threading.Event()
    with composed(sample_root, "engine.num_workers=1", "ceilings_seconds=60") as (cfg, data, overrides):
        slow(data, 0.2)
        measure = Ceilings.loader
        monkeypatch.setattr(Ceilings, "loader", lambda *given: (waiting.set(), measure(*given))[1])

        def interrupt() -> None:
            waiting.wait(60)
            threading.Event().wait(1.0)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            Ceilings(cfg, data, overrides).measure()
        thread.join()
    assert not multiprocessing.active_children()


def test_a_rank_does_not_measure_without_the_others(sample_root: Path) -> None:
    with composed(sample_root, "trainer=ddp", "trainer.devices=2", "trainer.accelerator=cpu") as (cfg, data, given):
        ceilings = Ceilings(cfg, data, given)
        assert ceilings.measure() == blank(APART)
        assert ceilings.alternative("model", ["data.batch_size=8"]) is None


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


OWN = (4, 3, 64, 64)  # the batch of the run's own model, which takes turns
ALTERNATIVES = [
    ("loader", ["engine.num_workers=1"], (4,)),
    ("loader", ["loader=tifffile", "engine.num_workers=0"], (4,)),
    ("loader", ["loader=rasterio", "data.batch_size=8", "data.augment=false"], (8,)),
    ("loader", ["threads=3"], (4,)),
    ("model", ["data.batch_size=10"], (10, 3, 64, 64)),
    ("model", ["model.channels_last=true"], (4, 3, 64, 64)),
    ("model", ["loader.scale=numpy"], (4, 3, 64, 64)),
    ("model", ["trainer.precision=bf16-mixed"], (4, 3, 64, 64)),
    ("model", ["data.bands=all"], (4, 13, 64, 64)),
]


def test_alternatives_are_measured_as_they_would_train(sample_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On batches of their own, with their own threads; the tiles are searched for again only where others are read."""
    trained, threads, searches = set[tuple[int, ...]](), set[int](), list[int]()
    fetch, sources, before = TileData.__getitem__, Sample.sources, torch.get_num_threads()

    def fetched(self: TileData, index: int) -> Batch:
        threads.add(torch.get_num_threads())
        return fetch(self, index)

    def searched(self: Sample) -> object:
        searches.append(1)
        return sources(self)

    before_each_step(monkeypatch, lambda _, batch: trained.add(tuple(batch[0].shape)))
    with composed(sample_root) as (cfg, data, given):
        monkeypatch.setattr(TileData, "__getitem__", fetched)
        monkeypatch.setattr(Sample, "sources", searched)
        ceilings = Ceilings(cfg, data, given)
        for side, overrides, shape in ALTERNATIVES:
            for seen in (trained, threads, searches):
                seen.clear()
            measured = ceilings.alternative(side, overrides)
            assert measured is not None, overrides
            assert (measured["side"], measured["overrides"]) == (side, overrides)
            assert measured["images_per_step"] == shape[0]
            assert 0 < measured["interval"][0] <= measured["rate"] <= measured["interval"][1]
            assert trained == ({OWN, shape} if side == "model" else set())
            assert (3 in threads) == (overrides == ["threads=3"])
            assert len(searches) == (overrides == ["data.bands=all"])
            assert torch.get_num_threads() == before
        ceilings.close()
    assert ceilings.seconds > 0


def test_what_a_run_has_said_of_its_files_is_not_said_again(
    sample_root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sources, log = Sample.sources, logging.getLogger("strobe.app.data.image_folder")
    monkeypatch.setattr(Sample, "sources", lambda self: (log.warning("Files are small"), sources(self))[1])
    with composed(sample_root) as (cfg, data, given):
        assert Ceilings(cfg, data, given).alternative("loader", ["data.bands=all"]) is not None
    assert caplog.messages.count("Files are small") == 1


IMPOSSIBLE = {
    "loader=memory": "loader=memory does not read data=sample",
    "loader=nothing": "Could not find 'loader/nothing'",
    "data.batch_size=100000": "more than the training images",
    "data.batch_size=0": "out of range",
    "~callbacks.slow": "does not exist",
    "trainer.precision=5": "trainer.precision=5",
    "data.bands=[99]": "band 99",
}


def test_what_cannot_work_is_left_out_with_a_line(sample_root: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "strobe.app.run.ceilings")
    with composed(sample_root) as (cfg, data, given):
        before = HydraConfig.instance().cfg
        ceilings = Ceilings(cfg, data, given)
        for override, reason in IMPOSSIBLE.items():
            caplog.clear()
            assert ceilings.alternative("model", [override]) is None
            assert HydraConfig.instance().cfg is before
            assert HydraConfig.get().overrides.task == given
            (line,) = [record.getMessage() for record in caplog.records if "Not measured" in record.getMessage()]
            assert reason in line
            assert "\n" not in line
        ceilings.close()


def test_the_own_ceiling_is_measured_again(sample_root: Path) -> None:
    with composed(sample_root) as (cfg, data, overrides):
        ceilings = Ceilings(cfg, data, overrides)
        record = ceilings.measure()
        first, spent = copy.deepcopy(record), ceilings.seconds
        ceilings.again("loader", record)
    assert ceilings.seconds > spent
    assert record["loader"] != first["loader"]
    assert abs(math.log(record["loader"] / first["loader"])) == pytest.approx(record["drift"] / 2)
    (low, high), (first_low, first_high) = record["intervals"]["loader"], first["intervals"]["loader"]
    assert low <= first_low
    assert high >= first_high
    assert record["joint"] == pytest.approx(1 / (1 / record["loader"] + 1 / record["model"]))
    assert record["model"] == first["model"]


def test_an_alternative_takes_turns_with_the_runs_own_model(sample_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[tuple[int, int]] = []
    before_each_step(monkeypatch, lambda _, batch: steps.append((len(batch[0]), torch.get_num_threads())))
    threads, running = torch.get_num_threads(), set(threading.enumerate())
    with composed(sample_root) as (cfg, data, given):
        ceilings = Ceilings(cfg, data, given)
        record = ceilings.measure()
        steps.clear()
        entry = ceilings.alternative("model", ["data.batch_size=12", "threads=3"])
        assert entry is not None
        record["alternatives"].append(entry)
        first = record["model"]
        ceilings.settle(record)
        ceilings.close()
    assert set(steps) == {(4, threads), (12, 3)}  # each with its own threads
    turns = [images for images, _ in itertools.groupby(images for images, _ in steps)]
    assert turns == [4, 12, 4, 12, 4, 12, 4, 12, 4][: len(turns)]  # warm-ups, then A B B A ...
    assert len(turns) >= 6
    low, middle, high = (entry["ratio"][place] for place in (1, 0, 2))
    assert 0 < low <= middle <= high
    assert entry["rate"] == pytest.approx(record["model"] * middle)
    assert abs(math.log(record["model"] / first)) == pytest.approx(record["drift"] / 2)
    assert not set(threading.enumerate()) - running  # another test's may have ended meanwhile
    json.dumps(record, allow_nan=False)


def test_an_alternative_that_is_far_slower_is_given_up_with_its_first_step(
    sample_root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    steps: list[int] = []

    def crawls(_: object, batch: Batch) -> None:
        steps.append(len(batch[0]))
        if len(batch[0]) == 12:
            time.sleep(1.5)

    before_each_step(monkeypatch, crawls)
    monkeypatch.setattr(measuring, "PATIENCE", 1.0)
    monkeypatch.setattr(measuring, "HOPELESS", 0.0)
    caplog.set_level(logging.INFO, "strobe.app.run.ceilings")
    with composed(sample_root) as (cfg, data, given):
        ceilings = Ceilings(cfg, data, given)
        assert ceilings.alternative("model", ["data.batch_size=12"]) is None
        assert ceilings.alternative("model", ["data.batch_size=8"]) is not None  # beside the run's own, still there
        ceilings.close()
    assert steps.count(12) == 1
    assert "Not measured with data.batch_size=12: a step takes" in caplog.text


def test_what_cannot_train_beside_the_runs_own_model_is_measured_alone(
    sample_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[int] = []

    def full(_: object, batch: Batch) -> None:
        if len(batch[0]) == 12 and threading.current_thread() is not threading.main_thread():
            raise RuntimeError("out of memory")
        trained.append(len(batch[0]))

    before_each_step(monkeypatch, full)
    running = set(threading.enumerate())
    with composed(sample_root) as (cfg, data, given):
        ceilings = Ceilings(cfg, data, given)
        entry = ceilings.alternative("model", ["data.batch_size=12"])
    assert entry is not None
    assert (entry["ratio"], entry["rate"] > 0) == (None, True)
    assert trained[-1] == 12
    assert not set(threading.enumerate()) - running  # the own one makes room
