"""Everything in conf/ composes, is what the code takes, and states only what the code does not."""

import dataclasses
import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from hydra.core.hydra_config import HydraConfig
from hydra.utils import get_class
from lightning import Trainer
from omegaconf import DictConfig, OmegaConf

from strobe.app.build.trainer import build_trainer
from strobe.app.config import register as config
from strobe.app.config.bounds import LIMITS, check_value
from strobe.app.config.checks import check
from support.choices import LOADER_KEYS_FOR_CHECKS
from support.composing import configured
from support.places import ROOT

YAMLS = {(path.parent.name, path.stem): OmegaConf.load(path) for path in sorted((ROOT / "conf").glob("*/*.yaml"))}
SCHEMAS = {kind.__name__: kind for kind in config.schemas()}
BOUNDED = {
    f"{kind.__name__}.{knob.name}": knob
    for kind in SCHEMAS.values()
    for knob in dataclasses.fields(kind)
    if knob.metadata
}

GIVEN_BY_COMPOSE = {
    "data": {"loader", "engine", "shuffle_seed"},
    "model": {"classes", "channels", "batch_size"},
    "profiler": {"directory"},
    "logger": {"save_dir"},
}
ONLY_FOR_CHECKS = {"data": {"form"}, "loader": LOADER_KEYS_FOR_CHECKS}
NOT_CONFIGURED = {  # the application gives these itself, or does without
    "callbacks",
    "default_root_dir",
    "logger",
    "use_distributed_sampler",
    "barebones",
    "enable_autolog_hparams",
    "limit_predict_batches",
    "model_registry",
    "plugins",
    "profiler",
}


def each_choice(*, among: Callable[[str, DictConfig], bool]) -> pytest.MarkDecorator:
    """Run a test for each group and choice that is meant."""
    found = [(group, name) for (group, name), yaml in YAMLS.items() if among(group, yaml)]
    return pytest.mark.parametrize(("group", "name"), found, ids=["=".join(choice) for choice in found])


def choices(group: str) -> list[str]:
    return [name for found, name in YAMLS if found == group]


def composed(*overrides: str) -> DictConfig:
    """As train.py has it, or strobe.bench where a suite is chosen."""
    suite = any(override.startswith("suite=") for override in overrides)
    cfg = configured("bench" if suite else "config", *overrides)
    OmegaConf.set_struct(cfg, value=False)
    del cfg["hydra"]
    return cfg


def given(cfg: DictConfig, group: str) -> dict[str, Any]:
    return {str(key): value for key, value in cfg[group].items() if key != "_target_"}


@cache
def forms() -> dict[str, str]:
    return {data: composed(f"data={data}").data.form for data in choices("data")}


@each_choice(among=lambda *_: True)
def test_every_choice_composes_passes_the_checks_and_is_what_its_target_takes(
    group: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strobe.app.config.lightning.has_gpu", lambda: True)
    yaml = YAMLS[group, name]
    read = [f"data={data}" for data, form in forms().items() if form in yaml.reads][:1] if group == "loader" else []
    cfg = composed(f"{group}={name}", *read)
    assert HydraConfig.get().runtime.choices[group] == name
    OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
    check(cfg)
    if "_target_" in yaml:
        constructors = [kind.__init__ for kind in get_class(yaml["_target_"]).__mro__ if "__init__" in vars(kind)]
        taken = {parameter for constructor in constructors for parameter in inspect.signature(constructor).parameters}
        knobs = given(cfg, group).keys() - ONLY_FOR_CHECKS.get(group, set())
        assert knobs | GIVEN_BY_COMPOSE.get(group, set()) <= taken


def test_every_group_of_a_training_has_a_default() -> None:
    composed()
    for group in {group for group, _ in YAMLS} - {"experiment", "suite"}:
        assert HydraConfig.get().runtime.choices[group] in choices(group)


def test_each_of_lightnings_arguments_can_be_overridden() -> None:
    arguments = inspect.signature(Trainer.__init__).parameters.keys() - {"self"}
    assert arguments >= NOT_CONFIGURED
    assert given(composed("trainer=default"), "trainer").keys() == arguments - NOT_CONFIGURED


@pytest.mark.parametrize("name", choices("trainer"))
def test_lightning_takes_every_trainer(name: str) -> None:
    arguments = given(composed(f"trainer={name}"), "trainer")
    if arguments["accelerator"] == "gpu" and not torch.cuda.is_available():
        pytest.skip("intended: needs a GPU")
    trainer = build_trainer(arguments | {"enable_checkpointing": False}, logger=False)
    assert trainer.max_epochs == arguments["max_epochs"]


@pytest.mark.parametrize("name", BOUNDED)
def test_a_default_lies_within_its_bounds(name: str) -> None:
    knob = BOUNDED[name]
    assert knob.metadata.keys() <= LIMITS.keys() | {"choices"}
    check_value(name, knob.default, knob.metadata)


@pytest.mark.parametrize("name", choices("loader"))
def test_a_loader_states_what_it_reads(name: str) -> None:
    assert set(YAMLS["loader", name].reads) <= set(BOUNDED["DataConfig.form"].metadata["choices"])


@each_choice(among=lambda group, yaml: group != "experiment" and "defaults" in yaml)
def test_a_choice_states_only_what_differs(group: str, name: str) -> None:
    stated = OmegaConf.to_container(YAMLS[group, name])
    base = stated.pop("defaults")[0]
    if base.startswith("/"):
        schema = SCHEMAS[base.removeprefix("/").removesuffix("@_here_")]
        inherited = {knob.name: knob.default for knob in dataclasses.fields(schema)}
    else:
        inherited = OmegaConf.to_container(YAMLS[group, base])
    assert stated.keys() <= inherited.keys()
    assert [key for key, value in stated.items() if value == inherited[key]] == []
