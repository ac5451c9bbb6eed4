"""What follows from the figures of ``suite=crop``, and where the time of its training steps goes."""

from collections.abc import Mapping, Sequence
from typing import Any

from strobe.bench.aims import verdict
from strobe.bench.harness.declare import Section
from strobe.bench.harness.results import by_round
from strobe.bench.harness.wording import ratio as written
from strobe.bench.page.picture import Picture, width_of, words
from strobe.bench.page.scale import Scale
from strobe.bench.suites.crop.cells import PIXELS, WHOLE
from strobe.bench.suites.crop.pipeline import COLOUR, DECODE, MASK, SCALE, STEP
from strobe.measure.statistics import Interval
from strobe.report.html.drawing import label, line, rect
from strobe.report.html.pieces import table
from strobe.report.html.text import esc, milliseconds

Cell = Mapping[str, Any]  # of results.json
PARTS = {DECODE: "decode, crop", MASK: "random mask", COLOUR: "colours", SCALE: "scale", STEP: "training"}
REST = "the rest"  # joining the batch, and the profiler's own
AIMS = {"pil": 4.0, "torchvision": 2.2}  # times as many crops/s by the native decoder, for 256 of 533x800
AIMED = 533 * 800  # pixels of the photos that aims are for
NEAR = 0.25  # share of that by which photos may differ, and aims are still told
PUBLISHED = 0.72 / 0.48  # seconds of a step before and after, in the study
_PITCH, _BAR, _TOP = 26, 14, 48  # pixels
Parts = dict[str, float]


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
    aim = f"; aim {AIMS[other]:g}: {verdict(ratio, AIMS[other])}" if aimed else ""
    return f"Decoding only the crop is {written(ratio)} times as fast as {other}{aim}."


def _in_step(other: str, row: str, native: Cell, cell: Cell, ratio: Interval) -> str:
    before, after = (milliseconds(one["seconds"]["median"]) for one in (cell, native))
    beside = f"with {row} worker process{'es' * (row != '1')}"
    sentence = f"A training step {beside} takes {before} ms with {other} and {after} ms with native, in the median; "
    sentence += f"round by round it is {written(ratio)} times as fast"
    if other != "pil" or not _is_published_size(native):
        return f"{sentence}."
    judged = verdict(ratio, PUBLISHED)
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
    rows = [
        [esc(name), *(milliseconds(parts[part]) for part in names), milliseconds(sum(parts.values()))]
        for name, parts in found.items()
    ]
    heads = ["decoder", *(f'#<i class="key s{place + 1}"></i>{part}' for place, part in enumerate(names)), "#step"]
    note = (
        "<p>Milliseconds of a step: means over the steps of a trace in which everything, loading too, is done in the "
        "training process, one thing after the other, and the profiler is on. So they tell how the time divides; how "
        "long a step takes beside a worker process is in the table above. The traces lie in <code>tensorboard/</code>, "
        "a folder for each decoder.</p>"
    )
    text = "\n".join(
        f"{name}: {', '.join(f'{part} {milliseconds(parts[part])}' for part in names)}; ms a step"
        for name, parts in found.items()
    )
    drawn = _bars(found, names).inline()
    return [Section("Where a step's time goes", note + drawn + table(heads, rows, "cells"), text)]


def _parts(cell: Cell) -> Parts:
    """Seconds of a step by part, the rest among them; nothing without a trace."""
    means = {name: figure["median"] for name, figure in cell["figures"].items()}
    if any(means.get(name) is None for name in (*PARTS, WHOLE)):
        return {}
    parts = {title: means[name] for name, title in PARTS.items()}
    return parts | {REST: max(0.0, means[WHOLE] - sum(parts.values()))}


def _bars(found: Mapping[str, Parts], names: Sequence[str]) -> Picture:
    scale = Scale(0.0, 1.04 * max(1e3 * sum(parts.values()) for parts in found.values()))
    left = max(width_of(name) for name in found) + 14
    height = _TOP + _PITCH * len(found) + 6.0
    inner = []
    for mark in scale.marks():
        place = scale.place(mark)
        inner += [line(place, _TOP - 6, place, height - 4, "grid" if mark else "base")]
        inner += [label(place, _TOP - 12, f"{mark:g}", "soft", "middle" if mark else "start")]
    outer = [words(0, 14, "ms a step; less is better", "soft")]
    for number, (name, parts) in enumerate(found.items()):
        top, end = _TOP + _PITCH * number + (_PITCH - _BAR) / 2, 0.0
        outer.append(words(0, top + _BAR - 3, name))
        for place, part in enumerate(names):
            begin, end = end, end + 1e3 * parts[part]
            title = f"{name}: {part} {milliseconds(parts[part])} ms"
            inner.append(
                rect(scale.place(begin), top, scale.place(end) - scale.place(begin), _BAR, f"bar s{place + 1}", title)
            )
    return Picture("The parts of a training step, by decoder", height, outer, inner, left=left, right=14)
