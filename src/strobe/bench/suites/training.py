"""``suite=training``: the way from a slow training to a fast one, change by change, on the CPU and on a GPU."""

import json
import os
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from strobe.bench.harness.declare import Cell, Input, Plan, Request, Section, Suite, Table, Trial, Work, slug
from strobe.bench.harness.results import CellRecord, faster, speed
from strobe.bench.inputs import find_data, require_batch
from strobe.callbacks.columns import PHASES
from strobe.errors import ConfigError
from strobe.measure.environment import has_gpu
from strobe.present import parts
from strobe.present.charts.rows import stacked
from strobe.present.format import duration, estimate, figure, milliseconds, percent
from strobe.report.steps import DEVICE, segments

LOADERS = {"array": ["loader=memory", "loader.batched=false"], "tiles": ["loader=skimage"], "photos": ["loader=pil"]}
BEST = {  # by the form of data; and by the device
    "array": ["loader=memory", "engine=resident"],
    "tiles": ["loader=native", "engine=resident"],
    "photos": ["loader=native", "engine=spdl", "engine.num_workers=1"],
    "cpu": ["model.channels_last=true"],
    "gpu": ["model.channels_last=true", "trainer.precision=bf16-mixed"],
}
QUICK, FULL = 1.0, 15.0  # seconds timed in a trial
TRACES = "tensorboard"  # a run's folder, with one of each row's traces in it
BEST_KNOWN, ALONE = "best known", "its model alone"
DEVICES = {"cpu": "the CPU", "gpu": "the GPU"}
INTERVAL = 6  # trials, from which on the order statistics enclose the median in 95 of 100 cases
MOST = 20  # steps of a profiled training, which its profiler ends earlier: wait 1, warm up 1, record 3, twice


