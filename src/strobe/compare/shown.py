"""The cells of a comparison as the page and the terminal show them, with figures where there are any."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from strobe.callbacks.columns import PHASES
from strobe.compare.cells import ACCURACY, SETTINGS
from strobe.present.format import Value, counted, percent
from strobe.present.parts import Text
from strobe.records.run import Record

_USED = {key: name for name, key in SETTINGS.items()} | {"model.channels_last": "channels_last"}  # in a record
DEVICE = frozenset({"trainer", "trainer.accelerator", "trainer.devices", "accelerator", "devices"})
DEFAULT = "default"
MARKS = {"faster": "\u25b2", "slower": "\u25bc", "no difference": "=", "baseline": "\u25c6"}
MARKS |= dict.fromkeys(("too few runs", "cannot tell", "not known"), "?")
_CSS = {"faster": "good", "slower": "bad", "too few runs": "fair", "not known": "fair"}
_PLAIN = re.compile(r"[-+.\de]+|true|false|null|none|default", re.IGNORECASE)


@dataclass(frozen=True)
class ComparedCell:
    """One configuration; rates are in the comparison's ``unit``, times in seconds for ``each``, memory in bytes."""

    record: Record
    best: bool  # the completed one with the highest rate
    place: str  # fastest; tied: several may be; highest: nobody knows whether it is the fastest; else empty
    baseline: bool
    name: str  # the overrides that differ
    status: str  # completed | failed | interrupted | mixed
    error: str  # of the first run that failed, if one has
    verdict: str  # against the baseline
    rate: Value | None
    speedup: Value | None  # against the baseline
    runs: Sequence[Mapping[str, Any]]

    @property
    def judged(self) -> Text:
        """The verdict with its sign, which says the same as its colour."""
        css = f"verdict {_CSS.get(self.verdict, 'none')}"
        return Text(self.told_verdict, "span", css, sign=MARKS.get(self.told_verdict, ""))

    @property
    def told_verdict(self) -> str:
        """The verdict; not ``no difference`` where the interval is too wide to say even that."""
        wide = self.speedup is not None and not self.speedup.tells
        return "cannot tell" if wide and self.verdict == "no difference" else self.verdict

    @cached_property
    def phases(self) -> dict[str, float]:
        """Seconds of each phase of a step, and of what lies between, for each image; empty where one is unknown."""
        images = self.record.number("images_per_step") or self.record.number("values", "batch_size")
        known = {name: self.record.number("step_seconds", name) for name in PHASES}
        if not images or not any(known.values()):
            return {}
        known["between"] = self.record.number("between_seconds")
        return {name: value / images for name, value in known.items() if value is not None}

    def share(self, *phases: str, rest: bool = False) -> str:
        """What these phases take of a step, or leave of it; empty where that is not known of any."""
        total = self.record.number("step_seconds", "total")
        known = [value for name in phases if (value := self.record.number("step_seconds", name)) is not None]
        if not known or not total:
            return ""
        return percent(max(0.0, 1 - sum(known) / total) if rest else sum(known) / total)

    @property
    def accuracy(self) -> tuple[str, float] | None:
        """Which one and how much, from 0 to 1: of the test, else of the validation."""
        known = ((name, self.record.number("accuracy", name)) for name in ACCURACY)
        return next(((name, value) for name, value in known if value is not None), None)

    @property
    def on_gpu(self) -> bool | None:
        """Whether it trained on an accelerator; None where that is not known."""
        used = self.record.text("values", "accelerator")
        return None if used is None or used == "auto" else used != "cpu"

    def told(self, show: Callable[[float], str], *path: str) -> str:
        """A number of the record in words; empty where there is none."""
        value = self.record.number(*path)
        return "" if value is None else show(value)

    def setting(self, key: str) -> tuple[str, bool]:
        """The value of an override's key, and whether it was given; else what the run used, as far as that is known."""
        if override := self.record.mapping("overrides").get(key):
            return str(override), True
        used = self.record.mapping("values").get(_USED.get(key, key))
        if used is None or used == "":
            return DEFAULT, False
        return str(used).lower() if isinstance(used, bool) else str(used), False

    def short(self, keys: Iterable[str]) -> str:
        """What these keys are here, such as ``native, batch 32, 2 workers``."""
        return ", ".join(_worded(key, self.setting(key)[0]) for key in keys)

    @property
    def special(self) -> list[str]:
        """What is special about it."""
        return [self.place] * bool(self.place) + ["baseline"] * self.baseline


