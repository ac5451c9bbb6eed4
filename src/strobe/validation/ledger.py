"""The ledger of the ground-truth grid: what was predicted and what was measured, a JSON line for each run of a cell."""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from strobe.diagnose.calibrated import widths
from strobe.diagnose.rules import FINE, NO_CERTAIN
from strobe.errors import DataError
from strobe.measure.statistics import Interval
from strobe.present.format import estimate
from strobe.validation.accuracy_cells import HALVES
from strobe.validation.experiment import scored


@dataclass(frozen=True)
class Entry:
    """A cell, run once as given and once as its first finding says."""

    cell: str
    half: str
    strength: str
    size: str
    cause: str | None  # that was injected; None in a control
    found: str | None  # the first finding's cause; None if there was no finding
    overrides: list[str]  # of that finding
    predicted: Interval | None  # its speed-up, a ratio of images/s; None without one
    quantile: float | None  # by which the prediction's interval was stretched; None if it is its own
    measured: float | None  # the ratio; None where the finding has no overrides
    lost: float | None  # the share of training that the finding says is lost
    failure: str | None  # why a run is missing
    host: str | None
    machine: str  # the processor and its cores
    commit: str | None
    seconds: float  # that both runs took
    also: list[str] = field(default_factory=list)  # causes that are right as well
    title: str | None = None  # of the first finding; None in older entries

    @property
    def right(self) -> bool:
        """Whether the first finding is the injected one; a run that failed found nothing.

        A control's is right if it is that there is nothing to fix, or nothing certain, or if it promises a gain and
        gives it when it is applied; not that no cause was found, or that the machine was too busy to tell.
        """
        if self.cause is not None:
            return self.found in (self.cause, *self.also)
        return self.title in (None, FINE, NO_CERTAIN) if self.found == "nothing" else self.promises and self.inside

    @property
    def promises(self) -> bool:
        """Whether the whole predicted interval lies above 1."""
        return self.predicted is not None and self.predicted["low"] > 1

    @property
    def inside(self) -> bool:
        """Whether what was measured lies in the predicted interval."""
        return (
            self.predicted is not None
            and self.measured is not None
            and self.predicted["low"] <= self.measured <= self.predicted["high"]
        )

    @property
    def error(self) -> float | None:
        """By which share the prediction was too high."""
        return self.predicted["median"] / self.measured - 1 if self.predicted and self.measured else None

    @property
    def score(self) -> float | None:
        """How far off the prediction was, in widths of its own interval on that side; None if nobody knows."""
        if self.predicted is None or self.measured is None:
            return None
        median, low, high = (self.predicted[name] for name in ("median", "low", "high"))
        away, stretched = math.log(self.measured / median), self.quantile
        reach = (math.log(median / low), math.log(high / median)) if stretched else widths(median, low, high)
        return abs(away) / reach[away > 0] * (stretched or 1.0)


def append(path: Path, entry: Entry) -> None:
    """Add a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(asdict(entry)) + "\n")


def read(path: Path) -> list[Entry]:
    """All entries, without a last line that was cut off; a DataError if it cannot be read, or is no ledger."""
    try:
        lines = path.read_text().splitlines(keepends=True)
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read ({error}); give a ledger of strobe.validation.accuracy") from error
    names = {each.name for each in fields(Entry)}
    entries = []
    for number, line in enumerate(lines, 1):
        try:
            content: dict[str, Any] = {"also": [], "title": None} | json.loads(line)  # older ledgers lack them
            entries.append(Entry(**{name: content[name] for name in names}))
        except (ValueError, KeyError, TypeError) as error:
            if number == len(lines) and not line.endswith("\n"):
                break
            raise DataError(f"{path}, line {number} is no entry of a ledger; remove it ({error!r})") from error
    return entries


def markdown(entries: Sequence[Entry]) -> list[str]:
    """The figures and a table of each part, as the documentation has them."""
    lines: list[str] = []
    for half in HALVES:
        chosen = [entry for entry in entries if entry.half == half]
        if chosen:
            lines += [f"**{half.replace('_', ' ').capitalize()}**", "", *(f"- {line}" for line in figures(chosen)), ""]
            lines += [*table(chosen), ""]
    return lines


def figures(entries: Sequence[Entry]) -> list[str]:
    """The figures beside the aims."""
    injected = [entry for entry in entries if entry.cause is not None]
    controls = [entry for entry in entries if entry.cause is None]
    causes, cells = ({getattr(entry, name) for entry in injected} for name in ("cause", "cell"))
    right = sum(entry.right for entry in injected)
    share = f"{right / len(injected):.0%}" if injected else "unknown"
    loader_bound = sum(entry.found == "loader" for entry in controls)
    lines = [
        f"first finding right: {right} of {len(injected)} runs of {len(cells)} injected cells of {len(causes)} causes "
        f"({share}; aim 95%)",
        f"controls called loader-bound: {loader_bound} of {len(controls)} (aim 0); "
        f"controls right: {sum(entry.right for entry in controls)}",
        scored([(entry.predicted, entry.measured) for entry in entries if entry.predicted and entry.measured]),
    ]
    if (changed := changes(entries)) is not None:
        lines.append(f"first cause differs from the usual one of its cell: {changed[0]} of {changed[1]} runs (aim 5%)")
    lines.append(f"runs that failed: {sum(entry.failure is not None for entry in entries)}")
    return lines


def changes(entries: Iterable[Entry]) -> tuple[int, int] | None:
    """Of the runs of cells that were repeated: how many have another first cause than most, and how many there are."""
    first: dict[str, list[str | None]] = defaultdict(list)
    for entry in entries:
        if entry.found is not None:
            first[entry.cell].append(entry.found)
    repeated = [causes for causes in first.values() if len(causes) > 1]
    if not repeated:
        return None
    usual = sum(Counter(causes).most_common(1)[0][1] for causes in repeated)
    total = sum(map(len, repeated))
    return total - usual, total


def table(entries: Iterable[Entry]) -> list[str]:
    """Markdown, a row for each run."""
    rows = [
        "| cell | injected | first finding | proposed | predicted | measured | error |",
        "|:--|:--|:--|:--|--:|--:|--:|",
    ]
    for entry in sorted(entries, key=lambda entry: (entry.cause is None, entry.cell)):
        finding = entry.title if entry.found == "nothing" and entry.title else f"`{entry.found or 'none'}`"
        verdict = entry.failure or f"{finding}{'' if entry.right else ' (wrong)'}"
        fields = [
            entry.cell,
            f"`{entry.cause}`, {entry.strength}" if entry.cause else "nothing",
            verdict,
            f"`{' '.join(entry.overrides)}`" if entry.overrides else "",
            estimate(entry.predicted, "{:.2f}".format) or "" if entry.overrides else "",
            "" if entry.measured is None else f"{entry.measured:.2f}",
            "" if entry.error is None else f"{entry.error:+.0%}",
        ]
        rows.append(f"| {' | '.join(fields)} |")
    return rows
