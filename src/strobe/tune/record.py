"""The record of a search, ``tune.json``: what was measured and tried, so that the search can go on from it."""

import json
import socket
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from strobe.diagnose.foreign import argument
from strobe.errors import DataError, disk_errors
from strobe.measure.statistics import PROMISING, Interval
from strobe.overrides import applied, key_of, split
from strobe.records.files import write_summary
from strobe.tune.composing import BATCH_SIZE
from strobe.tune.dimensions import ALL, DIMENSIONS
from strobe.tune.proposals import Proposal

SCHEMA = 1
NAME = "tune.json"
BESIDE = ("engine", "workers", "prefetch")  # dimensions that are left out together: what makes batches beside training
OUT_OF_MEMORY = "out of memory"
NOTHING = "nothing else helps"  # why a search ended that had the time for all it wanted
SAME = ("over", "host", "torch", "script", "source")  # besides what was given: a search with others is another search
KEPT = ("status", "ended", "seconds", "trainings", "best", "changes", "recommended", "proof", "advice")


@dataclass(frozen=True)
class Outcome:
    """What a comparison found: a ratio of speeds and its verdict, or why there is none."""

    verdict: str  # faster | slower | no difference | failed | out of memory
    ratio: Interval | None = None
    error: str | None = None
    turns: dict[str, list[float]] | None = None  # images/s of the turns of either side
    losses: dict[str, list[float]] | None = None  # of the first steps of either side, if they were kept

    @property
    def is_needed(self) -> bool:
        """Whether a change without which this was measured stays: it is faster for certain, or 3% by the estimate.

        Nothing has to be shown against a change that brings nothing, and a change that seems to bring much does not go
        because a machine is noisy: a trial that looks promising has had all its looks.
        """
        return self.ratio is None or self.verdict == "faster" or self.ratio["median"] >= PROMISING


@dataclass
class Tuning:
    """A search as far as it has come; overrides are those of ``train.py``, without what only measuring needs."""

    header: dict[str, Any]  # of `begin`
    folder: Path
    best: list[str]
    status: str = "running"  # running | completed | interrupted | failed: nothing was measured
    ended: str | None = None  # why
    seconds: float = 0.0
    probes: list[dict[str, Any]] = field(default_factory=list)  # probe runs: {overrides, directory, error, seconds}
    sides: list[dict[str, Any]] = field(default_factory=list)  # measured alone: {of, side, overrides, rate ...}
    trials: list[dict[str, Any]] = field(default_factory=list)
    proof: dict[str, Any] | None = None  # the best over the given configuration: {ratio, verdict, error, losses}
    advice: list[str] = field(default_factory=list)
    trainings: int = 0  # that were started, probe runs among them

    def spelled(self, overrides: Sequence[str]) -> str:
        """Changes as they are shown: overrides as they are, those of a script as its arguments."""
        if self.header["script"] is None:
            return " ".join(overrides)
        return ", ".join("=".join(argument(text)) for text in overrides)

    @property
    def as_it_is(self) -> str:
        """What is searched, without any change."""
        return "the defaults" if self.header["script"] is None else "the script as it is"

    @property
    def recommended(self) -> list[str]:
        """The overrides to train with: the best if the proof shows that it is faster, else what was given."""
        proved = self.proof is not None and self.proof["verdict"] == "faster"
        return self.best if proved else list(self.header["given"])

    @property
    def changes(self) -> list[str]:
        """The overrides by which the best configuration differs from the given one."""
        return [override for override in self.best if override not in self.header["given"]]

    @property
    def parts(self) -> list[list[str]]:
        """The changes by what they change: how batches are made beside training first, then computing.

        What only goes with a larger batch is a part of it.
        """
        of = {text: DIMENSIONS.get(key_of(text), "batch_size") for text in self.changes}
        groups = [BESIDE, *((name,) for name in reversed(ALL) if name not in BESIDE)]
        return [part for group in groups if (part := [text for text, name in of.items() if name in group])]

    def without(self, part: Sequence[str]) -> list[str]:
        """The best configuration without some of its changes."""
        return applied(self.header["given"], [text for text in self.changes if text not in part])

    @property
    def usual_probe(self) -> float:
        """Seconds that a probe run takes; 0 before the first."""
        return statistics.median([float(probe["seconds"]) for probe in self.probes] or [0.0])

    @property
    def usual_trial(self) -> float:
        """Seconds that a trial takes which measures something; 0 before the first."""
        return statistics.median([float(trial["seconds"]) for trial in self.trials if trial["measured"]] or [0.0])

    @property
    def settings(self) -> int:
        """How many settings of loader or model were measured alone."""
        alone = {(one["side"], *one["overrides"]) for one in self.sides if one["overrides"]}
        return len(alone) + sum(int(probe.get("alternatives") or 0) for probe in self.probes)

    def probed(self, overrides: Sequence[str]) -> dict[str, Any] | None:
        """The probe run of a configuration, if there was one that found something."""
        return next((one for one in self.probes if sorted(one["overrides"]) == sorted(overrides)), None)

    def tried(self, before: Sequence[str], after: Sequence[str]) -> dict[str, Any] | None:
        """The trial of two configurations, if there was one."""
        sides = sorted(before), sorted(after)
        return next((one for one in self.trials if (sorted(one["before"]), sorted(one["after"])) == sides), None)

    @property
    def most_promising(self) -> dict[str, Any] | None:
        """Of the trials of what was given that were uncertain, the one of the largest ratio, if worth more time."""
        start = sorted(self.header["given"])
        unsure = [one for one in self.trials if one["verdict"] == "no difference" and sorted(one["before"]) == start]
        best = max(unsure, key=lambda one: float(one["measured"]["median"]), default=None)
        return best if best and best["measured"]["median"] >= PROMISING else None

    def is_settled(self, proposal: Proposal) -> bool:
        """Whether a proposal need not be tried: it failed before, or a batch as large ran out of memory.

        What was measured to be no faster is tried again from another configuration if something new speaks for it.
        """
        size = _batch_size(proposal.overrides)
        for trial in self.trials:
            bound = _batch_size(trial["overrides"]) if trial["verdict"] == OUT_OF_MEMORY else None
            if size and bound and size >= bound:
                return True
            if trial["overrides"] == list(proposal.overrides) and (proposal.bounded or not trial["measured"]):
                return True
        return False

    def add(
        self,
        proposal: Proposal,
        before: Sequence[str],
        after: Sequence[str],
        outcome: Outcome,
        seconds: float,
        **kind: bool,
    ) -> dict[str, Any]:
        """Keep what a trial found; ``left_out=True`` for a change that was left out once, and stays if it is needed."""
        trial = {
            "number": len(self.trials) + 1,
            **proposal.as_dict(),
            "before": list(before),
            "after": list(after),
            "measured": outcome.ratio,
            "verdict": outcome.verdict,
            "error": outcome.error,
            "kept": outcome.is_needed if kind.get("left_out") else outcome.verdict == "faster",
            "turns": outcome.turns,
            "seconds": seconds,
            **kind,
        }
        self.trials.append(trial)
        return trial

    def save(self) -> None:
        """Write the record, whole or not at all; raises a DataError where the disk refuses."""
        kept = {name: getattr(self, name) for name in KEPT}
        lists = {"looks": self.probes, "sides": self.sides, "trials": self.trials}
        path = self.folder / NAME
        remedy = "make room, and the same command goes on from what it holds"
        with disk_errors(lambda why: f"{path} cannot be written ({why}); {remedy}"):
            write_summary(path, {"schema": SCHEMA, **self.header, **kept, **lists})


