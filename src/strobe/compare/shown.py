"""The cells of a comparison as the page shows them: with figures where there are any, and names as short as can be."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from strobe.callbacks.columns import PHASES
from strobe.compare.cells import BATCH
from strobe.present.format import TIMES, counted, interval, times
from strobe.present.parts import Text
from strobe.records.run import Record, as_number

BATCH_SIZE, WORKERS = BATCH, "engine.num_workers"
_USED = {  # what a record says of the keys that are not called the same there
    **{f"trainer.{name}": name for name in ("accelerator", "devices", "precision")},
    **{BATCH_SIZE: "batch_size", WORKERS: "num_workers", "model.channels_last": "channels_last"},
}
DEVICE = frozenset({"trainer", "trainer.accelerator", "trainer.devices", "accelerator", "devices"})
DEFAULT = "default"
MARKS = {"faster": "\u25b2", "slower": "\u25bc", "no difference": "=", "baseline": "\u25c6", "too few runs": "?"}
_CSS = {"faster": "good", "slower": "bad", "too few runs": "fair"}
_PLAIN = re.compile(r"[-+.\de]+|true|false|null|none|default", re.IGNORECASE)


@dataclass(frozen=True)
class Value:
    """A figure with its interval, if there is one: 95% of images/s, 97% of a ratio.

    ``of`` says over what: runs, or the steps of one run.
    """

    median: float
    low: float | None
    high: float | None
    of: str = "runs"

    @property
    def interval(self) -> str:
        """``75.0 to 80.7``; empty where it is not known."""
        return interval(self.low, self.high)

    @property
    def factors(self) -> str:
        """``1.31 to 1.55``: the interval of a ratio, beside which the sign for times stands already."""
        return interval(self.low, self.high, lambda value: times(value).removesuffix(TIMES))

    @property
    def ends(self) -> list[float]:
        """The figure and the ends of its interval, as far as they are known."""
        return [end for end in (self.low, self.median, self.high) if end is not None]


@dataclass(frozen=True)
class Cell:
    """One configuration; rates are in images/s, times in seconds an image, memory in bytes."""

    record: Record
    place: int  # in the comparison's order, from 0

    @property
    def name(self) -> str:
        """The overrides that differ; of a cell without any, what it is then."""
        return self.record.text("name") or "no overrides"

    @property
    def status(self) -> str:
        """``completed``, ``failed``, ``interrupted`` or ``mixed``."""
        return self.record.text("status") or "unknown"

    @property
    def verdict(self) -> str:
        """Against the baseline; empty where there is none."""
        return self.record.text("verdict") or ""

    @property
    def judged(self) -> Text:
        """The verdict with its sign, which says the same as its colour."""
        css = f"verdict {_CSS.get(self.verdict, 'none')}"
        return Text(self.verdict[:40], "span", css, sign=MARKS.get(self.verdict, ""))

    @cached_property
    def rate(self) -> Value | None:
        """Images/s."""
        return _value(self.record, "images_per_second")

    @cached_property
    def speedup(self) -> Value | None:
        """Against the baseline."""
        return _value(self.record, "speedup")

    @cached_property
    def phases(self) -> dict[str, float]:
        """Seconds an image of each phase of a step, and of what lies between steps; empty where one is unknown."""
        images = self.record.number("images_per_step") or self.record.number("values", "batch_size")
        known = {name: self.record.number("step_seconds", name) for name in PHASES}
        if not images or images <= 0 or not any(known.values()):
            return {}
        known["between"] = self.record.number("between_seconds")
        found = {name: value / images for name, value in known.items() if value is not None and value >= 0}
        return found if sum(found.values()) > 0 else {}

    @property
    def waiting(self) -> float | None:
        """The share of a step that is spent waiting for data."""
        wait, total = (self.record.number("step_seconds", name) for name in ("data_wait", "total"))
        return wait / total if wait is not None and total else None

    @property
    def accuracy(self) -> tuple[str, float] | None:
        """Which one and how much, from 0 to 1: of the test, else of the validation."""
        for name in ("test/accuracy", "val/accuracy"):
            if (value := self.record.number("accuracy", name)) is not None:
                return name, value
        return None

    @property
    def on_gpu(self) -> bool | None:
        """Whether it trained on an accelerator; None where that is not known."""
        used = self.record.text("values", "accelerator")
        return None if used is None or used == "auto" else used != "cpu"

    @property
    def runs(self) -> list[Record]:
        """Those that measured it."""
        return [Record(run) for run in self.record.items("runs") if isinstance(run, dict)]

    def setting(self, key: str) -> tuple[str, bool]:
        """The value of an override's key, and whether it was given; else what the run used, as far as that is known."""
        given = self.record.mapping("overrides").get(key)
        if given not in (None, ""):
            return str(given), True
        used = self.record.mapping("values").get(_USED.get(key, key))
        known = isinstance(used, (str, int, float)) and used != ""
        return (str(used).lower() if isinstance(used, bool) else str(used)) if known else DEFAULT, False

    def short(self, keys: Iterable[str]) -> str:
        """What these keys are here, such as ``native, batch 32, 2 workers``."""
        return ", ".join(_worded(key, self.setting(key)[0]) for key in keys)


