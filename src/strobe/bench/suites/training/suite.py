"""``suite=training``: the way from a slow training to a fast one, change by change, on the CPU and on a GPU."""

import json
import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from strobe.bench.harness.declare import Cell, Input, Plan, Request, Suite, Table, Trial, Work
from strobe.bench.inputs import find_data, require_batch
from strobe.bench.suites.training.report import DEVICES, TRACES, conclude, sections, traced
from strobe.errors import ConfigError

if TYPE_CHECKING:
    from lightning.pytorch.callbacks import Callback

DRIVER = Path("/dev/nvidiactl")
LOADERS = {"array": ["loader=memory", "loader.batched=false"], "tiles": ["loader=skimage"], "photos": ["loader=pil"]}
BEST = {  # by the form of data; and by the device
    "array": ["loader=memory", "engine=resident"],
    "tiles": ["loader=native", "engine=resident"],
    "photos": ["loader=native", "engine=spdl", "engine.num_workers=1"],
    "cpu": ["model.channels_last=true"],
    "gpu": ["model.channels_last=true", "trainer.precision=bf16-mixed"],
}
QUICK, FULL = 1.0, 15.0  # seconds timed in a trial
MOST = 20  # steps of a profiled training, which its profiler ends earlier: wait 1, warm up 1, record 3, twice


def declare(cfg: DictConfig) -> Suite:
    """A table for each device, a row for each change; the ratio is to the row before, a GPU's first to the CPU's."""
    devices, seconds = _devices(cfg), cfg.turn_seconds or (QUICK if cfg.quick else FULL)
    cells: list[Cell] = []
    for device in devices:
        before = cells[0].name if cells else None  # a GPU's first row is held against the CPU's
        for row, overrides in rows(cfg, device).items():
            make = partial(train, row=row, overrides=tuple(overrides), seconds=seconds)
            cell = Cell(device, row, "training", make, _threads(cfg, overrides), against=before)
            cells.append(cell)
            before = cell.name
    return Suite(
        name="training",
        title="Training, change by change",
        about="One network, resnet18 unless the configuration says otherwise, is trained by the application, without "
        "augmentation or validation, on the same images in the same order: in small batches that the training process "
        "loads image by image and scales with NumPy; then with worker processes; then in large batches; then with the "
        f"best overrides known. A trial times {seconds:g} s of one training after its first steps, three steps at "
        "least, and whole epochs where they fit; its seconds are those of an epoch. Afterwards a first trial to each "
        "row is profiled (wait 1, warm up 1, record 3 steps, twice) for TensorBoard; profiled steps are not timed.",
        cells=cells,
        tables=[Table(device, f"Training on {DEVICES[device]}") for device in devices],
        quick=Plan(rounds=1, turn=QUICK, budget=50),
        full=Plan(rounds=6, turn=FULL, budget=600),
        find=partial(_find, devices=devices),
        conclude=conclude,
        sections=sections,
        varies={
            "loader": 'suite.best=["loader=NAME",...]',
            "loader.batched": 'suite.best=["loader.batched=true",...]',
            "loader.scale": 'suite.best=["loader.scale=device",...]',
            "engine": 'suite.best=["engine=NAME",...]',
            "engine.num_workers": "suite.workers=N",
            "data.batch_size": "suite.batch_size=N and suite.large_batch=N",
            "data.augment": 'suite.best=["data.augment=true",...]',
            "model.channels_last": 'suite.best=["model.channels_last=true",...]',
            "trainer": "suite.devices=[cpu,gpu]",
            "trainer.accelerator": "suite.devices=[cpu,gpu]",
            "trainer.precision": 'suite.best=["trainer.precision=NAME",...]',
            "trainer.max_epochs": "turn_seconds=S",
            "trainer.max_steps": "turn_seconds=S",
            "profiler": "none, for each row is profiled already,",
        },
    )


