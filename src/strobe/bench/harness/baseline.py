"""Compares results with earlier ones: did anything become slower?"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strobe.bench.harness import results
from strobe.bench.harness.results import NAME, CellRecord, day, rate_of, read_results, work_of
from strobe.errors import ConfigError
from strobe.measure.days import NOT_KNOWN, ratio_by_day
from strobe.measure.gate import Case, Ruling, parse_share, rule
from strobe.measure.statistics import FEWEST, Estimate, together

USUAL = 7  # rounds that tell a tenth where trials vary by 5%
FLAG = "fail_if_slower="
DIFFERENT_DAYS = (
    "the results are of different days, between which a machine changes; measure the baseline again today, beside this"
)


@dataclass(frozen=True)
class Baseline:
    """An earlier result, and how much slower than it is too slow."""

    file: Path
    record: dict[str, Any]
    limit: float | None = None


def wanted(file: str | None, limit: str | None, suite: str, rounds: int) -> Baseline | None:
    """What ``baseline`` and ``fail_if_slower`` ask for; raises a ConfigError if they cannot be used."""
    if file is None:
        if limit is not None:
            raise ConfigError(f"{FLAG}{limit} needs an earlier result; give baseline=FILE, a results.json")
        return None
    share = None if limit is None else parse_share(limit, FLAG)
    path = Path(file) / NAME if Path(file).is_dir() else Path(file)
    if not path.is_file():
        raise ConfigError(f"baseline={path} is not a file; give a results.json, or the folder that holds one")
    record = read_results(path)
    if record["suite"] != suite:
        raise ConfigError(
            f"baseline={path} is of suite={record['suite']}, not of {suite}; give a result of the same suite"
        )
    most = max((len(cell["visits"]) for cell in record["cells"]), default=0)
    for source, count in ((f"rounds={rounds}", rounds), (f"baseline={path}, measured with rounds={most},", most)):
        if share is not None and count < FEWEST:
            raise ConfigError(
                f"{FLAG}{limit} cannot be told with {source}: it takes {FEWEST} trials of a cell in both results; "
                f"give rounds={USUAL} in both"
            )
    return Baseline(path, record, share)


def against(record: Mapping[str, Any], earlier: Mapping[str, Any]) -> list[dict[str, Any]]:
    """For each cell of either: ``name``, ``visits``, ``ratio`` (speed now / speed then) and ``verdict``.

    The verdict is the ratio's, which holds for all cells together, or else: not known (of different days), failed
    (measured then, failed now), only now, only before.
    """
    compared, pairs = [], list(_pairs(record, earlier))
    ratios = iter(together([ratio for *_, ratio in pairs if ratio]))
    for name, now, then, measured in pairs:
        entry: dict[str, Any] = {"name": name, "ratio": None, "visits": None, "verdict": "only now"}
        if measured and now and then:
            ratio = next(ratios)
            visits = [len(now["visits"]), len(then["visits"])]
            verdict = NOT_KNOWN if _apart(record, earlier) else ratio.verdict
            entry |= {"ratio": ratio.as_record(), "visits": visits, "verdict": verdict}
        elif then is not None:
            entry["verdict"] = "failed" if now and now["status"] == "failed" else "only before"
        compared.append(entry)
    return compared


def ruled(record: Mapping[str, Any], earlier: Mapping[str, Any], limit: float) -> Ruling:
    """The gate's verdict on all cells."""
    cases = []
    for name, now, then, ratio in _pairs(record, earlier):
        failed, doubt = now is not None and now["status"] == "failed", None
        if then is None:
            doubt = "the baseline has not measured it"
        elif failed and then["status"] == "failed":
            failed, doubt = False, "it failed in both"
        elif ratio is None and not failed:
            doubt = "it was measured only in the baseline"
        elif _apart(record, earlier):
            doubt = DIFFERENT_DAYS
        cases.append(Case(name, ratio, failed and then is not None, doubt))
    return rule(cases, limit, FLAG, "rounds")


def _pairs(
    record: Mapping[str, Any], earlier: Mapping[str, Any]
) -> Iterator[tuple[str, CellRecord | None, CellRecord | None, Estimate | None]]:
    """Each cell's name, its entry now and then (None if missing), and the ratio of speeds (None if unknown)."""
    then = {cell["name"]: cell for cell in earlier["cells"] if cell["visits"]}
    for now in record["cells"]:
        before = then.pop(now["name"], None)
        ratio = None
        if before is not None and now["visits"] and now["status"] != "failed":
            ours, theirs = (
                {day(of): [rate_of(trial) for trial in cell["visits"]]}
                for of, cell in ((record, now), (earlier, before))
            )
            ratio = ratio_by_day(ours, theirs)
        yield now["name"], now, before, ratio
    yield from ((name, None, before, None) for name, before in then.items())


def _apart(record: Mapping[str, Any], earlier: Mapping[str, Any]) -> bool:
    """Whether the results are of different days: each is of one, so nothing can be judged."""
    return day(record) != day(earlier)


def differences(record: Mapping[str, Any], earlier: Mapping[str, Any]) -> list[str]:
    """What makes the results less comparable, such as another day, machine or input."""
    days = [f"{DIFFERENT_DAYS[0].upper()}{DIFFERENT_DAYS[1:]}"] if _apart(record, earlier) else []
    return days + results.differences(record, earlier)


def require_same_work(record: Mapping[str, Any], earlier: Baseline) -> None:
    """With ``fail_if_slower``, raise a ConfigError if the input or the mode differs from the earlier result's."""
    before = work_of(earlier.record)
    for key, now in work_of(record).items():
        if earlier.limit is not None and before[key] != now:
            raise ConfigError(
                f"fail_if_slower does not fit baseline={earlier.file}, whose {key} was {before[key]}, and is {now}; "
                "give the same, or leave fail_if_slower out"
            )
