"""The record of a run, as the rules read it: ``summary.json`` and the composed configuration.

Old records lack keys, failed runs have nulls, and files may have been edited: every reader here returns None, or
something empty, for what is missing or of the wrong type.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from strobe.errors import DataError
from strobe.measure.timing import Rate
from strobe.overrides import split

T = TypeVar("T")
SCHEMA = 1
CONFIG = Path(".hydra", "config.yaml")
UNKNOWN_NOISE = 0.2  # relative; used for a figure without an interval


@dataclass(frozen=True)
class Figure:
    """A positive figure, measured or predicted, with its interval.

    ``level`` is the share of cases in which the interval holds the truth; None if unknown.
    """

    median: float
    low: float
    high: float
    level: float | None = None


@dataclass(frozen=True)
class Alternative:
    """What the run's loader or model reaches alone with other settings, measured after the run.

    ``rate`` is in images/s, ``cpu_seconds`` in core-seconds an image, ``images`` are per step. ``ratio`` is the
    ratio to the run's own rate, if both were measured in turns.
    """

    side: str  # loader | model
    overrides: tuple[str, ...]
    rate: Figure
    cpu_seconds: float | None
    images: float | None
    ratio: Figure | None = None

    @property
    def changes(self) -> dict[str, str]:
        """The overrides as keys and values."""
        return dict(map(split, self.overrides))


@dataclass(frozen=True)
class Record:
    """``summary`` is the content of ``summary.json``, ``config`` that of ``.hydra/config.yaml``, {} if unknown."""

    summary: dict[str, Any]
    config: dict[str, Any] = field(default_factory=dict)

    def number(self, *path: str) -> float | None:
        """A finite number of the summary, such as ``number("step_seconds", "total")``; None if there is none."""
        return as_number(_at(self.summary, path))

    def amount(self, *path: str) -> float:
        """A finite number of the summary; 0 if there is none."""
        return amount(_at(self.summary, path))

    def seconds(self, phase: str) -> float:
        """Of a mean step, those of a phase, or of all of it (``total``); 0 if unknown."""
        return self.amount("step_seconds", phase)

    def count(self, *path: str) -> int | None:
        """A number of the summary as a whole number."""
        value = self.number(*path)
        return None if value is None else int(value)

    def text(self, *path: str) -> str | None:
        """A text of the summary."""
        return self._of(str, path)

    def flag(self, *path: str) -> bool | None:
        """A truth value of the summary."""
        return self._of(bool, path)

    def mapping(self, *path: str) -> dict[str, Any]:
        """A mapping of the summary, {} if there is none."""
        return self._of(dict, path) or {}

    def items(self, *path: str) -> list[Any]:
        """A list of the summary, [] if there is none."""
        return self._of(list, path) or []

    def entries(self, *path: str) -> list[dict[str, Any]]:
        """The mappings in a list of the summary, [] if there is none."""
        return [entry for entry in self.items(*path) if isinstance(entry, dict)]

    def amounts(self, *path: str) -> list[float]:
        """The numbers of a list of the summary; 0 for what is none."""
        return [amount(value) for value in self.items(*path)]

    def amounts_of(self, *path: str) -> dict[str, float]:
        """The numbers of a mapping of the summary; 0 for what is none."""
        return {str(name): amount(value) for name, value in self.mapping(*path).items()}

    @property
    def on_cpu(self) -> bool:
        """Whether it trained on a CPU."""
        return self.text("accelerator") == "cpu"

    def _of(self, kind: type[T], path: tuple[str, ...]) -> T | None:
        value = _at(self.summary, path)
        return value if isinstance(value, kind) else None

    def rate(self, name: str) -> Figure | None:
        """A ceiling, such as ``rate("loader")``, in images/s."""
        return measured(self.number("ceilings", name), _at(self.summary, ("ceilings", "intervals", name)))

    def alternatives(self, side: str) -> list[Alternative]:
        """What was measured of one side, ``loader`` or ``model``, beside the run's own settings."""
        entries = []
        for entry in self.items("ceilings", "alternatives"):
            if not isinstance(entry, dict) or entry.get("side") != side:
                continue
            rate = measured(entry.get("rate"), entry.get("interval"))
            overrides = entry.get("overrides")
            if rate is not None and isinstance(overrides, list) and overrides:
                texts = tuple(str(override) for override in overrides)
                cpu, images = as_number(entry.get("cpu_seconds")), as_number(entry.get("images_per_step"))
                ratio = entry.get("ratio")
                turns = measured(ratio[0], ratio[1:]) if isinstance(ratio, list) and len(ratio) == 3 else None
                entries.append(Alternative(side, texts, rate, cpu, images, turns))
        return entries

    def alternative(self, side: str, key: str, value: object) -> Alternative | None:
        """That of these which changes only this key, to this value; None if it was not measured."""
        changes = {key: str(value)}
        return next((entry for entry in self.alternatives(side) if entry.changes == changes), None)

    def has(self, key: str) -> bool:
        """Whether the run's configuration has a key, such as ``loader.batched``: only those can be overridden."""
        *groups, name = key.split(".")
        node = _at(self.config, tuple(groups))
        return isinstance(node, dict) and name in node

    def setting(self, key: str, default: Any = None) -> Any:
        """The configuration's value of a key; the default if it is missing or null."""
        value = _at(self.config, tuple(key.split(".")))
        return default if value is None else value

    def whole(self, key: str) -> int | None:
        """The configuration's value of a key, if it is a whole number."""
        value = self.setting(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None


def alternative_of(
    overrides: Sequence[str], side: str, rate: Rate, images: int | None, ratio: list[float | None] | None = None
) -> dict[str, Any]:
    """An entry of the record's ``alternatives``: a side with other settings, in steps of so many images.

    ``ratio``: to the run's own, where they took turns.
    """
    return {
        "overrides": list(overrides),
        "side": side,
        "rate": rate.median,
        "interval": [rate.low, rate.high],
        "ratio": ratio,
        "cpu_seconds": rate.cpu_seconds,
        "images_per_step": images,
    }


def load_record(run_dir: Path) -> Record:
    """The record in a run's directory.

    Raises:
        DataError: There is no such directory or no record in it, or the record is damaged or of another program or
        version.
    """
    if not run_dir.is_dir():
        raise DataError(f"{run_dir} is not a directory; give the directory of a run, such as outputs/runs/DATE/RUN")
    path = run_dir / "summary.json"
    if not path.is_file():
        raise DataError(f"{run_dir} has no summary.json; give the directory of a run that has ended")
    try:
        summary = json.loads(path.read_text())
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror or error}); check its permissions") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is damaged ({error}); run the training again") from error
    if not isinstance(summary, dict):
        raise DataError(f"{path} is not a run's record: it holds no JSON object; give the directory of a run")
    if summary.get("schema") != SCHEMA:
        raise DataError(
            f"{path} has schema {summary.get('schema')!r}, and this version reads {SCHEMA}; "
            "give a run's directory, or use the version that wrote it"
        )
    config = read_yaml(run_dir / CONFIG)  # with interpolations unresolved
    known = config if isinstance(config, dict) else Record(summary).mapping("settings")  # of somebody else's script
    return Record(summary, {str(key): value for key, value in known.items()})


