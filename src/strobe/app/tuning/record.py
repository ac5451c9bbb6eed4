"""The record of a search, ``tune.json``: what was looked at and tried, so that it can be gone on with."""

import json
import socket
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from strobe.app.tuning.proposals import BATCH_SIZE, Move
from strobe.errors import ConfigError
from strobe.measure.statistics import Interval
from strobe.overrides import split
from strobe.records.files import write_summary

SCHEMA = 1
NAME = "tune.json"
OUT_OF_MEMORY = "out of memory"
SAME = ("over", "host", "torch")  # besides what was given: a search of other ones is another search
STATE = ("status", "ended", "seconds", "trainings", "best", "changes", "recommended", "proof")
KEPT = (*STATE, "advice", "looks", "trials")


@dataclass
class Tuning:
    """A search as far as it has come; overrides are those of ``train.py``, without what only measuring needs."""

    header: dict[str, Any]  # command, given, over, budget
    folder: Path
    best: list[str]
    status: str = "running"  # running | completed | interrupted | failed: nothing was measured
    ended: str | None = None  # why
    seconds: float = 0.0
    looks: list[dict[str, Any]] = field(default_factory=list)  # {overrides, directory, error, seconds}
    trials: list[dict[str, Any]] = field(default_factory=list)
    proof: dict[str, Any] | None = None  # the best over the given configuration: {ratio, verdict, error}
    advice: list[str] = field(default_factory=list)
    trainings: int = 0  # that were started, looks among them

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
    def usual_look(self) -> float:
        """Seconds that a look takes; 0 before the first."""
        return statistics.median([float(look["seconds"]) for look in self.looks] or [0.0])

    @property
    def usual_trial(self) -> float:
        """Seconds that a trial takes which measures something; 0 before the first."""
        return statistics.median([float(trial["seconds"]) for trial in self.trials if trial["measured"]] or [0.0])

    @property
    def changes(self) -> list[str]:
        """The overrides by which the best configuration differs from the given one."""
        return [override for override in self.best if override not in self.header["given"]]

    def tried(self, before: Sequence[str], after: Sequence[str]) -> dict[str, Any] | None:
        """The trial of a change, if there was one."""
        wanted = (sorted(before), sorted(after))
        return next((one for one in self.trials if (sorted(one["before"]), sorted(one["after"])) == wanted), None)

    def looked(self, overrides: Sequence[str]) -> dict[str, Any] | None:
        """The look at a configuration, if there was one that found something."""
        return next((one for one in self.looks if sorted(one["overrides"]) == sorted(overrides)), None)

    def hopeless(self, move: Move) -> bool:
        """Whether a move need not be tried: a batch as large ran out of memory, or it was tried in vain before.

        What was measured to be no faster is tried again only if something new speaks for it.
        """
        size = _batch_size(move.overrides)
        for trial in self.trials:
            bound = _batch_size(trial["overrides"]) if trial["verdict"] == OUT_OF_MEMORY else None
            if size and bound and size >= bound:
                return True
            if trial["overrides"] == list(move.overrides) and (move.bounded or not trial["measured"]):
                return True
        return False

    def add(
        self,
        move: Move,
        before: Sequence[str],
        after: Sequence[str],
        *,
        verdict: str,
        ratio: Interval | None,
        error: str | None,
        turns: dict[str, list[float]] | None,
        seconds: float,
    ) -> dict[str, Any]:
        """Keep what a trial found; a faster configuration becomes the best."""
        trial = {
            "number": len(self.trials) + 1,
            **move.as_dict(),
            "before": list(before),
            "after": list(after),
            "measured": ratio,
            "verdict": verdict,
            "error": error,
            "kept": verdict == "faster",
            "turns": turns,
            "seconds": seconds,
        }
        self.trials.append(trial)
        if trial["kept"]:
            self.best = list(after)
        return trial

    def save(self) -> None:
        """Write the record, whole or not at all."""
        found = {name: getattr(self, name) for name in KEPT}
        write_summary(self.folder / NAME, {"schema": SCHEMA, **self.header, **found})


def begin(folder: Path, given: Sequence[str], over: Sequence[str] | None, *, command: str, budget: float) -> Tuning:
    """A search that has found nothing yet."""
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
        found = Tuning(fresh.header | {"began": record["began"]}, path.parent, record["best"])
        found.seconds, found.trainings = float(record["seconds"]), int(record["trainings"])
        found.advice = list(record["advice"])
        found.looks = [one for one in record["looks"] if (path.parent / one["directory"]).is_dir()]
        found.trials = [one for one in record["trials"] if {"before", "after", "kept", "verdict"} <= one.keys()]
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path} is damaged ({error!r}); remove it to begin anew") from error
    return found


def _batch_size(overrides: Sequence[str]) -> int | None:
    sizes = [value for key, value in map(split, overrides) if key == BATCH_SIZE]
    return int(sizes[-1]) if sizes and sizes[-1].isdigit() else None