@dataclass(frozen=True)
class Comparison:
    """All cells, in the record's order."""

    record: Record
    keys: Sequence[str]  # of the overrides that differ, in order
    cells: Sequence[ComparedCell]
    measured: Sequence[ComparedCell]
    best: ComparedCell | None  # the completed one with the highest rate
    baseline: ComparedCell | None  # that the others are held against, where it is one of them
    gpus: Sequence[str]  # that any cell ran on

    @property
    def _counted(self) -> list[str]:
        """What its rates count: images; of other people's trainings samples, or steps of unknown size."""
        return sorted({cell.record.text("unit") or "images" for cell in self.measured}) or ["images"]

    @property
    def unit(self) -> str:
        """Of its rates: images/s, samples/s, steps/s."""
        return " or ".join(f"{name}/s" for name in self._counted)

    @property
    def each(self) -> str:
        """One of what its rates count: an image, a sample, a step."""
        return " or ".join(f"{'an' if name[0] in 'aeiou' else 'a'} {name.removesuffix('s')}" for name in self._counted)

    @property
    def alone(self) -> str:
        """That only one cell was measured, where nothing is to be compared with it; else empty."""
        if len(self.measured) != 1 or self.measured[0].speedup:
            return ""
        return f"Only one cell, {self.called(self.measured[0])}, was measured, so there is nothing to compare it with"

    @property
    def against(self) -> str:
        """What speed-ups are against, in words; empty where there are none."""
        if name := self.record.text("baseline"):
            return f"the baseline, {self.called(self.baseline) if self.baseline else name}"
        folder = self.record.text("against")
        return f"the same cell in {folder}" if folder else ""

    def grouped(self, without: Collection[str]) -> list[list[ComparedCell]]:
        """Measured cells that are alike in all overrides but these."""
        kept = [key for key in self.keys if key not in without]
        groups: dict[tuple[str, ...], list[ComparedCell]] = {}
        for cell in self.measured:
            groups.setdefault(tuple(cell.setting(key)[0] for key in kept), []).append(cell)
        return list(groups.values())

    def varying(self, cells: Collection[ComparedCell], without: Collection[str]) -> list[str]:
        """The keys in which these cells differ."""
        kept = [key for key in self.keys if key not in without]
        return [key for key in kept if len({cell.setting(key)[0] for cell in cells}) > 1]

    def called(self, cell: ComparedCell) -> str:
        """A cell's name in words."""
        return cell.short(self.keys) or cell.name

    def label(self, cell: ComparedCell) -> Text:
        """A cell's name beside its row of a chart."""
        return Text(self.called(cell), "span", "name", [f" {words}" for words in cell.special])

    def chosen(self, cells: Sequence[ComparedCell], most: int) -> tuple[list[ComparedCell], str]:
        """So many cells at most: the fastest, the baseline and the slowest; with the words for what was left out."""
        if len(cells) <= most:
            return list(cells), ""
        fast, slow = most - most // 3, most // 3
        between = [cell for cell in cells[fast:-slow] if cell.baseline]
        also = ", the baseline" * bool(between)
        shown = f"The {fast:,} fastest{also} and the {slow:,} slowest of {counted(len(cells), 'cell')}"
        return [*cells[:fast], *between, *cells[-slow:]], f"{shown}; the table holds all of them."


def comparison_of(record: Mapping[str, Any]) -> Comparison:
    """The comparison of a ``comparison.json``."""
    cells, tied = [], sum(entry["fastest"] is True for entry in record["cells"]) > 1
    several = sum(bool(entry["images_per_second"]) for entry in record["cells"]) > 1
    for entry in record["cells"]:
        rate, speedup = (Value(**entry[key]) if entry[key] else None for key in ("images_per_second", "speedup"))
        words = (entry["name"], entry["status"], entry["error"] or "", entry["verdict"])
        best, baseline = bool(entry["best"] and rate), entry["name"] == record["baseline"]
        place = ("tied" if tied else "fastest") if entry["fastest"] else "highest" if best and several else ""
        cells.append(ComparedCell(Record(entry), best, place, baseline, *words, rate, speedup, entry["runs"]))
    measured = [cell for cell in cells if cell.rate]
    best_cell = next((cell for cell in cells if cell.best), None)
    baseline_cell = next((cell for cell in cells if cell.baseline), None)
    gpus = list(dict.fromkeys(text for cell in cells if (text := cell.record.text("gpu"))))
    return Comparison(Record(dict(record)), record["keys"], cells, measured, best_cell, baseline_cell, gpus)


def between(knee: Mapping[str, Any]) -> str:
    """Between which batch sizes a knee lies, in words."""
    low, high = knee["low"], knee["high"]
    if low is None:
        return "not known, the runs are too few or differ too much"
    return f"{low} to {high}" if low < high else f"{low}"


def _worded(key: str, value: str) -> str:
    name = key.rpartition(".")[2].replace("_", " ")
    if name == "num workers":
        return f"{value} worker{'s' * (value != '1')}"
    if name == "batch size":
        return f"batch {value}"
    return f"{name} {value}" if _PLAIN.fullmatch(value) else value