def begin(
    folder: Path,
    given: Sequence[str],
    over: Sequence[str] | None,
    *,
    command: str,
    budget: float,
    script: str | None = None,
    source: str | None = None,
) -> Tuning:
    """A search that has found nothing yet.

    Args:
        budget: seconds.
        script: the command of somebody else's.
        source: what tells that script from an edited one.
    """
    header = {
        "command": command,
        "began": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "given": list(given),
        "over": None if over is None else sorted(over),
        "budget": budget,
        "script": script,
        "source": source,
        "host": socket.gethostname(),
        "torch": version("torch"),
    }
    return Tuning(header, folder, list(given))


def resumed(fresh: Tuning, path: Path) -> Tuning | None:
    """The search in a file, if it was broken off and is of the same configuration; else None.

    Raises:
        DataError: the file is damaged.
    """
    try:
        record = json.loads(path.read_text())
        if record["schema"] != SCHEMA or record["status"] == "completed":
            return None
        if any(record.get(key) != fresh.header[key] for key in SAME):
            return None
        if sorted(record["given"]) != sorted(fresh.header["given"]):
            return None
        return Tuning(
            fresh.header | {"began": record["began"]},
            path.parent,
            record["best"],
            seconds=float(record["seconds"]),
            sides=[one for one in record.get("sides", []) if {"of", "side", "overrides"} <= one.keys()],
            probes=[one for one in record["looks"] if (path.parent / one["directory"]).is_dir()],
            trials=[one for one in record["trials"] if {"before", "after", "kept", "verdict"} <= one.keys()],
            advice=list(record["advice"]),
            trainings=int(record["trainings"]),
        )
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise DataError(f"{path} is damaged ({error!r}); remove it to begin anew") from error


def _batch_size(overrides: Sequence[str]) -> int | None:
    sizes = [value for key, value in map(split, overrides) if key == BATCH_SIZE]
    return int(sizes[-1]) if sizes and sizes[-1].isdigit() else None
