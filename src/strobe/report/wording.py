"""The words in which terminal, TensorBoard and pictures say what a record holds."""

from collections.abc import Mapping
from typing import Any

from strobe.present.format import duration, percent, rate

CEILINGS = ("loader", "model")  # in the order in which they are told
MOST_FINDINGS = 3
NOTABLE = 0.01  # share of the step from which a callback is named
_MOST_CALLBACKS = 3


def subject(summary: Mapping[str, Any]) -> str:
    """What was trained on what, such as ``EuroSAT, resnet18, loader skimage, batch 32, 2 workers, 1 x cpu``."""
    choices = summary["choices"]
    parts = [
        summary["data"] or choices["data"],
        choices["model"],
        f"loader {choices['loader']}",
        f"batch {summary['batch_size']}",
        f"{summary['num_workers']} workers",
    ]
    if summary["world_size"]:
        parts.append(f"{summary['world_size']} x {summary['accelerator']}")
    return ", ".join(parts)


def ceiling_rates(summary: Mapping[str, Any]) -> dict[str, float]:
    """Images/s of the ceilings that were measured: ``loader``, ``model``, and ``joint`` where they share cores."""
    ceilings = summary.get("ceilings") or {}
    return {name: ceilings[name] for name in (*CEILINGS, "joint") if ceilings.get(name)}


def ceilings(summary: Mapping[str, Any]) -> str:
    """The ceilings and the efficiency in one line; why there are none; empty where nothing is known."""
    rates, found = ceiling_rates(summary), summary.get("ceilings") or {}
    parts = []
    if named := [f"{name} {rate(rates[name])}" for name in CEILINGS if name in rates]:
        parts.append(f"{', '.join(named)} images/s")
    if joint := rates.get("joint"):
        cores = (summary.get("environment") or {}).get("usable_cores")
        where = f"{cores} shared cores" if cores and cores > 1 else "the same core" if cores else "the same cores"
        parts.append(f"together about {rate(joint)} on {where}")
    if parts and (efficiency := summary.get("efficiency")) is not None:
        parts.append(f"efficiency {efficiency:.0%} of {_lowest(summary)}")
    told, reason = "; ".join(parts), str(found.get("reason") or "").rstrip(".")
    return f"{told}. {reason}" if told and reason else told or (reason and f"not measured: {reason}")


def _lowest(summary: Mapping[str, Any]) -> str:
    """The ceiling that the efficiency is a share of; the joint one has just been told."""
    rates = ceiling_rates(summary)
    if transfer := summary["ceilings"].get("transfer"):
        rates["transfer"] = transfer
    lowest = min(rates, key=lambda name: rates[name])
    return "that" if lowest == "joint" else f"the {lowest} ceiling"


def callbacks(summary: Mapping[str, Any]) -> str:
    """Callbacks, loggers and module hooks that take 1% of a step or more, the largest first; else empty."""
    total = (summary.get("step_seconds") or {}).get("total")
    if not total:
        return ""
    notable = [spent for spent in summary.get("callbacks") or [] if (spent["mean"] or 0) >= NOTABLE * total]
    notable.sort(key=lambda spent: -spent["mean"])
    parts = []
    for spent in notable[:_MOST_CALLBACKS]:
        longest = spent.get("longest") or 0
        seldom = f", once {duration(longest)}" if longest > 5 * spent["mean"] else ""
        parts.append(f"{spent['name']} {duration(spent['mean'])} ({percent(spent['mean'] / total)}{seldom})")
    if more := len(notable) - len(parts):
        parts.append(f"{more} more")
    return ", ".join(parts)


def findings(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The findings to show, in their order: three at most, without the one that there is nothing to fix."""
    return [found for found in summary.get("findings") or [] if found.get("cause") != "nothing"][:MOST_FINDINGS]


def heading(summary: Mapping[str, Any], found: Mapping[str, Any]) -> tuple[str, str]:
    """A finding's title and its predicted speed-up; empty where the verdict has just told both."""
    title, predicted, verdict = str(found["title"]), speedup(found), str(summary.get("verdict") or "")
    told = title.lower() in verdict.lower() and (predicted in verdict or not found.get("overrides"))
    return ("", "") if told else (title, predicted)


def command_of(summary: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """The command that applies a finding to its run; empty where only code or hardware can be changed."""
    if not found.get("overrides"):
        return ""
    from strobe.diagnose.rank import command  # and with it Hydra, which a record without findings can do without
    from strobe.records.run import Record

    return command(Record(dict(summary)), found["overrides"])


def speedup(found: Mapping[str, Any]) -> str:
    """The predicted speed-up of a finding, such as ``2.5x (2.3 to 2.6)``, or its bound where there is no remedy."""
    predicted = found.get("predicted_speedup") or {}
    median, low, high = (predicted.get(key) for key in ("median", "low", "high"))
    if median is None or not found.get("overrides"):  # what would be without it can only be bounded
        return f"up to {high:.1f}x" if high is not None and high > 1 else ""
    digits = 1 if median >= 1.5 else 2
    text = f"{median:.{digits}f}x"
    return text if low is None or high is None else f"{text} ({low:.{digits}f} to {high:.{digits}f})"
