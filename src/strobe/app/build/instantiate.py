"""From the configuration to objects; the only place that calls Hydra's ``instantiate``."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import lightning
import torch
from hydra.core.hydra_config import HydraConfig
from hydra.errors import InstantiationException
from hydra.types import RunMode
from hydra.utils import instantiate
from lightning.pytorch.callbacks import Callback, Checkpoint
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigAttributeError

from strobe.app.build.checkpoint import OtherRanks, checkpoints, wanted, write_whole
from strobe.app.build.pictures import Pictures
from strobe.app.build.trainer import build_trainer
from strobe.app.config.checks import check_single
from strobe.app.config.resuming import CHECKPOINTS
from strobe.app.data.base import ImageData
from strobe.app.engines.resident import ResidentEngine
from strobe.app.model.classifier import ImageClassifier
from strobe.callbacks import Journal, ProgressBar, StepRecorder, TraceProfiler
from strobe.errors import ConfigError, StrobeError
from strobe.overrides import key_of
from strobe.records.files import remove_left

FOR_CHECKS = ("form", "reads", "copies", "objects")  # keys that only strobe.app.config.checks reads


@dataclass(frozen=True)
class Parts:
    """The objects of a run."""

    data: ImageData
    model: ImageClassifier
    trainer: lightning.Trainer


def build(cfg: DictConfig, run_dir: Path) -> Parts:
    """Everything for one run that writes into ``run_dir``; finds the data, or downloads it if asked to."""
    arguments: Any = OmegaConf.to_container(cfg.trainer, resolve=True)
    torch.set_float32_matmul_precision(cfg.matmul_precision)
    folder = "tensorboard" if "TensorBoard" in cfg.logger._target_ else "csv"  # TensorBoard's lies beside the traces
    callbacks = _callbacks(cfg, run_dir, checkpoints(cfg, run_dir / CHECKPOINTS))
    # If no callback writes checkpoints, not even one of the user's, Lightning would write its own.
    writing = any(isinstance(callback, Checkpoint) for callback in callbacks)
    arguments["enable_checkpointing"] = bool(cfg.trainer.enable_checkpointing and writing)
    trainer = build_trainer(
        arguments,
        default_root_dir=run_dir,
        logger=instantiate(cfg.logger, save_dir=run_dir / folder),
        callbacks=callbacks,
        use_distributed_sampler=False,  # Strobe's own deals out each index once
    )
    remove_left(run_dir / CHECKPOINTS)
    write_whole(trainer, hold=run_dir / CHECKPOINTS if wanted(cfg) == "auto" else None)
    launcher = HydraConfig.get().runtime.choices.get("hydra/launcher")
    if HydraConfig.get().mode == RunMode.MULTIRUN and trainer.world_size > 1 and trainer.strategy.launcher is not None:
        raise ConfigError(
            f"trainer.devices={cfg.trainer.devices} does not fit hydra/launcher={launcher}, which runs each cell in "
            "the sweep's own process, so that each rank would start the sweep again; leave hydra/launcher out, so "
            "that each cell has processes of its own, or set trainer.devices=1"
        )
    data = set_up_data(cfg)
    check_single(cfg, data.size)
    model = build_model(cfg, data)
    if isinstance(engine := cast(Any, data.engine), ResidentEngine):
        engine.dry_step = getattr(model, "dry_step", None)  # of a model of the user's own
    return Parts(data, model, trainer)


def build_model(cfg: DictConfig, data: ImageData) -> ImageClassifier:
    """A new model for the classes and channels of ``data``, which must be set up."""
    of_data = {"classes": data.classes, "channels": data.channels, "image_size": data.found["train"].given_size()}
    make = _make(cfg.model, _partial_=True, _convert_="all")
    try:  # not by Hydra, which would look for the key f of a class that is called ${f}
        model: ImageClassifier = make(**of_data, batch_size=cfg.data.batch_size)
    except TypeError as error:
        raise ConfigError(f"model._target_={cfg.model._target_} could not be made: {error}") from error
    return model


def build_data(cfg: DictConfig) -> ImageData:
    """The DataModule, with its loader and its engine."""
    values, reading = (
        {key: value for key, value in node.items() if key not in FOR_CHECKS} for node in (cfg.data, cfg.loader)
    )
    data: ImageData = _make(values, loader=_make(reading), engine=_make(cfg.engine), shuffle_seed=cfg.seed)
    return data


def set_up_data(cfg: DictConfig) -> ImageData:
    """The DataModule, set up; its images are found, or downloaded if asked to."""
    data = build_data(cfg)
    data.prepare_data()
    data.setup()
    return data


def _callbacks(cfg: DictConfig, run_dir: Path, saving: Sequence[Callback]) -> list[Callback]:
    """Checkpoints, pictures, progress, the profiler, the record of steps, and what the user adds."""
    callbacks: list[Callback] = [Journal(), Pictures(run_dir / "pictures"), StepRecorder(run_dir / "steps.csv")]
    if cfg.trainer.enable_progress_bar:
        callbacks.append(ProgressBar(leave=True))
    callbacks += [*saving, OtherRanks()]
    if cfg.profiler._target_ is not None:
        folders = {key: run_dir / cfg.profiler[key] for key in ("directory", "tables") if cfg.profiler.get(key)}
        for key, folder in folders.items():
            if folder.exists() and not folder.is_dir():
                raise ConfigError(f"profiler.{key}={cfg.profiler[key]} is not a folder; name one below the run's")
        profiler = instantiate(cfg.profiler, **folders)
        if isinstance(profiler, TraceProfiler):
            overridden = {key_of(override) for override in HydraConfig.get().overrides.task}
            profiler.may_shorten = [name for name in ("active", "repeat") if f"profiler.{name}" not in overridden]
        callbacks.append(profiler)
    return [*callbacks, *(_added(name, node) for name, node in cfg.callbacks.items())]


def _added(name: Any, node: Any) -> Callback:
    """A callback of the user's own."""
    try:
        made = _make(node)
    except (InstantiationException, ConfigAttributeError) as error:
        reason = " ".join(str(error.__cause__ or error).split())
        raise ConfigError(
            f"callbacks.{name} cannot be made ({reason}); name a class that can be imported in "
            f"callbacks.{name}._target_, and its arguments beside it"
        ) from error
    if not isinstance(made, Callback):
        raise ConfigError(
            f"callbacks.{name}={node} is not a Lightning callback; name one's class in callbacks.{name}._target_"
        )
    return made


def _make(node: Any, **arguments: Any) -> Any:
    """``instantiate``, with the error that was raised inside, not Hydra's wrapping of it."""
    try:
        return instantiate(node, **arguments)
    except InstantiationException as error:
        if isinstance(error.__cause__, StrobeError):
            raise error.__cause__ from None
        raise
