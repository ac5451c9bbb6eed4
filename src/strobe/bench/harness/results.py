"""The record of a suite, ``results.json``: each trial's results, and what follows from them."""

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from strobe.bench.harness.declare import Cell, Suite
from strobe.bench.harness.trial import Report
from strobe.errors import ConfigError
from strobe.measure.statistics import Estimate, Interval, median, paired, recorded, spread
from strobe.present.format import differ, estimate, figure, is_wide
from strobe.process.fork import Failure
from strobe.records.environment_difference import Origin, environment_differences
from strobe.records.files import write_summary

SCHEMA = 1
NAME = "results.json"
DESCRIBED = ("name", "table", "row", "column", "threads", "cache", "at", "against")  # of a cell
CellRecord = Mapping[str, Any]  # a cell of the record
NEEDED = {"environment": {"host", "versions"}, "input": {"told", "generated"}, "settings": {"turn"}}


class Results:
    """What is known of each cell so far; a failure stays until a later trial succeeds."""

    def __init__(self, suite: Suite, header: Mapping[str, Any]) -> None:
        self.suite = suite
        self.header = dict(header)
        self.trials: dict[str, list[dict[str, Any]]] = {cell.name: [] for cell in suite.cells}
        self.errors: dict[str, str] = {}
        self.seconds = 0.0  # spent on measuring, also before an interruption
        self.budget_spent = False  # so that a trial was left out
        self.before = 0  # rounds of earlier sessions: trials of two sessions never share one

    def add(self, cell: Cell, number: int, outcome: Report | Failure) -> None:
        """Add the result of a trial in round ``number`` of this session."""
        if isinstance(outcome, Failure):
            self.errors[cell.name] = outcome.reason
        else:
            self.errors.pop(cell.name, None)
            self.trials[cell.name].append({"round": self.before + number, **asdict(outcome)})

    def resume(self, path: Path) -> bool:
        """Take over the trials and errors of an earlier record; returns whether there was one.

        Raises:
            ConfigError: The record is of another measurement, or damaged.
        """
        if not path.is_file():
            return False
        earlier = read_results(path)
        if unlike := differences(self.header, earlier, commits=True):
            raise ConfigError(
                f"hydra.run.dir={path.parent} holds results of another measurement: {unlike[0]}; "
                f"give another folder, or remove its {NAME}"
            )
        for cell in earlier["cells"]:
            if cell["name"] in self.trials:
                self.trials[cell["name"]] = cell["visits"]
                if cell["error"]:
                    self.errors[cell["name"]] = cell["error"]
        self.before = 1 + max((trial["round"] for trials in self.trials.values() for trial in trials), default=-1)
        self.seconds = earlier["seconds"]
        self.header["began"] = earlier["began"]
        return True

    def record(self, status: str) -> dict[str, Any]:
        """The whole record, for ``results.json``."""
        return {
            "schema": SCHEMA,
            "status": status,
            **self.header,
            "seconds": self.seconds,
            "budget_spent": self.budget_spent,
            "cells": [self._cell(cell) for cell in self.suite.cells],
        }

    def save(self, folder: Path, status: str) -> dict[str, Any]:
        """Write the record, whole or not at all."""
        record = self.record(status)
        write_summary(folder / NAME, record)
        return record

    def _cell(self, cell: Cell) -> dict[str, Any]:
        trials = self.trials[cell.name]
        pieces = [each for trial in trials for each in trial["seconds"]]
        seconds = [statistics.median(trial["seconds"]) for trial in trials]  # of a repetition
        status = "failed" if cell.name in self.errors else "measured" if trials else "waiting"
        figures = {name for trial in trials for name in trial["figures"]}
        held = [trial["resident"] for trial in trials if trial["resident"] is not None]
        return {
            **{key: getattr(cell, key) for key in DESCRIBED},
            "status": status,
            "error": self.errors.get(cell.name),
            "seconds": recorded(median(seconds) if seconds else None) | {"spread": spread(pieces)},
            "images_per_second": recorded(median_rate(trials)),
            "images": trials[-1]["images"][-1] if trials else None,
            "repetitions": sum(trial["repetitions"] for trial in trials),
            "resident": statistics.fmean(held) if held else None,
            "figures": {
                name: median([trial["figures"][name] for trial in trials if name in trial["figures"]]).as_record()
                for name in sorted(figures)
            },
            "ratio": by_round({"visits": trials}, {"visits": self.trials[cell.against]}) if cell.against else None,
            "visits": trials,
        }


