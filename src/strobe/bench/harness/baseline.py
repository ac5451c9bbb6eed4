"""Results held against earlier ones, and whether anything became slower."""

import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strobe.bench.harness.results import NAME, Interval, rate_of, read_results
from strobe.errors import ConfigError

GENERAL = ("host", "cpu", "usable_cores", "gpu", "versions")
FEWEST = 4  # trials on either side, below which there is no verdict
TOO_FEW = "too few trials"


@dataclass(frozen=True)
class Baseline:
    """An earlier result, and how much slower than it is too slow."""

    file: Path
    record: dict[str, Any]
    limit: float | None = None


def wanted(file: str | None, limit: str | None, suite: str) -> Baseline | None:
    """What ``baseline`` and ``fail_if_slower`` ask for.

    Raises:
        ConfigError: one of them cannot be used.
    """
    if file is None:
        if limit is not None:
            raise ConfigError(f"fail_if_slower={limit} needs an earlier result; give baseline=FILE, a results.json")
        return None
    share = None if limit is None else parse_share(limit)
    path = Path(file) / NAME if Path(file).is_dir() else Path(file)
    return Baseline(path, read_baseline(path, suite), share)


def parse_share(text: str, key: str = "fail_if_slower=") -> float:
    """A share such as ``5%``, or ``0.05``, given as ``key`` says.

    Raises:
        ConfigError: it is none, or not between 0 and 1.
    """
    match = re.fullmatch(r"\s*([0-9.]+)\s*(%?)\s*", text)
    try:
        value = float(match[1]) / (100 if match[2] else 1) if match else math.nan
    except ValueError:
        value = math.nan
    if not 0 <= value < 1:
        raise ConfigError(f"{key}{text} is not a share; give one below 100%, such as {key}5%")
    return value


def read_baseline(path: Path, suite: str) -> dict[str, Any]:
    """An earlier result of the same suite.

    Raises:
        ConfigError: there is none, or it is of another suite.
    """
    if not path.is_file():
        raise ConfigError(f"baseline={path} is not a file; give a results.json, or the folder that holds one")
    record = read_results(path)
    if record["suite"] != suite:
        raise ConfigError(
            f"baseline={path} is of suite={record['suite']}, not of {suite}; give a result of the same suite"
        )
    return record


def against(record: Mapping[str, Any], earlier: Mapping[str, Any]) -> list[dict[str, Any]]:
    """For each cell of either: ``name``, ``ratio`` (speed now / speed then, with its interval) and ``verdict``.

    The verdict is faster, slower or no difference (the interval holds 1); too few trials on either side to tell; failed
    (measured then, and failed now), only now or only before.
    """
    then = {cell["name"]: cell for cell in earlier["cells"] if cell["visits"]}
    compared = []
    for cell in record["cells"]:
        before = then.pop(cell["name"], None)
        entry: dict[str, Any] = {"name": cell["name"], "ratio": None, "visits": None}
        if before is None:
            entry["verdict"] = "only now"
        elif cell["status"] == "failed" or not cell["visits"]:
            entry["verdict"] = "failed" if cell["status"] == "failed" else "only before"
        else:
            ours, theirs = ([rate_of(trial) for trial in one["visits"]] for one in (cell, before))
            entry["visits"] = [len(ours), len(theirs)]
            entry["ratio"] = ratio = unpaired_ratio(ours, theirs)
            entry["verdict"] = _verdict(ratio) if min(entry["visits"]) >= FEWEST else TOO_FEW
        compared.append(entry)
    return compared + [{"name": name, "ratio": None, "visits": None, "verdict": "only before"} for name in then]


def differences(record: Mapping[str, Any], earlier: Mapping[str, Any]) -> list[str]:
    """What makes the two results less comparable, such as another machine or another input."""
    ours, theirs = record["environment"], earlier["environment"]
    found = [f"{key} {theirs.get(key)}, now {ours.get(key)}" for key in GENERAL if ours.get(key) != theirs.get(key)]
    if record["input"] != earlier["input"]:
        found.append(f"input {earlier['input']['told']}, now {record['input']['told']}")
    if record["quick"] != earlier["quick"]:
        found.append("one of them is in quick mode")
    if record["overrides"] != earlier["overrides"]:
        found.append(f"overrides {' '.join(earlier['overrides'])}, now {' '.join(record['overrides'])}")
    then, now = (one["settings"].get("turn") for one in (earlier, record))
    if then != now:
        found.append(f"turn_seconds {then:g}, now {now:g}")
    return found


def require_alike(record: Mapping[str, Any], earlier: Baseline) -> None:
    """Refuse to tell a regression from results of other work.

    Raises:
        ConfigError: ``fail_if_slower`` was given, and the input or the mode is not the earlier result's.
    """
    if earlier.limit is None:
        return
    for key, was, now in (
        ("quick", earlier.record["quick"], record["quick"]),
        ("input", earlier.record["input"]["told"], record["input"]["told"]),
        ("generated input", earlier.record["input"]["generated"], record["input"]["generated"]),
    ):
        if was != now:
            raise ConfigError(
                f"fail_if_slower does not fit baseline={earlier.file}, whose {key} was {was}, and is {now}; give the "
                "same, or leave fail_if_slower out"
            )


def regressions(compared: Sequence[Mapping[str, Any]], share: float) -> list[str]:
    """The cells that fail and did not, or whose speed is below 1 - ``share`` and has an interval wholly below 1."""
    return [entry["name"] for entry in compared if entry["verdict"] == "failed" or _is_slower(entry, share)]


def _is_slower(entry: Mapping[str, Any], share: float) -> bool:
    return bool(entry["verdict"] == "slower" and entry["ratio"]["median"] < 1 - share)


def _verdict(ratio: Interval) -> str:
    low, high = ratio["low"] or 0.0, ratio["high"] or 0.0
    return "slower" if high < 1 else "faster" if low > 1 else "no difference"


def unpaired_ratio(ours: Sequence[float], theirs: Sequence[float]) -> Interval:
    """The median of all ratios of one of ours to one of theirs, with its 95% interval.

    Hodges and Lehmann's estimate of a shift, here of logarithms, with the interval of the rank-sum test in its normal
    approximation (Hollander and Wolfe 1999, section 4.3). With fewer than 4 values on each side the extremes are all
    there is, and cover less.
    """
    ratios = sorted(one / other for one in ours for other in theirs)
    n, m = len(ours), len(theirs)
    k = max(1, math.floor(n * m / 2 - 1.96 * math.sqrt(n * m * (n + m + 1) / 12)))
    return {"median": statistics.median(ratios), "low": ratios[k - 1], "high": ratios[len(ratios) - k]}
