"""Checks of a composed configuration that need neither torch nor the data."""

import copy
import dataclasses
import math
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence, Set
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig, ListConfig, OmegaConf, flag_override

from strobe.app.config.bounds import check_bounds, fields_of
from strobe.app.config.lightning import check_lightning
from strobe.app.config.mistakes import MISTAKES, keys, mistake, suggestion
from strobe.app.config.models import check_name, torchvision_models
from strobe.app.config.resuming import OUTPUTS, check_unfinished, last_checkpoint
from strobe.app.config.roots import check_root
from strobe.app.config.schema import ONE_CROP, USUAL_FRAMING, Config
from strobe.app.config.targets import check_targets
from strobe.app.storage.address import check_address, check_open, is_remote
from strobe.errors import ConfigError, disk_errors
from strobe.overrides import key_of
from strobe.present.format import counted
from strobe.process.launch import rank, refuse
from strobe.process.locks import alone_in
from strobe.tune.script import seconds

MOST_THREADS = 8  # for each core; more would only wait
STARTING = 5.0  # seconds, about, until a training takes its first step
MOST_WORKERS = 64  # for each core; many of them may wait for a slow disk
IMAGENET_STRIDE = 32  # pixels; behind the imagenet stem, the network reduces such an image to one position
FOLDERS = ("loader.directory", "data.cache")  # of this machine, whatever the address of the data
_alone = ExitStack()  # holds the lock of the run's folder


def check(cfg: DictConfig) -> None:
    """Raise a :class:`ConfigError` for the first value or combination that cannot work."""
    if lacking := [knob.name for knob in dataclasses.fields(Config) if knob.name not in cfg]:
        raise ConfigError(f"~{lacking[0]} deletes what every run needs; leave it out")
    check_bounds(cfg)
    _check_added(cfg, task := HydraConfig.get().overrides.task)
    check_targets(cfg, task)
    check_lightning(cfg)
    _check_pair(cfg)
    _check_addresses(cfg)
    shards_there = is_remote(str(cfg.loader.get("shards")))
    if is_remote(cfg.data.root):
        _check_storage(cfg)
    elif unread := next((key for key in ("endpoint", "cache")[shards_there:] if cfg.data.get(key)), None):
        raise ConfigError(
            f"data.{unread}={cfg.data[unread]} is for data in storage, but data.root={cfg.data.root} is a folder; "
            f"give data.root=s3://BUCKET/FOLDER too, or leave data.{unread} out"
        )
    if HydraConfig.get().runtime.choices["model"] == "torchvision" and (known := torchvision_models()):
        check_name(cfg.model.name, known, "torchvision")
    if "bands" in cfg.data:
        _check_bands(cfg.data.bands)
    if conflict := next((sentence for wrong, sentence in _conflicts(cfg) if wrong), None):
        raise ConfigError(conflict)
    if "tune" in cfg:
        _check_budget(cfg.tune)
    check_single(cfg, IMAGENET_STRIDE if cfg.data.form == "array" else cfg.data.get("size"))


