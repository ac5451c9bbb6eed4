"""Overrides of a configuration: ``KEY=VALUE``, ``+KEY=VALUE`` and ``~KEY``, Hydra's grammar as far as Strobe needs it.

https://hydra.cc/docs/1.3/advanced/override_grammar/basic/ has all of it. What a value means only the application knows,
which has Hydra's parser: functions that need it take a ``parse``.
"""

import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

Parse = Callable[[str], tuple[str, str]]

SHARED = {"loader": ("loader.scale",), "engine": ("engine.num_workers",)}  # keys that every choice of a group has
_SAME = re.compile(r"(seed|ckpt_path)$|hydra[./]|sweep\.")  # keys in which the runs of one cell may differ


def key_of(override: str) -> str:
    """The key, or the group, that an override sets, adds or deletes."""
    return split(override)[0]


def split(override: str) -> tuple[str, str]:
    """The key of an override and its value as it was typed, empty if there is none."""
    key, _, value = override.lstrip("+~").partition("=")
    return key, value


def as_typed(override: str) -> tuple[str, str]:
    """The plain :data:`Parse`: a key, with ``~`` before one that is deleted, and its value as it was typed."""
    key, value = split(override)
    return (f"~{key}", "" if value == "null" else value) if override.startswith("~") else (key, value)


def cell_of(overrides: Iterable[str], parse: Parse = as_typed) -> dict[str, str]:
    """What identifies a run's cell: its keys, each with the last value. Seed, output and resuming do not count."""
    return {key: value for key, value in map(parse, overrides) if not _SAME.match(key)}


def joined(*several: Iterable[str]) -> list[str]:
    """All of these overrides in order, but only the last one for each key."""
    everything = [override for overrides in several for override in overrides]
    last = {key_of(override): place for place, override in enumerate(everything)}
    return [override for place, override in enumerate(everything) if last[key_of(override)] == place]


def applied(own: Sequence[str], overrides: Sequence[str]) -> list[str]:
    """A run's overrides with others in place of those for the same keys, or after them.

    Another loader or engine drops the settings of the old one, except those that every choice of the group has.
    """
    result = list(own)
    for override in overrides:
        if (group := key_of(override)) in SHARED:
            kept = SHARED[group]
            result = [text for text in result if not key_of(text).startswith(f"{group}.") or key_of(text) in kept]
        result = _without(result, override) if override.startswith("~") else _with(result, override)
    return result


def _with(own: list[str], override: str) -> list[str]:
    """Add an override, in place of one for the same key and with its ``+`` or ``++``."""
    key = key_of(override)
    places = [place for place, text in enumerate(own) if key_of(text) == key]
    if not places:
        return [*own, override]
    last = places[-1]
    sign = own[last][: len(own[last]) - len(own[last].lstrip("+"))]
    return [sign + override if place == last else text for place, text in enumerate(own) if place not in places[:-1]]


def _without(own: list[str], override: str) -> list[str]:
    """The overrides without those that add a key; with the deletion if a file adds it."""
    key = key_of(override)
    kept = [text for text in own if key_of(text) != key and not key_of(text).startswith(f"{key}.")]
    return kept if len(kept) < len(own) else [*own, override]


def quoted(path: Path | str) -> str:
    """A path as a value, in quotes if the grammar needs them."""
    plain = re.fullmatch(r"[\w./+-]+", text := str(path), re.ASCII)
    return text if plain else "'" + text.replace("'", r"\'") + "'"


def command_of(overrides: Sequence[str]) -> str:
    """The command that trains with these overrides."""
    return shlex.join(["python", "train.py", *overrides])