def read_summary(path: Path) -> dict[str, Any]:
    """The content of a ``summary.json``; raises an OSError if it cannot be read, a ValueError if it is no JSON."""
    summary: dict[str, Any] = json.loads(path.read_text())
    return summary


def read_yaml(path: Path) -> Any:
    """The content of a YAML file that Hydra wrote; None if it cannot be read.

    Raises:
        DataError: PyYAML is missing; each Lightning brings it.
    """
    try:
        text = path.read_text()
    except (OSError, ValueError):
        return None
    try:
        import yaml
    except ModuleNotFoundError:
        raise DataError(f"PyYAML is needed to read {path}; pip install pyyaml") from None
    try:
        return yaml.safe_load(text)
    except (ValueError, RecursionError, yaml.YAMLError):
        return None


def rate_of(record: Record) -> float | None:
    """Images/s over training time, or else the median step's; None if nothing was measured."""
    rate = record.number("overall_images_per_second") or record.number("images_per_second", "median")
    return rate if rate and rate > 0 else None


def as_number(value: Any) -> float | None:
    """A finite number as such; None for anything else."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def amount(value: Any) -> float:
    """A finite number as such; 0 for anything else."""
    return as_number(value) or 0.0


def measured(value: Any, interval: Any) -> Figure | None:
    """A figure and its interval, ``[low, high]``; a wide one if none is given, None if the figure is not positive."""
    figure = as_number(value)
    if figure is None or figure <= 0:
        return None
    ends = [as_number(end) for end in interval] if isinstance(interval, list) else []
    usable = [end for end in ends if end is not None and end > 0]
    if len(usable) != 2:
        usable = [figure / (1 + UNKNOWN_NOISE), figure * (1 + UNKNOWN_NOISE)]
    return Figure(figure, min(figure, *usable), max(figure, *usable))


def _at(node: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        if not isinstance(node, dict):
            return None
        node = node.get(key)
    return node