def _conflicts(cfg: DictConfig) -> Iterator[tuple[Any, str]]:
    """Values that do not fit together, or not this machine: whether each conflict is there, and its sentence."""
    model, trainer, saving, cores = cfg.model, cfg.trainer, cfg.checkpoint, os.cpu_count() or 1
    for key in FOLDERS:
        folder = OmegaConf.select(cfg, key)
        instead = ", or loader.shards=ADDRESS of shards that lie there" * ("shards" in cfg.loader)
        yield (
            is_remote(str(folder or "")),
            f"{key}={folder} is an address of storage; give a folder of this machine{instead}",
        )
    yield (
        cfg.engine.num_workers > MOST_WORKERS * cores,
        f"engine.num_workers={cfg.engine.num_workers} on {counted(cores, 'core')} would take all memory before a batch "
        f"is loaded; give at most {MOST_WORKERS * cores}; more than one for each core seldom helps",
    )
    framing, choices = cfg.data.get("framing") or USUAL_FRAMING, HydraConfig.get().runtime.choices
    keeps = {f"loader={choices['loader']}": cfg.loader.copies}
    keeps[f"engine={choices['engine']}"] = choices["engine"] == "resident" and cfg.data.augment
    for choice, refused in keeps.items():
        yield (
            refused and cfg.data.form == "photos" and framing != "resize",
            ONE_CROP.format(choice=choice, framing=framing),
        )
    yield (
        trainer.get("deterministic") and cfg.engine.get("ordered") is False,
        f"engine.ordered=false does not fit trainer.deterministic={str(trainer.get('deterministic')).lower()}: the "
        "order of batches then changes from run to run; set engine.ordered=true",
    )
    yield (
        model.weights == "imagenet" and model.get("stem") == "cifar",
        "model.weights=imagenet does not fit model.stem=cifar: the published weights have the ImageNet stem; set "
        "model.stem=imagenet or model.weights=null",
    )
    clip, mixed = trainer.get("gradient_clip_val"), str(trainer.precision).endswith("-mixed")
    yield (
        model.fused and mixed and clip,
        f"model.fused=true does not fit trainer.gradient_clip_val={clip} with trainer.precision={trainer.precision}: "
        "Lightning cannot clip what a fused optimizer unscales; leave one of the three out",
    )
    yield (
        cfg.profiler.get("stop_after") and cfg.profiler.repeat == 0,
        "profiler.stop_after=true does not fit profiler.repeat=0, which records until training ends by itself; give "
        "profiler.repeat=1 or more",
    )
    yield (
        saving.every_n_steps is not None and saving.save in ("weights", "none"),
        f"checkpoint.every_n_steps={saving.every_n_steps} does not fit checkpoint.save={saving.save}, which writes no "
        "last.ckpt; give checkpoint.save=resume, or leave one of them out",
    )
    for key in ("threads", "loader.threads"):
        threads = OmegaConf.select(cfg, key) or 0
        yield (
            threads > MOST_THREADS * cores,
            f"{key}={threads} on {counted(cores, 'core')} would wait for each other; give at most "
            f"{MOST_THREADS * cores}",
        )
    yield (
        cfg.ckpt_path not in (None, "last") and not Path(cfg.ckpt_path).is_file(),
        f"ckpt_path={cfg.ckpt_path} is not a file; give a checkpoint file, or ckpt_path=last",
    )


def without_effect(cfg: DictConfig) -> Iterator[str]:
    """Warnings about overrides that do nothing, or not what they do elsewhere.

    They are not errors, because a sweep or a search may vary ``engine.num_workers`` beside them.
    """
    overridden = {key_of(override) for override in HydraConfig.get().overrides.task}
    for key in ("prefetch_factor", "persistent_workers", "multiprocessing_context"):
        if f"engine.{key}" in overridden and not cfg.engine.num_workers:
            value = str(cfg.engine[key]).lower()
            yield f"engine.{key}={value} has no effect with engine.num_workers=0; give engine.num_workers=1 or more"
    if (
        "engine.num_workers" in overridden
        and cfg.engine.num_workers
        and HydraConfig.get().runtime.choices["engine"] == "resident"
    ):
        yield (
            f"engine.num_workers={cfg.engine.num_workers}: with engine=resident these load the images once, before "
            "training; none loads during training"
        )
    if cfg.data.get("cache") and cfg.loader.get("shards"):
        yield (
            f"data.cache={cfg.data.cache} has no effect with loader.shards={cfg.loader.shards}, which are copied to "
            "loader.directory or, with loader.stream=true, fetched anew in each epoch; leave it out"
        )


def check_single(cfg: DictConfig, size: int | None) -> None:
    """Raise a :class:`ConfigError` where a batch of one image of this size leaves nothing to normalise."""
    if cfg.data.batch_size == 1 and size and size <= IMAGENET_STRIDE and cfg.model.get("stem") == "imagenet":
        raise ConfigError(
            "data.batch_size=1 does not fit model.stem=imagenet on images this small: batch normalisation needs "
            "more than one value per channel; set data.batch_size=2 or more, or model.stem=cifar"
        )


def _check_addresses(cfg: DictConfig) -> None:
    """Before any message repeats one: no address holds credentials, which would end in records."""
    for key in FOLDERS:
        check_open(key, str(OmegaConf.select(cfg, key)))
    for key in ("data.root", "data.endpoint", "loader.shards"):
        address = OmegaConf.select(cfg, key)
        if address is not None and (is_remote(address) or key == "data.endpoint"):
            check_address(key, address)


