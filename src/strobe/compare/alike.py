"""What makes runs less comparable besides their overrides: machine, versions, commit, page cache, data."""

from collections.abc import Callable, Sequence
from typing import Any

from strobe.compare.runs import Trained

APART = 0.2  # of the training files' pages: a greater difference in what the page cache holds is told
_MACHINE = {"host": "host", "cpu": "processor", "usable_cores": "usable cores", "gpu": "GPU"}


def differences(runs: Sequence[Trained], keys: Sequence[str]) -> list[str]:
    """Sentences on what was not the same in runs that left a record; ``keys``, the overrides that differ, are meant."""
    told = [run for run in runs if run.record.mapping("environment")]
    found = [_values(told, words, _environment(key)) for key, words in _MACHINE.items()]
    packages = dict.fromkeys(name for run in told for name in run.record.mapping("environment", "versions"))
    found += [_values(told, f"the version of {name}", _version(name)) for name in packages]
    found += [_values(told, "commit", _commit), _uncommitted(told), _page_cache(told)]
    if not any(key == "data" or (key.startswith("data.") and key != "data.batch_size") for key in keys):
        found.append(_values(told, "training images", lambda run: run.record.count("train_images")))
    return [sentence for sentence in found if sentence]


def _values(runs: Sequence[Trained], what: str, of: Callable[[Trained], Any]) -> str | None:
    """``The runs differ in host: a in 3 runs, b in RUN``, None if they do not; of failed runs nothing may be known."""
    found: dict[Any, list[Trained]] = {}
    for run in runs:
        value = of(run)
        if value is not None or run.status == "completed":
            found.setdefault(value, []).append(run)
    if len(found) < 2:
        return None
    parts = [f"{'none' if value is None else value} in {_which(some)}" for value, some in found.items()]
    return f"The runs differ in {what}: {', '.join(parts)}"


def _which(runs: Sequence[Trained]) -> str:
    return str(runs[0].folder) if len(runs) == 1 else f"{len(runs)} runs"


def _environment(key: str) -> Callable[[Trained], Any]:
    def of(run: Trained) -> Any:
        value = run.record.mapping("environment").get(key)
        return value if isinstance(value, (str, int)) else None

    return of


def _version(name: str) -> Callable[[Trained], Any]:
    return lambda run: run.record.text("environment", "versions", name)


def _commit(run: Trained) -> str | None:
    """Short, with ``+`` for uncommitted changes."""
    commit = run.record.text("environment", "git_commit")
    return commit and commit[:12].removesuffix("+") + ("+" if commit.endswith("+") else "")


def _uncommitted(runs: Sequence[Trained]) -> str | None:
    """Of one sweep, changes are taken to be the same in all runs; of several, nobody knows."""
    commits = {_commit(run) for run in runs}
    if len(commits) != 1 or len({run.origin for run in runs}) == 1 or not (commits.pop() or "").endswith("+"):
        return None
    return "The runs had uncommitted changes, which may not have been the same"


def _page_cache(runs: Sequence[Trained]) -> str | None:
    shares = [(share, run) for run in runs if (share := run.record.number("environment", "page_cache")) is not None]
    if not shares:
        return None
    (least, cold), (most, warm) = (end(shares, key=lambda pair: pair[0]) for end in (min, max))
    if most - least <= APART:
        return None
    return (
        f"The page cache held {least:.0%} of the training files when {cold.folder} began, and {most:.0%} when "
        f"{warm.folder} began"
    )