def rows(cfg: DictConfig, device: str) -> dict[str, list[str]]:
    """By each row's name, the overrides that it is trained with."""
    chosen = cfg.suite
    workers = chosen.workers or (2 if cfg.quick else 8)
    large = chosen.large_batch or (128 if cfg.quick else 2048)
    if large == chosen.batch_size:
        raise ConfigError(
            f"suite.batch_size={chosen.batch_size} is as large as suite.large_batch={large}; give two different ones"
        )
    best = BEST[cfg.data.form] + BEST[device] if chosen.best is None else list(chosen.best)
    common = ["data.augment=false", f"trainer.accelerator={device}"]
    slow = [*common, *LOADERS[cfg.data.form], "loader.scale=numpy", "engine=torch"]
    small, beside = [f"data.batch_size={chosen.batch_size}"], [f"engine.num_workers={workers}"]
    told = f"{workers} worker{'s' * (workers > 1)}"
    return {
        f"batch {chosen.batch_size}, no workers": [*slow, *small, "engine.num_workers=0"],
        f"batch {chosen.batch_size}, {told}": [*slow, *small, *beside],
        f"batch {large}, {told}": [*slow, f"data.batch_size={large}", *beside],
        "best known": [*common, f"data.batch_size={large}", *best],
    }


def _devices(cfg: DictConfig) -> list[str]:
    given = cfg.suite.devices
    if given is None:
        return ["cpu", "gpu"] if DRIVER.exists() else ["cpu"]
    devices = list(dict.fromkeys(given))
    if not devices or not set(devices) <= set(DEVICES):
        raise ConfigError(f"suite.devices={given} is not a choice of devices; choose from cpu and gpu")
    if "gpu" in devices and not DRIVER.exists():
        raise ConfigError(f"suite.devices={given}: there is no NVIDIA GPU here, or no driver; give suite.devices=[cpu]")
    return devices


def _threads(cfg: DictConfig, overrides: list[str]) -> int:
    given = [int(value) for override in overrides if (value := override.removeprefix("threads=")).isdecimal()]
    return given[-1] if given else cfg.threads or len(os.sched_getaffinity(0))


def _find(asked: Request, scratch: Path, *, devices: list[str]) -> Input:
    """The images, enough for each row's batches; no row's overrides are wrong.

    Raises:
        StrobeError: a value cannot work, or images are missing.
    """
    from strobe.bench.steady import ready

    found = find_data(asked, scratch)
    for device in devices:
        for row, overrides in rows(asked.cfg, device).items():
            try:
                size = ready([*found.overrides, *asked.overrides, *overrides]).data.batch_size
            except (HydraException, OmegaConfBaseException) as error:
                reason = " ".join(str(error).split())
                given = json.dumps(list(asked.cfg.suite.best or []))
                raise ConfigError(
                    f"the row {row}, with suite.best={given}, cannot be composed: {reason}; give overrides as train.py "
                    "takes them"
                ) from error
            instead = "suite.large_batch=N (or data.batch_size=N in suite.best) and suite.batch_size=N"
            require_batch(size, found, instead)
    return found


@contextmanager
def train(trial: Trial, *, row: str, overrides: tuple[str, ...], seconds: float) -> Iterator[Work]:
    """A training with these overrides, which warms itself up; after the first trial's measurement it is profiled."""
    from strobe.bench.steady import profile, ready, with_phases

    cfg = ready([*trial.overrides, *overrides])
    with TemporaryDirectory(prefix="strobe-") as scratch:
        yield Work(partial(with_phases, cfg, Path(scratch), seconds), warm_up=lambda: None, once=True)
        if trial.number == 0:
            try:
                profile(cfg, Path(scratch), _profiler(trial.folder.parents[1], cfg.trainer.accelerator, row), most=MOST)
            except Exception:  # what was measured before is worth more
                traceback.print_exc()


def _profiler(folder: Path, device: str, row: str) -> "Callback":
    from strobe.callbacks import TraceProfiler

    traces, tables = (place / traced(device, row) for place in (folder / TRACES, folder / "tables"))
    return TraceProfiler(traces, tables=tables, wait=1, warmup=1, active=3, repeat=2, stop_after=True)