def _check_storage(cfg: DictConfig) -> None:
    """Where the root is an address: data and loader must know storage."""
    choices = HydraConfig.get().runtime.choices
    if "endpoint" not in cfg.data:
        raise ConfigError(
            f"data={choices['data']} reads from a folder only, not from data.root={cfg.data.root}; "
            "data=eurosat and data=image_folder read from storage"
        )
    if not cfg.loader.objects:
        raise ConfigError(
            f"loader={choices['loader']} reads files on the disk, not data.root={cfg.data.root}; "
            f"loaders that fit: {', '.join(loaders_for(cfg.data.form, objects=True))}"
        )
    if cfg.data.get("download"):
        raise ConfigError(f"data.download=true does not fit data.root={cfg.data.root}; download into a folder")
    if cfg.engine.get("multiprocessing_context") == "fork":
        raise ConfigError(
            f"engine.multiprocessing_context=fork does not fit data.root={cfg.data.root}: the storage's client would "
            "wait forever in a forked process; set spawn, or engine=litdata"
        )


def without_hydra(cfg: DictConfig) -> DictConfig:
    """The application's part of a composed configuration."""
    application = copy.copy(cfg)
    with flag_override(application, ["struct", "readonly"], [False, False]):
        del application["hydra"]
    return application


def _check_added(cfg: DictConfig, task: Sequence[str]) -> None:
    """A key added with ``+`` must be used by something: Lightning, or a class of the user's own."""
    overridden, known = {key_of(override) for override in task}, {knob.name for knob in fields_of(cfg)}
    for override in task:
        group, _, leaf = (key := key_of(override)).rpartition(".")
        node = OmegaConf.select(cfg, group) if group else cfg
        free = group.partition(".")[0] in known and OmegaConf.get_type(node) is dict
        named = {knob.name for knob in fields_of(node)}
        read = free or leaf in named or f"{group}._target_" in overridden or re.search("[/@]", key)
        if override.startswith("+") and not read:
            raise ConfigError(f"Nothing reads {override}; {suggestion(key, keys(cfg))}")
    for name, node in cfg.callbacks.items():
        if not isinstance(node, DictConfig) or "_target_" not in node:
            key = f"callbacks.{name}"
            given = next((text for text in task if f"{key_of(text)}.".startswith(f"{key}.")), f"{key}={node}")
            raise ConfigError(f"{given}: {key} names no class; +{key}._target_=CLASS gives it one")


def _check_pair(cfg: DictConfig) -> None:
    """The loader must be able to read the data's form."""
    if cfg.data.form in cfg.loader.reads:
        return
    choices = HydraConfig.get().runtime.choices
    raise ConfigError(
        f"loader={choices['loader']} does not read data={choices['data']}; "
        f"loaders that fit: {', '.join(loaders_for(cfg.data.form))}"
    )


def loaders_for(form: str, *, unasked: bool = False, objects: bool = False) -> list[str]:
    """The loaders in conf/ that read this form of data; ``unasked``: without those that first write a copy of it.

    ``objects``: only those that read it from storage.
    """
    return sorted(
        name
        for name, loader in _loaders()
        if form in OmegaConf.select(loader, "reads", default=[])
        and not (unasked and OmegaConf.select(loader, "copies", default=False))
        and (not objects or OmegaConf.select(loader, "objects", default=False))
    )


def _loaders() -> Iterator[tuple[str, Any]]:
    """Every loader in conf/."""
    for source in HydraConfig.get().runtime.config_sources:
        if source.provider == "main":
            yield from ((path.stem, OmegaConf.load(path)) for path in Path(source.path).glob("loader/*.yaml"))


def _check_bands(bands: Any) -> None:
    if isinstance(bands, str) and bands in ("rgb", "all"):
        return
    indices = list(bands) if isinstance(bands, ListConfig) else []
    whole = all(type(index) is int and index >= 0 for index in indices)
    if not indices or not whole or len(set(indices)) < len(indices):
        raise ConfigError(
            f"data.bands={bands} is not a choice of bands; "
            "give rgb, all, or a list of different indices from 0 in file order, such as data.bands=[3,2,1]"
        )


