"""A preset composes to the same configuration as the overrides that it is made of."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig

from strobe.app.config.register import CONF, register
from strobe.app.tuning.saving import MARK, destination, difference, save
from strobe.errors import ConfigError
from support.refusals import refusal

TUNED = [
    ["loader=native", "data.batch_size=128", "model.lr_scaling=linear", "model.lr_batch_size=32"],
    ["data=eurosat", "loader=rasterio", "loader.scale=numpy", "trainer.precision=bf16-mixed", "data.root=some/where"],
    ["data=cifar10", "engine=resident", "model.channels_last=true", "threads=2", "trainer.max_epochs=3"],
    ["experiment=eurosat_13band", "engine=spdl", "engine.num_workers=2", "data.batch_size=64"],
    ["experiment=cifar10_large_batch", "engine.num_workers=0"],
    ["+callbacks.timer._target_=lightning.pytorch.callbacks.Timer", "trainer=cpu", "profiler=none", "logger=csv"],
]


@pytest.fixture
def conf(tmp_path: Path, own_hydra: None) -> Iterator[Path]:
    """A copy of conf/, which Hydra composes from."""
    folder = tmp_path / "conf"
    shutil.copytree(CONF, folder)
    register()
    with initialize_config_dir(str(folder), version_base="1.3"):
        HydraConfig.instance().set_config(compose("tune", [], return_hydra_config=True))
        yield folder


@pytest.mark.parametrize("overrides", TUNED, ids=lambda overrides: overrides[0])
def test_a_preset_says_what_the_overrides_said(conf: Path, overrides: list[str]) -> None:
    path = destination("tuned")
    assert path == conf / "experiment" / "tuned.yaml"
    save(path, overrides, "1.50 times as fast")
    assert compose("config", ["experiment=tuned"]) == compose("config", overrides)
    assert path.read_text().startswith(f"{MARK}: 1.50 times as fast\n")


def test_a_preset_is_short(conf: Path) -> None:
    path = destination("tuned")
    save(path, ["data=eurosat", "loader=native", "data.batch_size=128"], "")
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    expected = ["defaults:", "- override /data: eurosat", "- override /loader: native", "- _self_", "data:"]
    assert lines == [*expected, "  batch_size: 128"]


def test_it_can_be_overridden_and_written_again(conf: Path) -> None:
    path = destination("tuned")
    save(path, ["data.batch_size=64"], "")
    save(destination("tuned"), ["data.batch_size=128"], "")
    assert compose("config", ["experiment=tuned"]).data.batch_size == 128
    assert compose("config", ["experiment=tuned", "data.batch_size=8"]).data.batch_size == 8


def test_what_no_preset_can_say_leaves_the_earlier_one(conf: Path) -> None:
    path = destination("tuned")
    save(path, ["data.batch_size=64"], "")
    before = path.read_text()
    text = refusal(lambda: save(path, ["~trainer.num_nodes"], ""), ConfigError)
    assert all(part in text for part in ("tune.save=tuned", "~trainer.num_nodes"))
    assert path.read_text() == before


def test_the_difference_is_nested_as_the_values_are() -> None:
    base = {"a": 1, "b": {"c": 2, "d": [1]}}
    assert difference(base, {"a": 1, "b": {"c": 3, "d": [1]}}) == {"b": {"c": 3}}
    assert difference(base, base) == {}
    assert difference(base, {"a": {"x": 1}, "new": None}) == {"a": {"x": 1}, "new": None}
