"""Under which different circumstances results came about: machine, versions, page cache, and what else is said."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

APART = 0.2  # of the files' pages: a greater difference in what the page cache holds is told
MACHINE = {"host": "host", "cpu": "processor", "usable_cores": "usable cores", "gpu": "GPU"}


@dataclass(frozen=True)
class Origin:
    """How one result came about.

    Attributes:
        name: the result's, as in "a in NAME".
        environment: ``host``, ``cpu``, ``usable_cores``, ``gpu``, ``versions``, ``page_cache``, as records have them.
        more: what else may differ, by how it is called: a commit, an input.
        whole: whether it would have told all; of a run that failed early nothing may be known.
    """

    name: str
    environment: Mapping[str, Any]
    more: Mapping[str, Any] = field(default_factory=dict)
    whole: bool = True


def environment_differences(origins: Sequence[Origin], things: str) -> list[str]:
    """A sentence for each circumstance that differs between results, ``things`` such as "runs", that left a record."""
    told = [origin for origin in origins if origin.environment]
    versions = [origin.environment.get("versions") for origin in told]
    packages = dict.fromkeys(name for known in versions if isinstance(known, Mapping) for name in known)
    found = [_values(told, things, words, _plain(key)) for key, words in MACHINE.items()]
    found += [_values(told, things, f"the version of {name}", _version(name)) for name in packages]
    for name in dict.fromkeys(name for origin in told for name in origin.more):
        found.append(_values(told, things, name, _more(name)))
    return [sentence for sentence in (*found, _page_cache(told)) if sentence]


def _values(origins: Sequence[Origin], things: str, what: str, of: Callable[[Origin], Any]) -> str | None:
    """``The runs differ in host: a in 3 runs, b in RUN``; None if they do not."""
    found: dict[Any, list[Origin]] = {}
    for origin in origins:
        value = of(origin)
        if value is not None or origin.whole:
            found.setdefault(value, []).append(origin)
    if len(found) < 2:
        return None
    parts = [
        f"{'none' if value is None else value} in {some[0].name if len(some) == 1 else f'{len(some)} {things}'}"
        for value, some in found.items()
    ]
    return f"The {things} differ in {what}: {', '.join(parts)}"


def _plain(key: str) -> Callable[[Origin], Any]:
    def of(origin: Origin) -> Any:
        value = origin.environment.get(key)
        return value if isinstance(value, (str, int)) else None

    return of


def _version(name: str) -> Callable[[Origin], Any]:
    def of(origin: Origin) -> Any:
        known = origin.environment.get("versions")
        value = known.get(name) if isinstance(known, Mapping) else None
        return value if isinstance(value, str) else None

    return of


def _more(name: str) -> Callable[[Origin], Any]:
    return lambda origin: origin.more.get(name)


def _page_cache(origins: Sequence[Origin]) -> str | None:
    known = [(origin.environment.get("page_cache"), origin.name) for origin in origins]
    shares = [(float(share), name) for share, name in known if isinstance(share, (int, float))]
    if not shares:
        return None
    (least, cold), (most, warm) = (end(shares, key=lambda pair: pair[0]) for end in (min, max))
    if most - least <= APART:
        return None
    return f"The page cache held {least:.0%} of the training files when {cold} began, and {most:.0%} when {warm} began"