def by_round(cell: CellRecord, against: CellRecord) -> Interval | None:
    """How many times as fast a cell was as another, round by round; None if no round measured both."""
    theirs = {trial["round"]: rate_of(trial) for trial in against["visits"]}
    ratios = [rate_of(trial) / theirs[trial["round"]] for trial in cell["visits"] if trial["round"] in theirs]
    return paired(ratios).as_record() if ratios else None


def known(value: Interval, trials: int, words: str, show: Callable[[float], str] = figure) -> str:
    """A figure in the ``words`` of a conclusion, in place of {}: ``2.04 (1.98 to 2.11) times as fast``.

    Where the ``trials`` differ too much to tell it, that, and what would help.
    """
    if is_wide(value["low"], value["high"]):
        return f"{differ(trials, 'trial')}; more rounds, or a quiet machine, would tell"
    return words.replace("{}", estimate(value, show))


def faster(cell: CellRecord | None, against: CellRecord | None, words: str = "") -> str:
    """The same as it is written, ``2.04 (1.98 to 2.11)``, or as ``known`` has it in ``words``; empty if unknown."""
    ratio = by_round(cell, against) if cell and against else None
    if not cell or not ratio:
        return ""
    return known(ratio, len(cell["visits"]), words) if words else estimate(ratio)


def measured(record: Mapping[str, Any], table: str | None = None) -> list[CellRecord]:
    """The cells, of one table or of all, that were measured."""
    return [cell for cell in record["cells"] if cell["visits"] and table in (None, cell["table"])]


def speed(cell: CellRecord) -> float:
    """Images/s of a cell that was measured."""
    return float(cell["images_per_second"]["median"])


def day(record: Mapping[str, Any]) -> str:
    """The day on which measuring began."""
    return str(record["began"])[:10]


def failures(record: Mapping[str, Any]) -> list[str]:
    """A sentence for each error, with the cells that it ended, or the column if it ended all of that."""
    ended: dict[str, list[str]] = {}
    for cell in record["cells"]:
        if cell["status"] == "failed":
            alike = [other["status"] for other in record["cells"] if other["column"] == cell["column"]]
            ended.setdefault(cell["error"], []).append(cell["column" if {*alike} == {"failed"} else "name"])
    return [f"{'; '.join(dict.fromkeys(names))} failed: {error}" for error, names in ended.items()]


def rate_of(trial: Mapping[str, Any]) -> float:
    """Images/s of a trial: the median over its pieces."""
    pairs: list[tuple[float, float]] = list(zip(trial["images"], trial["seconds"], strict=True))
    return statistics.median(images / max(seconds, 1e-12) for images, seconds in pairs)


def median_rate(trials: Sequence[Mapping[str, Any]]) -> Estimate | None:
    """Images/s: the median over trials, with a 95% interval by order statistics; None without trials."""
    return median([rate_of(trial) for trial in trials]) if trials else None


def read_results(path: Path) -> dict[str, Any]:
    """The record in a ``results.json``; raises a ConfigError if it is something else, or of another version."""
    try:
        record = json.loads(path.read_text())
        if record["schema"] != SCHEMA:
            raise ConfigError(f"{path} is of another program or version; name a {NAME} of this one, or remove it")
        for cell in record["cells"]:
            assert isinstance(cell["name"], str)
            assert all(rate_of(trial) >= 0 and trial["round"] >= 0 for trial in cell["visits"])
        assert isinstance(record["began"], str)
        assert {"suite", "quick", "overrides"} <= record.keys()
        for key, entries in NEEDED.items():
            assert entries <= record[key].keys()
    except (OSError, ValueError, LookupError, TypeError, AttributeError, AssertionError) as error:
        raise ConfigError(
            f"{path} is damaged, or no {NAME} of a suite; name another, or remove it to begin anew"
        ) from error
    return dict(record)


def work_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """What was measured, and whether in earnest."""
    given = record["input"]
    return {"input": given["told"], "generated input": given["generated"], "quick": record["quick"]}


def differences(record: Mapping[str, Any], earlier: Mapping[str, Any], *, commits: bool = False) -> list[str]:
    """A sentence for each circumstance that differs from an earlier result's: machine, input, settings; and commit."""
    origins = [_origin("the earlier one", earlier, commits), _origin("this one", record, commits)]
    return environment_differences(origins, "results")


def _origin(name: str, record: Mapping[str, Any], commits: bool) -> Origin:
    environment = {key: value for key, value in record["environment"].items() if key != "page_cache"}
    more = work_of(record) | {"suite": record["suite"], "overrides": " ".join(record["overrides"]) or None}
    more["turn_seconds"] = record["settings"].get("turn")
    if commits:  # without the sign for uncommitted changes, which the command mentions
        more["commit"] = (environment.get("git_commit") or "").removesuffix("+")
    return Origin(name, environment, more)
