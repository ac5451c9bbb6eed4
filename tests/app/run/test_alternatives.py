"""Parts of a run replaced by overrides, and measured."""

import copy
import logging
import math
from pathlib import Path

import pytest
import torch
from hydra.core.hydra_config import HydraConfig

from strobe.app.data.sample import Sample
from strobe.app.loaders.base import Batch, TileData
from strobe.app.run.ceilings import Ceilings
from support.ceilings_parts import composed
from support.interruptions import before_each_step


@pytest.mark.parametrize(
    ("side", "overrides", "images"),
    [
        ("loader", ["engine.num_workers=1"], 4),
        ("loader", ["loader=tifffile", "engine.num_workers=0"], 4),
        ("loader", ["data.batch_size=8"], 8),
        ("model", ["data.batch_size=16"], 16),
        ("model", ["model.channels_last=true"], 4),
        ("model", ["loader.scale=numpy"], 4),
        ("model", ["trainer.precision=bf16-mixed"], 4),
        ("model", ["data.bands=all"], 4),
    ],
)
def test_an_alternative_is_measured(sample_root: Path, side: str, overrides: list[str], images: int) -> None:
    with composed(sample_root) as (cfg, data, given):
        ceilings = Ceilings(cfg, data, given)
        measured = ceilings.alternative(side, overrides)
    assert measured is not None
    assert measured["overrides"] == overrides
    assert measured["side"] == side
    assert 0 < measured["interval"][0] <= measured["rate"] <= measured["interval"][1]
    assert measured["images_per_step"] == images
    assert ceilings.seconds > 0


def test_the_tiles_are_not_searched_for_again(sample_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with composed(sample_root) as (cfg, data, given):
        searches: list[int] = []
        sources = Sample.sources

        def counted(self: Sample) -> object:
            searches.append(1)
            return sources(self)

        monkeypatch.setattr(Sample, "sources", counted)
        ceilings = Ceilings(cfg, data, given)
        assert ceilings.alternative("loader", ["loader=rasterio", "data.batch_size=8", "data.augment=false"])
        assert not searches
        assert ceilings.alternative("loader", ["data.bands=all"])
        assert len(searches) == 1


def test_an_alternative_trains_on_its_own_batch(sample_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shapes: set[tuple[int, ...]] = set()
    before_each_step(monkeypatch, lambda _, batch: shapes.add(tuple(batch[0].shape)))
    with composed(sample_root) as (cfg, data, given):
        ceilings = Ceilings(cfg, data, given)
        ceilings.measure()
        assert shapes == {(4, 3, 64, 64)}
        shapes.clear()
        ceilings.alternative("model", ["data.batch_size=10"])
    assert shapes == {(10, 3, 64, 64)}


def test_an_alternative_has_its_own_threads(sample_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: set[int] = set()
    fetch = TileData.__getitem__

    def watched(self: TileData, index: int) -> Batch:
        threads.add(torch.get_num_threads())
        return fetch(self, index)

    monkeypatch.setattr(TileData, "__getitem__", watched)
    before = torch.get_num_threads()
    with composed(sample_root) as (cfg, data, given):
        assert Ceilings(cfg, data, given).alternative("loader", ["threads=3"])
    assert threads == {3}
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        (["loader=memory"], "loader=memory does not read data=sample"),
        (["loader=nothing"], "Could not find 'loader/nothing'"),
        (["data.batch_size=100000"], "more than the training images"),
        (["data.batch_size=0"], "out of range"),
        (["~callbacks.slow"], "does not exist"),
        (["trainer.precision=5"], "trainer.precision=5"),
        (["data.bands=[99]"], "band 99"),
    ],
)
def test_what_cannot_work_is_left_out_with_a_line(
    sample_root: Path, caplog: pytest.LogCaptureFixture, overrides: list[str], reason: str
) -> None:
    caplog.set_level(logging.INFO, "strobe.app.run.ceilings")
    with composed(sample_root) as (cfg, data, given):
        before = HydraConfig.instance().cfg
        ceilings = Ceilings(cfg, data, given)
        assert ceilings.alternative("model", overrides) is None
        assert HydraConfig.instance().cfg is before
        assert HydraConfig.get().overrides.task == given
    (line,) = [record.getMessage() for record in caplog.records if "Not measured" in record.getMessage()]
    assert reason in line
    assert "\n" not in line


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
