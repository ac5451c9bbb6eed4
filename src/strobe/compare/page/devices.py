"""CPU against GPU: pairs of cells that are alike in all but the device."""

import statistics
from dataclasses import dataclass

from strobe.bench.page.page import wide
from strobe.compare.page.cells import DEVICE, Cell, Comparison
from strobe.compare.page.words import beside, value_interval
from strobe.report.html.drawing import rect
from strobe.report.html.pieces import more, section, table
from strobe.report.html.text import counted, esc, rate, times

MOST = 24  # pairs
_BAR = 9  # pixels


@dataclass(frozen=True)
class Pair:
    """The fastest cell on the CPU and the fastest on the GPU of those that are alike otherwise."""

    cpu: Cell
    gpu: Cell

    @property
    def ratio(self) -> float:
        """How many times as fast the GPU is."""
        return self.gpu.rate.median / self.cpu.rate.median if self.gpu.rate and self.cpu.rate else 0.0


def pairs(compared: Comparison) -> list[Pair]:
    """The greatest gain first."""
    found = []
    for group in compared.grouped(DEVICE):
        cpu = next((cell for cell in group if cell.on_gpu is False), None)
        gpu = next((cell for cell in group if cell.on_gpu), None)
        if cpu and gpu:
            found.append(Pair(cpu, gpu))
    return sorted(found, key=lambda pair: -pair.ratio)


def devices(compared: Comparison) -> str:
    """The section; empty without a pair."""
    found = pairs(compared)
    if not found:
        return ""
    keys = compared.varying([cell for pair in found for cell in (pair.cpu, pair.gpu)], DEVICE)
    top = max(pair.ratio for pair in found)
    rows = [
        (
            esc(pair.cpu.short(keys) or "all else alike"),
            _rate(pair.cpu),
            _rate(pair.gpu),
            f"<b>{times(pair.ratio)}</b>",
            beside(_BAR, [rect(0, 0, pair.ratio / top, _BAR, "bar s1")]),
        )
        for pair in found[:MOST]
    ]
    grid = table(("Cells", "#CPU, images/s", "#GPU, images/s", "#GPU against CPU", ""), rows, "cells devices")
    note = (
        "Pairs of cells alike in all but the device; small below a figure: its 95% interval. "
        "The ratio has neither interval nor verdict here; for those name one of the cells as --baseline."
    )
    return wide(
        section("devices", "CPU against GPU", note, f"<p>{_told(found)}</p>{grid}{more(len(found) - MOST, 'pairs')}")
    )


def _told(found: list[Pair]) -> str:
    ratios = [pair.ratio for pair in found]
    gpus = list(dict.fromkeys(pair.gpu.record.text("gpu") or "the GPU" for pair in found))
    who = esc(gpus[0], 80) if len(gpus) == 1 else "the GPU"
    if len(ratios) == 1:
        return f"On {who} it trains {times(ratios[0])} as fast as on the CPU."
    spread = f"{times(min(ratios))} to {times(max(ratios))} as fast as on the CPU"
    middle = f"{times(statistics.median(ratios))} in the median of {counted(len(ratios), 'pair')}"
    return f"On {who} it trains {spread}, {middle}."


def _rate(cell: Cell) -> str:
    return f"{rate(cell.rate.median)}<small>{value_interval(cell.rate, rate)}</small>" if cell.rate else ""