@dataclass(frozen=True)
class Comparison:
    """All cells, in the record's order."""

    record: Record
    cells: Sequence[Cell]

    @cached_property
    def keys(self) -> list[str]:
        """Of the overrides that differ, in order."""
        return [key for key in self.record.items("keys") if isinstance(key, str)]

    @cached_property
    def measured(self) -> list[Cell]:
        """Those with a rate."""
        return [cell for cell in self.cells if cell.rate]

    @property
    def gpus(self) -> list[str]:
        """The names of the GPUs that any cell ran on."""
        return list(dict.fromkeys(text for cell in self.cells if (text := cell.record.text("gpu"))))

    @cached_property
    def baseline(self) -> Cell | None:
        """The cell that the others are held against, where it is one of them."""
        name = self.record.text("baseline")
        return next((cell for cell in self.cells if name and cell.record.text("name") == name), None)

    @property
    def against(self) -> str | None:
        """What speed-ups are against, in words; None where there are none."""
        if name := self.record.text("baseline"):
            return f"the baseline, {name}"
        folder = self.record.text("against")
        return f"the same cell in {folder}" if folder else None

    @cached_property
    def best(self) -> Cell | None:
        """The fastest completed cell."""
        return next((cell for cell in self.cells if cell.record.flag("best") and cell.rate), None)

    def grouped(self, without: Collection[str]) -> list[list[Cell]]:
        """Measured cells that are alike in all overrides but these."""
        kept = [key for key in self.keys if key not in without]
        found: dict[tuple[str, ...], list[Cell]] = {}
        for cell in self.measured:
            found.setdefault(tuple(cell.setting(key)[0] for key in kept), []).append(cell)
        return list(found.values())

    def varying(self, cells: Iterable[Cell], without: Collection[str] = ()) -> list[str]:
        """The keys in which these cells differ."""
        cells = list(cells)
        kept = [key for key in self.keys if key not in without]
        return [key for key in kept if len({cell.setting(key)[0] for cell in cells}) > 1]

    def special(self, cell: Cell) -> list[str]:
        """What is special about a cell."""
        return ["fastest"] * (cell is self.best) + ["baseline"] * (cell is self.baseline)

    def label(self, cell: Cell) -> Text:
        """A cell's name beside its row of a chart."""
        return Text(cell.short(self.keys) or cell.name, "span", "name", [f" {words}" for words in self.special(cell)])

    def chosen(self, cells: Sequence[Cell], most: int) -> tuple[list[Cell], str]:
        """So many cells at most: the fastest, the baseline and the slowest; with the words for what was left out."""
        if len(cells) <= most:
            return list(cells), ""
        fast, slow = most - most // 3, most // 3
        found = [*cells[:fast], *cells[-slow:]]
        also = ""
        if self.baseline in cells and self.baseline not in found:
            found[fast:fast] = [self.baseline] if self.baseline else []
            also = ", the baseline"
        shown = f"The {fast:,} fastest{also} and the {slow:,} slowest of {counted(len(cells), 'cell')}"
        return found, f"{shown}; the table holds all of them."


def comparison_of(record: Mapping[str, Any]) -> Comparison:
    """The comparison of a ``comparison.json``."""
    found = Record(dict(record))
    cells = [cell for cell in found.items("cells") if isinstance(cell, dict)]
    return Comparison(found, [Cell(Record(cell), place) for place, cell in enumerate(cells)])


def _value(record: Record, key: str) -> Value | None:
    median, low, high = (record.number(key, end) for end in ("median", "low", "high"))
    if median is None or median <= 0:
        return None
    known = low is not None and high is not None and 0 <= low <= high
    return Value(median, low if known else None, high if known else None, record.text(key, "of") or "runs")


def _worded(key: str, value: str) -> str:
    name = key.rpartition(".")[2].replace("_", " ")
    if name == "num workers":
        number = as_number(int(value)) if value.isdecimal() and len(value) < 9 else None
        return f"{value} workers" if number is None else f"{value} worker{'s' * (number != 1)}"
    if name == "batch size":
        return f"batch {value}"
    return f"{name} {value}" if _PLAIN.fullmatch(value) else value
