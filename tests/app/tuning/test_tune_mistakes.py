"""Wrong input is refused in a sentence, before anything is measured."""

from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from hydra.errors import ConfigCompositionException

from strobe.app.config.checks import check
from strobe.app.config.compose import endings, require_one_device
from strobe.app.config.register import CONF, register
from strobe.app.tuning import saving
from strobe.errors import ConfigError
from support.refusals import refusal

pytestmark = pytest.mark.usefixtures("own_hydra")


def configured(*overrides: str) -> object:
    register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        cfg = compose("tune", overrides=list(overrides), return_hydra_config=True)
    HydraConfig.instance().set_config(cfg)
    return cfg


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("tune.over=[loader,colour]", ("tune.over", "colour", "loader")),
        ("tune.over=[]", ("tune.over=[]", "one value")),
        ("tune.budget=10s", ("tune.budget=10s", "35 s", "tune.budget=2m")),
        ("tune.turns=3", ("tune.turns=3", "at least 4")),
        ("tune.turn_seconds=0", ("tune.turn_seconds=0", "greater than 0")),
    ],
)
def test_what_is_out_of_range_is_refused(given: str, told: tuple[str, ...]) -> None:
    cfg = configured("data=sample", given)
    text = refusal(lambda: check(cfg), ConfigError)
    assert all(part in text for part in told)


def test_an_unknown_key_is_refused() -> None:
    with pytest.raises(ConfigCompositionException, match="bugdet"):
        configured("tune.bugdet=10s")


@pytest.mark.parametrize("devices", [2, "2", [0, 1]])
def test_several_devices_are_refused(devices: object) -> None:
    text = refusal(lambda: require_one_device(devices), ConfigError)
    assert all(part in text for part in (f"trainer.devices={devices}", "trainer.devices=1"))


@pytest.mark.parametrize("devices", [1, "1", "auto", [0], [1], -1])
def test_one_device_is_fine(devices: object) -> None:
    require_one_device(devices)


def test_callbacks_that_end_a_training_are_left_out() -> None:
    stopping = {"_target_": "lightning.pytorch.callbacks.EarlyStopping", "monitor": "val/loss"}
    other = {"_target_": "lightning.pytorch.callbacks.LearningRateMonitor"}
    assert endings({"stop": stopping, "rate": other}) == ["~callbacks.stop"]


@pytest.mark.parametrize(
    "name", ["../elsewhere", "a b", "", "tuned.yaml", "-x", "123", "1e5", "true", "null", "inf", 300 * "a"]
)
def test_a_preset_needs_a_name(name: str) -> None:
    configured("data=sample")
    text = refusal(lambda: saving.destination(name), ConfigError)
    assert all(part in text for part in (f"tune.save={name}", "tune.save=tuned"))


def test_a_preset_of_somebody_else_is_not_written_over() -> None:
    configured("data=sample")
    text = refusal(lambda: saving.destination("cifar10_baseline"), ConfigError)
    assert all(part in text for part in ("tune.save=cifar10_baseline", "exists", "another name"))
    assert (CONF / "experiment" / "cifar10_baseline.yaml").is_file()


def test_a_preset_that_was_tuned_can_be_written_again(tmp_path: Path) -> None:
    configured("data=sample")
    assert saving.destination("never_written_before").name == "never_written_before.yaml"
