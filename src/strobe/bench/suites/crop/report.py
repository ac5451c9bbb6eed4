"""What follows from the figures of ``suite=crop``, and where the time of its training steps goes."""

from collections.abc import Mapping
from typing import Any

from strobe.bench.harness.declare import Section
from strobe.bench.harness.results import by_round, reaches
from strobe.bench.suites.crop.cells import PIXELS, WHOLE
from strobe.bench.suites.crop.pipeline import COLOUR, DECODE, MASK, SCALE, STEP
from strobe.measure.statistics import Interval
from strobe.present.charts.rows import Segment, Stack, stacks
from strobe.present.format import estimate as written
from strobe.present.format import milliseconds
from strobe.present.parts import Key, Keys, Paragraph, Part, Table

Cell = Mapping[str, Any]  # of results.json
PARTS = {DECODE: "decode, crop", MASK: "random mask", COLOUR: "colours", SCALE: "scale", STEP: "training"}
REST = "the rest"  # joining the batch, and the profiler's own
AIMS = {"pil": 4.0, "torchvision": 2.2}  # times as many crops/s by the native decoder, for 256 of 533x800
AIMED = 533 * 800  # pixels of the photos that aims are for
NEAR = 0.25  # share of that by which photos may differ, and aims are still told
PUBLISHED = 0.72 / 0.48  # seconds of a step before and after, in the study
Parts = dict[str, float]
_NOTE = (
    "Milliseconds of a step: means over the steps of a trace in which everything, loading too, is done in the "
    "training process, one thing after the other, and the profiler is on. So they tell how the time divides; how "
    "long a step takes beside a worker process is in the table above. The traces lie in tensorboard/, a folder for "
    "each decoder."
)


def conclusions(record: Mapping[str, Any]) -> list[str]:
    """What decoding only the crop gains, alone and in a step; and what failed."""
    cells = {(cell["table"], cell["row"], cell["column"]): cell for cell in record["cells"]}
    found = [f"{cell['name']} failed: {cell['error']}" for cell in record["cells"] if cell["error"]]
    rows = list(dict.fromkeys((cell["table"], cell["row"]) for cell in record["cells"]))
    for kind, row in rows:
        if (native := cells.get((kind, row, "native"))) is None:
            continue
        others = [name for name in ("pil", "torchvision", "spdl") if (kind, row, name) in cells]
        ratios = {name: ratio for name in others if (ratio := by_round(native, cells[kind, row, name]))}
        if kind == "decode":
            found += [_alone(name, native, ratio) for name, ratio in ratios.items()]
        else:
            found += [_in_step(name, row, native, cells[kind, row, name], ratio) for name, ratio in ratios.items()]
    return found


def _alone(other: str, native: Cell, ratio: Interval) -> str:
    aimed = other in AIMS and _is_published_size(native)
    aim = f"; aim {AIMS[other]:g}: {reaches(ratio, AIMS[other])}" if aimed else ""
    return f"Decoding only the crop is {written(ratio)} times as fast as {other}{aim}."


def _in_step(other: str, row: str, native: Cell, cell: Cell, ratio: Interval) -> str:
    before, after = (milliseconds(one["seconds"]["median"]) for one in (cell, native))
    beside = f"with {row} worker process{'es' * (row != '1')}"
    sentence = f"A training step {beside} takes {before} ms with {other} and {after} ms with native, in the median; "
    sentence += f"round by round it is {written(ratio)} times as fast"
    if other != "pil" or not _is_published_size(native):
        return f"{sentence}."
    judged = reaches(ratio, PUBLISHED)
    return f"{sentence}; published 0.72 s and 0.48 s, aim {PUBLISHED:.2g}: {judged}."


def _is_published_size(cell: Cell) -> bool:
    """Whether the photos have about as many pixels as those that the aims are for."""
    pixels = cell["figures"].get(PIXELS, {}).get("median")
    return pixels is not None and abs(pixels / AIMED - 1) <= NEAR


def parts_of_a_step(record: Mapping[str, Any]) -> list[Section]:
    """A section with a bar for each decoder whose steps were traced, stacked of the parts of a step."""
    found = {cell["column"]: parts for cell in record["cells"] if (parts := _parts(cell))}
    if not found:
        return []
    names = [*PARTS.values(), REST]
    css = {part: f"s{place}" for place, part in enumerate(names, 1)}
    rows = [
        [name, *(milliseconds(parts[part]) for part in names), milliseconds(sum(parts.values()))]
        for name, parts in found.items()
    ]
    bars = [
        Stack(name, name, [Segment(part, css[part], parts[part]) for part in names]) for name, parts in found.items()
    ]
    text = "\n".join(
        f"{name}: {', '.join(f'{part} {milliseconds(parts[part])}' for part in names)}; ms a step"
        for name, parts in found.items()
    )
    drawn: list[Part] = [Keys([Key(f"key {css[part]}", part) for part in names]), stacks(bars, "a step")]
    table = Table(["decoder", *(f"#{part}" for part in names), "#step"], rows, "cells")
    return [Section("Where a step's time goes", [Paragraph(_NOTE), *drawn, table], text)]


def _parts(cell: Cell) -> Parts:
    """Seconds of a step by part, the rest among them; nothing without a trace."""
    means = {name: figure["median"] for name, figure in cell["figures"].items()}
    if any(means.get(name) is None for name in (*PARTS, WHOLE)):
        return {}
    parts = {title: means[name] for name, title in PARTS.items()}
    return parts | {REST: max(0.0, means[WHOLE] - sum(parts.values()))}