def _check_budget(keys: DictConfig) -> None:
    """A search needs time for one probe run and one comparison of two trainings."""
    sides = 2 * (keys.turns * keys.turn_seconds + STARTING)
    least = STARTING + keys.look_seconds + 2 * keys.ceilings_seconds + sides
    if seconds(keys.budget, "tune.budget=") < least:
        raise ConfigError(
            f"tune.budget={keys.budget} is too little: one short run and one comparison take about "
            f"{least:.0f} s; give tune.budget={math.ceil(2 * least / 60)}m or more"
        )


class Preflight(Callback):
    """Refuses an impossible configuration, in one sentence, before Hydra makes the run's directory."""

    def on_run_start(self, config: DictConfig, **_: Any) -> None:
        """Check the composed configuration; a sweep's cells are checked one by one when they start."""
        HydraConfig.instance().set_config(config)
        try:
            check(without_hydra(config))
            if "suite" not in config:  # which makes its input where there is none
                check_root(config)
            if (name := config.ckpt_path) is not None:
                path = last_checkpoint(config, Path(config.hydra.run.dir), OUTPUTS) if name == "last" else Path(name)
                check_unfinished(path, config.trainer)
            folder = Path(config.hydra.run.dir)
            if not folder.exists():
                _alone.callback(_forget_unbegun, folder, {".hydra", "train.log"})
            _require_directory("hydra.run.dir", config.hydra.run.dir)
            if rank() == 0 and not {"suite", "tune"} & set(config):  # whose commands lock their folder themselves
                _alone.enter_context(alone_in(folder, "hydra.run.dir"))
        except MISTAKES as error:
            # Hydra turns a callback's exceptions into warnings, but lets a request to exit through.
            refuse(mistake(error))

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        """Check what all cells have in common, and where the sweep will write."""
        HydraConfig.instance().set_config(config)
        try:
            task, cfg = config.hydra.overrides.task, without_hydra(config)
            varied = varied_keys(task)
            # Only some choices of a group that varies may have a key that is given below it.
            task = [text for text in task if {key_of(text).partition(".")[0], "experiment"}.isdisjoint(varied)]
            _check_added(cfg, task)
            check_targets(cfg, task, whole=False)
            if not varied & {"data", "data.root", "data.download", "experiment"}:
                check_root(cfg)
            check_lightning(cfg, varied)
            _require_directory("hydra.sweep.dir", config.hydra.sweep.dir)
        except MISTAKES as error:
            refuse(mistake(error))


def leave_folder() -> None:
    """Let others write into the run's folder, which :class:`Preflight` has locked; one in which none began goes."""
    _alone.close()
    if HydraConfig.initialized() and HydraConfig.get().mode == RunMode.MULTIRUN:
        _forget_unbegun(Path(HydraConfig.get().sweep.dir), {"multirun.yaml"})


def _forget_unbegun(folder: Path, begins_with: Set[str]) -> None:
    """Remove a folder that holds no more than is written before a run begins, and those above it that are then empty.

    Above its own parent these are ``outputs`` and what lies in it.
    """
    with suppress(OSError):  # the folder is missing, or others lie beside it
        log = folder / "train.log"
        if {path.name for path in folder.iterdir()} <= begins_with and not (log.is_file() and log.stat().st_size):
            shutil.rmtree(folder)
            folder.parent.rmdir()
            for above in folder.absolute().parents[1:]:
                if above.is_relative_to(OUTPUTS.absolute()):
                    above.rmdir()


def varied_keys(task: Sequence[str]) -> set[str]:
    """The keys and groups that a sweep varies, but for those that it adds."""
    parsed = OverridesParser.create().parse_overrides(list(task))
    return {one.key_or_group for one in parsed if one.is_sweep_override() and not one.is_add()}


def _require_directory(key: str, directory: str) -> None:
    cannot = "be made"
    with disk_errors(lambda why: f"{key}={directory} cannot {cannot} ({why}); choose another with {key}=FOLDER"):
        Path(directory).mkdir(parents=True, exist_ok=True)
        cannot = "be written to"
        tempfile.TemporaryFile(dir=directory).close()
