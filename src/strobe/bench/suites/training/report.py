"""What follows from the figures of ``suite=training``, and where its steps go. Imports no torch."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from strobe.bench.harness.declare import Section
from strobe.bench.harness.results import by_round
from strobe.bench.harness.schedule import slug
from strobe.callbacks.columns import PHASES
from strobe.present.charts.rows import stacked
from strobe.present.format import duration, figure, milliseconds, percent
from strobe.present.format import estimate as written
from strobe.present.parts import Paragraph, Part, Table
from strobe.report.steps import DEVICE, segments

TRACES = "tensorboard"  # a run's folder, with one of each row's traces in it
DEVICES = {"cpu": "the CPU", "gpu": "the GPU"}
INTERVAL = 6  # trials, from which on the order statistics enclose the median in 95 of 100 cases
Cell = Mapping[str, Any]  # of results.json


def conclude(record: Mapping[str, Any]) -> list[str]:
    """For each device the first row's speed, what each change brings, and all of them together; and a GPU's gain."""
    found = [f"{cell['name']} was not measured: {cell['error']}" for cell in record["cells"] if _failed(cell)]
    for device, cells in _by_device(record).items():
        first, last = cells[0], cells[-1]
        if first["visits"]:
            found.append(f"On {DEVICES[device]}, {first['row']}: {_speed(first)}.")
        for before, cell in pairwise(cells):
            if ratio := by_round(cell, before):
                change = f"{cell['row'].capitalize()}, on {DEVICES[device]}"
                found.append(f"{change}: {written(ratio)} times as fast as {before['row']}.")
        if last["visits"] and (ratio := by_round(last, first)):
            found.append(f"Together, on {DEVICES[device]}: {written(ratio)} times as fast; {_speed(last)}.")
    return [*found, *_across(_by_device(record))]


def _across(devices: Mapping[str, Sequence[Cell]]) -> list[str]:
    """The GPU's first row, and its fastest one, against the CPU's first row."""
    measured = [cell for cell in devices.get("gpu", ()) if cell["visits"]]
    if not measured or not devices.get("cpu"):
        return []
    cpu, gpu = devices["cpu"][0], devices["gpu"][0]
    best = max(measured, key=lambda cell: cell["images_per_second"]["median"])
    found = []
    if ratio := by_round(gpu, cpu):
        found.append(f"The GPU against the CPU, {gpu['row']}: {written(ratio)} times as fast.")
    if ratio := by_round(best, cpu):
        rows = f"From the CPU's first row, {cpu['row']}, to the GPU's fastest, {best['row']}"
        found.append(f"{rows}: {written(ratio)} times as fast.")
    return found


def traced(device: str, row: str) -> str:
    """The name of the folder of a row's traces."""
    return slug(f"{device} {row}")


def sections(record: Mapping[str, Any], folder: Path) -> list[Section]:
    """An epoch's time and a step's phases of each row, for each device."""
    return [
        _section(device, measured, folder)
        for device, cells in _by_device(record).items()
        if (measured := [cell for cell in cells if cell["visits"]])
    ]


def _by_device(record: Mapping[str, Any]) -> dict[str, list[Cell]]:
    return {
        device: [cell for cell in record["cells"] if cell["table"] == device]
        for device in dict.fromkeys(cell["table"] for cell in record["cells"])
    }


def _section(device: str, cells: Sequence[Cell], folder: Path) -> Section:
    shown = [(cell, *_phases(cell)) for cell in cells]
    rows, lines = [], []
    for cell, phases, total in shown:
        wait = phases.get("data_wait", phases.get("idle", 0.0))
        rows.append(
            [
                cell["row"],
                _epoch(cell),
                _how(cell),
                figure(cell["images_per_second"]["median"]),
                f"{milliseconds(total)} ms",
                percent(wait / total) if total else "",
            ]
        )
        parts = ", ".join(
            f"{name.replace('_', ' ')} {percent(value / total)}" for name, value in phases.items() if total
        )
        lines.append(f"{cell['row']}: {_epoch(cell)} an epoch, {_how(cell)}; a step of {duration(total)}: {parts}")
    waits = "waiting for data" if device == "cpu" else "idle"
    heads = ("", "#An epoch", "", "#Images/s", "#A step", f"#{waits.capitalize()}")
    clock = "the host's clock" if device == "cpu" else "the GPU's own clock"
    note = (
        f"An epoch is the input's {_images(cells[0])} training images, without validation. It is measured where the "
        "timed steps make up a whole one at least, and else extrapolated from them. Phases are means of steps, by "
        f"{clock}; each bar is one step, as wide as the others. {_few(cells)}{_traces(device, cells, folder)}"
    )
    bars = [stacked(cell["row"], segments(phases), total, total) for cell, phases, total in shown if total]
    body: list[Part] = [Paragraph(note), Table(heads, rows, "cells"), *bars]
    return Section(f"Epochs and steps on {DEVICES[device]}", body, "\n".join(lines))


def _few(cells: Sequence[Cell]) -> str:
    """That brackets hold no intervals, if so."""
    if min(len(cell["visits"]) for cell in cells) >= INTERVAL:
        return ""
    return f"Brackets hold the range of the trials where these are fewer than {INTERVAL}. "


def _traces(device: str, cells: Sequence[Cell], folder: Path) -> str:
    """Where traces lie; of which rows there are none."""
    without = [
        cell["row"]
        for cell in cells
        if not any((folder / TRACES / traced(device, cell["row"])).glob("*.pt.trace.json*"))
    ]
    if len(without) == len(cells):
        return "There are no traces."
    lack = f", but for {' and '.join(without)}" if without else ""
    return (
        f"Traces of steps of each row{lack} lie in {TRACES}/: tensorboard --logdir with this folder shows them; "
        "tables of their operators lie in tables/."
    )


def _phases(cell: Cell) -> tuple[dict[str, float], float]:
    """Mean seconds of a step by phase, and of the whole step: the GPU's, where it was asked, else the host's."""
    means = {name: interval["median"] for name, interval in cell["figures"].items() if interval["median"] is not None}
    prefix, names = ("device_", DEVICE) if means.get("device_total") else ("step_", PHASES)
    phases = {name: means[prefix + name] for name in names if prefix + name in means}
    return phases, sum(phases.values())


def _failed(cell: Cell) -> bool:
    return bool(cell["error"]) and not cell["visits"]


def _images(cell: Cell) -> str:
    return f"{cell['images']:,.0f}"


def _speed(cell: Cell) -> str:
    rate = f"{written(cell['images_per_second'])} images/s"
    return f"{rate}, {_epoch(cell)} an epoch of {_images(cell)} images, {_how(cell)}"


def _epoch(cell: Cell) -> str:
    """``12.3 (12.1 to 12.6) s``."""
    return f"{written(cell['seconds'])} s"


def _how(cell: Cell) -> str:
    """Whether an epoch was timed in every trial."""
    if cell["figures"]["epochs"]["low"] >= 1:
        return "measured"
    return f"extrapolated from {cell['figures']['timed_images']['median']:,.0f} images"