def declare(cfg: DictConfig) -> Suite:
    """A table for each device, a row for each change; the ratio is to the row before, a GPU's first to the CPU's.

    The last row is the ceiling of the one before it: its model alone.
    """
    seconds = cfg.turn_seconds or (QUICK if cfg.quick else FULL)
    devices = list(dict.fromkeys(cfg.suite.devices or (["cpu", "gpu"] if has_gpu() else ["cpu"])))
    if "gpu" in devices and not has_gpu():
        raise ConfigError(f"suite.devices={devices}: there is no GPU here, or no driver; give suite.devices=[cpu]")
    cells: list[Cell] = []
    for device in devices:
        before = cells[0].name if cells else None  # a GPU's first row is held against the CPU's
        changes = rows(cfg, device)
        for row, overrides in [*changes.items(), (ALONE, changes[BEST_KNOWN])]:
            make = partial(train, row=row, overrides=tuple(overrides), seconds=seconds)
            own = [int(override.removeprefix("threads=")) for override in overrides if override.startswith("threads=")]
            threads = own[-1] if own else cfg.threads or len(os.sched_getaffinity(0))
            cell = Cell(device, row, "training", make, threads, against=before)
            cells.append(cell)
            before = cell.name
    return Suite(
        title="Training, change by change",
        about="One network, resnet18 unless the configuration says otherwise, is trained by the application, without "
        "augmentation or validation, on the same images in the same order: in small batches that the training process "
        "loads image by image and scales with NumPy; then with worker processes; then in large batches; then with the "
        f"best overrides known, and with these on one batch that lies there already. A trial times {seconds:g} s of "
        "one training after its first steps, three steps at "
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
    with_workers = f"{workers} worker{'s' * (workers > 1)}"
    return {
        f"batch {chosen.batch_size}, no workers": [*slow, *small, "engine.num_workers=0"],
        f"batch {chosen.batch_size}, {with_workers}": [*slow, *small, *beside],
        f"batch {large}, {with_workers}": [*slow, f"data.batch_size={large}", *beside],
        BEST_KNOWN: [*common, f"data.batch_size={large}", *best],
    }


def _find(request: Request, scratch: Path, *, devices: list[str]) -> Input:
    """The images, enough for each row's batches; a StrobeError says which row's overrides are wrong."""
    from strobe.bench.steady import ready

    source = find_data(request, scratch)
    instead = "suite.large_batch=N (or data.batch_size=N in suite.best) and suite.batch_size=N"
    for row, overrides in (each for device in devices for each in rows(request.cfg, device).items()):
        try:
            size = ready([*source.overrides, *request.overrides, *overrides]).data.batch_size
        except (HydraException, OmegaConfBaseException) as error:
            best = json.dumps(list(request.cfg.suite.best or []))
            raise ConfigError(
                f"the row {row}, with suite.best={best}, cannot be composed: {' '.join(str(error).split())}; give "
                "overrides as train.py takes them"
            ) from error
        require_batch(size, source, instead)
    return source


@contextmanager
def train(trial: Trial, *, row: str, overrides: tuple[str, ...], seconds: float) -> Iterator[Work]:
    """A training with these overrides, which warms itself up; after the first trial's measurement it is profiled.

    Of the row ``ALONE`` only the model trains, on one batch.
    """
    from strobe.bench.steady import model_alone, profile, ready, with_phases
    from strobe.callbacks import TraceProfiler

    cfg = ready([*trial.overrides, *overrides])
    if row == ALONE:
        yield Work(partial(model_alone, cfg, seconds), once=True)
        return
    yield Work(partial(with_phases, cfg, trial.scratch, seconds), once=True)
    if trial.number == 0:
        traces, tables = (
            trial.folder.parents[1] / kind / slug(f"{cfg.trainer.accelerator} {row}") for kind in (TRACES, "tables")
        )
        try:
            profiler = TraceProfiler(traces, tables=tables, wait=1, warmup=1, active=3, repeat=2, stop_after=True)
            profile(cfg, trial.scratch, profiler, most=MOST)
        except Exception:  # what was measured before is worth more
            traceback.print_exc()


def conclude(record: Mapping[str, Any]) -> list[str]:
    """What all changes bring, on each device, and a GPU; what is left to the ceiling; then what each change brings."""

    def ratio(one: CellRecord, other: CellRecord, words: str, than: str = "") -> list[str]:
        times = faster(one, other, f"{{}} times as fast{than}")
        return [f"{words}: {times}."] if times else []

    lines, each = [], []
    devices = _by_device(record)
    for device, cells in devices.items():
        on = f"n {DEVICES[device]}"
        if cells[0]["visits"] and cells[-1]["visits"]:
            lines += ratio(cells[-1], cells[0], f"All changes together, o{on}")
        for before, cell in pairwise(cells):
            each += ratio(cell, before, f"{cell['row'].capitalize()}, o{on}", f" as {before['row']}")
    measured = [cell for cell in devices.get("gpu", ()) if cell["visits"]]
    if measured and devices.get("cpu"):
        cpu, gpu = devices["cpu"][0], devices["gpu"][0]
        best = max(measured, key=speed)
        lines += ratio(gpu, cpu, f"The GPU against the CPU, {gpu['row']}")
        lines += ratio(best, cpu, f"From the CPU's first row, {cpu['row']}, to the GPU's fastest, {best['row']}")
    for device, (*_, best) in devices.items():
        alone = next((cell for cell in record["cells"] if (cell["table"], cell["row"]) == (device, ALONE)), None)
        if reached := faster(best, alone, "{} of what its model alone reaches"):
            lines.append(f"{best['row'].capitalize()}, on {DEVICES[device]}: {reached}.")
    return [*lines, *each]


def sections(record: Mapping[str, Any], folder: Path) -> list[Section]:
    """An epoch's time and a step's phases of each row, for each device."""
    return [
        _section(device, measured, folder)
        for device, cells in _by_device(record).items()
        if (measured := [cell for cell in cells if cell["visits"]])
    ]


def _by_device(record: Mapping[str, Any]) -> dict[str, list[CellRecord]]:
    trained = [cell for cell in record["cells"] if cell["row"] != ALONE]
    tables = dict.fromkeys(cell["table"] for cell in trained)
    return {table: [cell for cell in trained if cell["table"] == table] for table in tables}


def _section(device: str, cells: Sequence[CellRecord], folder: Path) -> Section:
    rows, lines, bars = [], [], []
    for cell in cells:
        epoch, how = f"{estimate(cell['seconds'])} s", _how(cell)
        means = {name: values["median"] for name, values in cell["figures"].items()}  # by the GPU, where it was asked
        prefix, names = ("device_", DEVICE) if means.get("device_total") else ("step_", PHASES)
        phases = {name: means[prefix + name] for name in names if prefix + name in means}
        total = sum(phases.values())
        shares = {name: percent(value / total) if total else "" for name, value in phases.items()}
        wait = shares.get("data_wait", shares.get("idle", percent(0) if total else ""))
        rate = figure(speed(cell))
        rows.append([cell["row"], epoch, how, rate, f"{milliseconds(total)} ms", wait])
        division = ", ".join(f"{name.replace('_', ' ')} {share}" for name, share in shares.items() if share)
        lines.append(f"{cell['row']}: {epoch} an epoch, {how}; a step of {duration(total)}: {division}")
        bars += [stacked(cell["row"], segments(phases), total, total)] if total else []
    waits, clock = ("Waiting for data", "the host's clock") if device == "cpu" else ("Idle", "the GPU's own clock")
    note = (
        f"An epoch is the input's {cells[0]['images']:,.0f} training images, without validation. It is measured where "
        "the timed steps make up a whole one at least, and else extrapolated from them. Phases are means of steps, by "
        f"{clock}; each bar is one step, as wide as the others. "
    )
    if min(len(cell["visits"]) for cell in cells) < INTERVAL:
        note += f"Brackets hold the range of the trials where these are fewer than {INTERVAL}. "
    without = [
        cell["row"]
        for cell in cells
        if not any((folder / TRACES / slug(f"{device} {cell['row']}")).glob("*.pt.trace.json*"))
    ]
    lack = f", but for {' and '.join(without)}" if without else ""
    note += (
        f"Traces of steps of each row{lack} lie in {TRACES}/: tensorboard --logdir with this folder shows them (its "
        "profiler tab's Overview needs the internet); tables of their operators lie in tables/."
        if len(without) < len(cells)
        else "There are no traces."
    )
    heads = ("", "#An epoch", "", "#Images/s", "#A step", f"#{waits}")
    body: list[parts.Part] = [parts.Paragraph(note), parts.Table(heads, rows, "cells"), *bars]
    return Section(f"Epochs and steps on {DEVICES[device]}", body, "\n".join(lines))


def _how(cell: CellRecord) -> str:
    """Whether an epoch was timed in every trial."""
    if cell["figures"]["epochs"]["low"] >= 1:
        return "measured"
    return f"extrapolated from {cell['figures']['timed_images']['median']:,.0f} images"
