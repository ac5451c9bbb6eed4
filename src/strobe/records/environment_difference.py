"""How the circumstances of results differ: machine, versions, page cache and more."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

APART = 0.2  # of the files' pages: larger differences of the page cache are reported
MACHINE = {"host": "host", "cpu": "processor", "usable_cores": "usable cores", "gpu": "GPU"}


@dataclass(frozen=True)
class Origin:
    """The circumstances of one result."""

    name: str  # the result's, as in "a in NAME"
    environment: Mapping[str, Any]  # as in records
    more: Mapping[str, Any] = field(default_factory=dict)  # what else may differ: a commit, an input
    whole: bool = True  # False for a run that failed early and recorded only a part


def environment_differences(origins: Sequence[Origin], things: str) -> list[str]:
    """A sentence for each circumstance that differs between results, which are called ``things``, such as "runs"."""
    recorded = [origin for origin in origins if origin.environment]
    known = [_circumstances(origin) for origin in recorded]
    sentences = []
    for what in dict.fromkeys(name for one in known for name in one):
        values = [one.get(what) for one in known]
        pairs = zip(recorded, values, strict=True)
        sentences.append(_sentence([p for p in pairs if p[1] is not None or p[0].whole], things, what))
    return [sentence for sentence in (*sentences, _page_cache(recorded)) if sentence]


def _circumstances(origin: Origin) -> dict[str, Any]:
    """What may differ, by name; None if unknown or of the wrong type."""
    machine = {words: origin.environment.get(key) for key, words in MACHINE.items()}
    versions = origin.environment.get("versions")
    packages = versions if isinstance(versions, Mapping) else {}
    machine |= {f"the version of {name}": value for name, value in packages.items()}
    return {what: value if isinstance(value, (str, int)) else None for what, value in machine.items()} | {**origin.more}


def _sentence(values: Sequence[tuple[Origin, Any]], things: str, what: str) -> str | None:
    """``The runs differ in host: a in 3 runs, b in RUN``; None if they do not."""
    groups: dict[Any, list[Origin]] = {}
    for origin, value in values:
        groups.setdefault(value, []).append(origin)
    if len(groups) < 2:
        return None
    parts = [
        f"{'none' if value is None else value} in {some[0].name if len(some) == 1 else f'{len(some)} {things}'}"
        for value, some in groups.items()
    ]
    return f"The {things} differ in {what}: {', '.join(parts)}"


def _page_cache(origins: Sequence[Origin]) -> str | None:
    known = [(origin.environment.get("page_cache"), origin.name) for origin in origins]
    shares = [(float(share), name) for share, name in known if isinstance(share, (int, float))]
    if not shares:
        return None
    (least, cold), (most, warm) = (end(shares, key=lambda pair: pair[0]) for end in (min, max))
    if most - least <= APART:
        return None
    return f"The page cache held {least:.0%} of the training files when {cold} began, and {most:.0%} when {warm} began"
