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

from strobe.app.tuning.proposals import BATCH_SIZE, Proposal
from strobe.errors import ConfigError
from strobe.measure.statistics import Interval
from strobe.overrides import split
from strobe.records.files import write_summary

SCHEMA = 1
NAME = "tune.json"
OUT_OF_MEMORY = "out of memory"
SAME = ("over", "host", "torch")  # besides what was given: a search with others is another search
KEPT = ("status", "ended", "seconds", "trainings", "best", "changes", "recommended", "proof", "advice", "trials")


@dataclass(frozen=True)
class Outcome:
    """What a comparison found: a ratio of speeds and its verdict, or why there is none."""

    verdict: str  # faster | slower | no difference | failed | out of memory
    ratio: Interval | None = None
    error: str | None = None
    turns: dict[str, list[float]] | None = None  # images/s of the turns of either side


@dataclass
class Tuning:
    """A search as far as it has come; overrides are those of ``train.py``, without what only measuring needs."""

    header: dict[str, Any]  # command, given, over, budget
    folder: Path
    best: list[str]
    status: str = "running"  # running | completed | interrupted | failed: nothing was measured
    ended: str | None = None  # why
    seconds: float = 0.0
    probes: list[dict[str, Any]] = field(default_factory=list)  # probe runs: {overrides, directory, error, seconds}
    trials: list[dict[str, Any]] = field(default_factory=list)
    proof: dict[str, Any] | None = None  # the best over the given configuration: {ratio, verdict, error}
    advice: list[str] = field(default_factory=list)
    trainings: int = 0  # that were started, probe runs among them

    @property
    def kept(self) -> list[dict[str, Any]]:
        """The trials that were kept, in order."""
        return [trial for trial in self.trials if trial["kept"]]

    @property
    def recommended(self) -> list[str]:
        """The overrides to train with: the best, unless the proof has shown that it is not faster."""
        doubtful = self.proof is not None and self.proof["verdict"] in ("slower", "no difference")
        return list(self.header["given"]) if doubtful else self.best

    @property
    def changes(self) -> list[str]:
        """The overrides by which the best configuration differs from the given one."""
        return [override for override in self.best if override not in self.header["given"]]

    @property
    def usual_probe(self) -> float:
        """Seconds that a probe run takes; 0 before the first."""
        return statistics.median([float(probe["seconds"]) for probe in self.probes] or [0.0])

    @property
    def usual_trial(self) -> float:
        """Seconds that a trial takes which measures something; 0 before the first."""
        return statistics.median([float(trial["seconds"]) for trial in self.trials if trial["measured"]] or [0.0])

    def probed(self, overrides: Sequence[str]) -> dict[str, Any] | None:
        """The probe run of a configuration, if there was one that found something."""
        return next((one for one in self.probes if sorted(one["overrides"]) == sorted(overrides)), None)

    def is_settled(self, proposal: Proposal, before: Sequence[str], after: Sequence[str]) -> bool:
        """Whether a proposal need not be tried: it was, or it failed before, or a batch as large ran out of memory.

        What was measured to be no faster is tried again from another configuration if something new speaks for it.
        """
        size = _batch_size(proposal.overrides)
        for trial in self.trials:
            if (sorted(trial["before"]), sorted(trial["after"])) == (sorted(before), sorted(after)):
                return True
            bound = _batch_size(trial["overrides"]) if trial["verdict"] == OUT_OF_MEMORY else None
            if size and bound and size >= bound:
                return True
            if trial["overrides"] == list(proposal.overrides) and (proposal.bounded or not trial["measured"]):
                return True
        return False

    def add(
        self, proposal: Proposal, before: Sequence[str], after: Sequence[str], found: Outcome, seconds: float
    ) -> dict[str, Any]:
        """Keep what a trial found; a faster configuration becomes the best."""
        trial = {
            "number": len(self.trials) + 1,
            **proposal.as_dict(),
            "before": list(before),
            "after": list(after),
            "measured": found.ratio,
            "verdict": found.verdict,
            "error": found.error,
            "kept": found.verdict == "faster",
            "turns": found.turns,
            "seconds": seconds,
        }
        self.trials.append(trial)
        if trial["kept"]:
            self.best = list(after)
        return trial

    def save(self) -> None:
        """Write the record, whole or not at all."""
        found = {name: getattr(self, name) for name in KEPT}
        write_summary(self.folder / NAME, {"schema": SCHEMA, **self.header, **found, "looks": self.probes})


def begin(folder: Path, given: Sequence[str], over: Sequence[str] | None, *, command: str, budget: float) -> Tuning:
    """A search that has found nothing yet; ``budget`` in seconds."""
    header = {
        "command": command,
        "began": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "given": list(given),
        "over": None if over is None else sorted(over),
        "budget": budget,
        "host": socket.gethostname(),
        "torch": version("torch"),
    }
    return Tuning(header, folder, list(given))


def resumed(fresh: Tuning, path: Path) -> Tuning | None:
    """The search in a file, if it was broken off and is of the same configuration; else None.

    Raises:
        ConfigError: the file is damaged.
    """
    try:
        record = json.loads(path.read_text())
        if record["schema"] != SCHEMA or record["status"] == "completed":
            return None
        if any(record[key] != fresh.header[key] for key in SAME):
            return None
        if sorted(record["given"]) != sorted(fresh.header["given"]):
            return None
        return Tuning(
            fresh.header | {"began": record["began"]},
            path.parent,
            record["best"],
            seconds=float(record["seconds"]),
            probes=[one for one in record["looks"] if (path.parent / one["directory"]).is_dir()],
            trials=[one for one in record["trials"] if {"before", "after", "kept", "verdict"} <= one.keys()],
            advice=list(record["advice"]),
            trainings=int(record["trainings"]),
        )
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path} is damaged ({error!r}); remove it to begin anew") from error


def _batch_size(overrides: Sequence[str]) -> int | None:
    sizes = [value for key, value in map(split, overrides) if key == BATCH_SIZE]
    return int(sizes[-1]) if sizes and sizes[-1].isdigit() else None
