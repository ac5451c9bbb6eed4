"""What a suite declares: its cells, what one repetition of each does, and how tables are shown. Imports no torch."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Literal

from omegaconf import DictConfig

from strobe.present.parts import Part

Cache = Literal["warm", "cold"]


@dataclass(frozen=True)
class Done:
    """What one repetition did; ``seconds`` if it timed itself, None to use the clock around it."""

    images: int
    seconds: float | None = None
    figures: Mapping[str, float] = field(default_factory=dict)  # whatever else it measured, such as phases


@dataclass(frozen=True)
class Work:
    """A cell that is ready to be measured in its own process."""

    repeat: Callable[[], int | Done]  # one repetition; gives the number of images it moved, or more
    warm_up: Callable[[], object] | None = None  # untimed, first; None: one repetition, unless ``once``
    files: Sequence[str] = ()  # paths that it reads: their page cache is brought into the cell's state
    once: bool = False  # time one repetition a trial, however short


@dataclass(frozen=True)
class Input:
    """The input, found or generated before anything is measured."""

    title: str  # such as "720 tiles of EuroSAT"
    generated: bool = False
    overrides: tuple[str, ...] = ()  # with which train.py's configuration finds it
    facts: Mapping[str, Any] = field(default_factory=dict)  # whatever else a suite's cells need, picklable


@dataclass(frozen=True)
class Request:
    """What the user asked for, from which the input is found."""

    cfg: DictConfig
    data: str  # the choice of ``data``
    overrides: tuple[str, ...]  # the user's own, of train.py's configuration


@dataclass(frozen=True)
class Trial:
    """What a cell's process needs to know."""

    folder: Path  # exists; for what the cell leaves behind, such as traces
    number: int  # of trials of this cell before, in this result
    overrides: tuple[str, ...]  # of train.py's configuration: the user's, and the input's
    input: Input
    scratch: Path  # empty, and removed after the trial


Make = Callable[[Trial], AbstractContextManager[Work]]


def deferred(place: str, **options: Any) -> Callable[..., Any]:
    """The function ``module:name`` below ``strobe.bench.suites`` with these options; imported where it is called."""
    return partial(_imported, place, **options)


def _imported(place: str, *arguments: Any, **options: Any) -> Any:
    return resolve_name(f"strobe.bench.suites.{place}")(*arguments, **options)


@dataclass(frozen=True)
class Cell:
    """One configuration, measured in processes of its own.

    ``make`` is called there: a module's function, or a ``functools.partial`` of one, so that it can be sent; one whose
    module imports torch is :func:`deferred`.
    """

    table: str
    row: str
    column: str
    make: Make
    threads: int = 1  # torch's
    cache: Cache | None = None  # of the files that it reads; None: it reads none, or does not care
    against: str | None = None  # another cell's name: the ratio of speeds is told
    at: float | None = None  # the row's place on a chart's axis

    @property
    def name(self) -> str:
        """The cell's name, unique within a suite."""
        parts = [self.table, self.row, self.column, f"{self.threads} threads" if self.threads > 1 else "1 thread"]
        return ", ".join(part for part in (*parts, self.cache or "") if part)


def slug(name: str) -> str:
    """A name as that of a file or folder."""
    kept = "".join(letter if letter.isalnum() or letter in "-." else " " for letter in name)
    return "_".join(kept.split()).strip("_.")[:120]


def row(table: str, name: str, columns: Mapping[str, Make], reference: str = "", **options: Any) -> list[Cell]:
    """A cell for each column; ratios are to the column ``reference`` if it exists, or else to the first one."""
    cells = [Cell(table, name, column, make, **options) for column, make in columns.items()]
    held = next((cell.name for cell in cells if cell.column == (reference or cells[0].column)), None)
    return [cell if cell.name == held else replace(cell, against=held) for cell in cells]


@dataclass(frozen=True)
class Table:
    """How the cells of one table are shown."""

    name: str  # as in ``Cell.table``
    title: str
    unit: Literal["ms", "images/s", "us an image"] = "images/s"
    chart: Literal["bars", "lines"] = "bars"
    rows: str = ""  # what the rows are, such as "batch size"; of lines, the horizontal axis
    logarithmic: bool = False  # the axis of the unit, and that of rows of a chart with lines


@dataclass(frozen=True)
class Plan:
    """How much is measured, unless the user says otherwise."""

    rounds: int  # trials of each cell, at most
    turn: float  # seconds that are timed in a trial; one repetition at least
    budget: float  # seconds after which no further trial begins; each cell is measured once in any case


@dataclass(frozen=True)
class Section:
    """A part of the page that a suite adds; the terminal shows its ``text``."""

    title: str
    parts: Sequence[Part]  # tables, charts, paragraphs
    text: str = ""


@dataclass(frozen=True)
class Suite:
    """A benchmark: what is measured, on what, and what follows from it.

    ``find`` looks for the input or generates it below a folder that is deleted afterwards, and raises a StrobeError
    where something is missing or wrong. ``conclude`` and ``sections`` read the record of ``results.json``.
    """

    title: str
    about: str  # what is measured and how, in a paragraph
    cells: Sequence[Cell]
    tables: Sequence[Table]
    quick: Plan
    full: Plan
    find: Callable[[Request, Path], Input]
    conclude: Callable[[Mapping[str, Any]], list[str]] | None = None
    sections: Callable[[Mapping[str, Any], Path], list[Section]] | None = None
    varies: Mapping[str, str] = field(default_factory=dict)  # keys that cells set themselves, and what to give instead
    packages: Sequence[str] = ()  # whose versions matter besides those of every run
    form: str | None = None  # of the data, where it can be no other
    name: str = ""  # the module's; the command sets it
