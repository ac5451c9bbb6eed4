"""What runs in each step beside training: callbacks, loggers, modules with hooks."""

import re
from collections import Counter, defaultdict
from dataclasses import dataclass

from strobe.records.run import Record, amount


@dataclass(frozen=True)
class Hook:
    """A callback, logger or module: mean and longest seconds per step, and the steps in which it did something.

    All instances of a class are merged; ``names`` are theirs.
    """

    cause: str  # callback | logging | checkpoint
    name: str
    names: tuple[str, ...]
    kind: str
    mean: float
    longest: float
    calls: float


def hooks(record: Record) -> list[Hook]:
    """What runs in each step beside training, the costliest class first."""
    added, by_class = added_callbacks(record), defaultdict[tuple[str, str], list[tuple[str, str, list[float]]]](list)
    for entry in record.items("callbacks"):
        if not isinstance(entry, dict) or not isinstance(name := entry.get("name"), str):
            continue
        kind, title = str(entry.get("kind")), re.sub(r" \d+$", "", name)
        mean, longest, calls = (max(0.0, amount(entry.get(key))) for key in ("mean", "longest", "calls"))
        # Earlier records do not tell; there, not a user's own callback with such a name.
        saves = kind == "checkpoint" or (title in ("Checkpoints", "ModelCheckpoint") and name not in added)
        cause = "logging" if kind == "logger" else "checkpoint" if saves else "callback"
        by_class[cause, title].append((name, kind, [mean, longest or mean, calls]))
    merged = []
    for (cause, title), entries in by_class.items():
        names, kinds, figures = zip(*entries, strict=True)
        means, longest_ones, counts = zip(*figures, strict=True)
        calls = counts[means.index(max(means))]  # others may be called far more often, and do nothing
        merged.append(Hook(cause, title, names, kinds[0], sum(means), sum(longest_ones), calls))
    return sorted(merged, key=lambda hook: -hook.mean)


def class_of(target: object) -> str:
    """The class at the end of a dotted path."""
    return str(target).rpartition(".")[2]


def added_callbacks(record: Record) -> dict[str, str]:
    """The keys below ``callbacks``, by their names in the record: the class, numbered from the second one on."""
    names: dict[str, str] = {}
    seen: Counter[str] = Counter()
    added = record.setting("callbacks")
    for key, node in added.items() if isinstance(added, dict) else ():
        name = class_of(node.get("_target_")) if isinstance(node, dict) else ""
        seen[name] += 1
        names[name if seen[name] == 1 else f"{name} {seen[name]}"] = str(key)
    return names
