"""What ``--help`` prints: groups, choices, and each key with its default, meaning and bounds. Imports no torch."""

import dataclasses
import inspect
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from hydra import compose
from omegaconf import DictConfig, OmegaConf

from strobe.app.config import schema
from strobe.app.config.checks import LIMITS
from strobe.app.config.register import CONF, composing
from strobe.errors import ConfigError

WIDE = 40  # characters of a key and its value
OWN = {  # whose keys are not listed in the schema
    "trainer": "Arguments of Lightning's Trainer: https://lightning.ai/docs/pytorch/stable/common/trainer.html",
    "logger": "Arguments of Lightning's logger.",
    "experiment": "Presets: overrides under a name.",
}


def text(name: str, asked: Sequence[str] = ()) -> str:
    """The help for the configuration ``name``, or for the groups that are ``asked`` for.

    Raises:
        ConfigError: There is no such group.
    """
    with composing():
        given = [] if name != "bench" else ["suite=loading"]  # where nothing is chosen otherwise
        cfg = compose(name, given, return_hydra_config=True)
        groups = sorted(group for group in cfg.hydra.runtime.choices if _choices(group))
        if unknown := [group for group in asked if group not in groups and group not in cfg]:
            raise ConfigError(f"--help {unknown[0]}: there is no such group; give one of {', '.join(groups)}")
        if asked:
            return "\n\n".join(part for group in asked for part in _group(name, cfg, group))
    listed = "\n".join(f"  {group:<11} {', '.join(_choices(group))}" for group in groups)
    keys = [*_keys(cfg, ""), *(line for group in _plain(cfg, groups) for line in _keys(cfg[group], f"{group}."))]
    filled = {"$APP_CONFIG_GROUPS": f"{listed}\n\n  --help GROUP says what its keys mean", "$CONFIG": "\n".join(keys)}
    told: str = cfg.hydra.help.template
    for place, words in filled.items():
        told = told.replace(place, words)
    return told.rstrip()


def _group(name: str, cfg: DictConfig, group: str) -> Iterator[str]:
    """Each choice of a group, with its keys; keys that an earlier choice has listed are left out."""
    seen: set[str] = set()
    if group in OWN:
        yield OWN[group]
    for choice in _choices(group) or [""]:
        node = compose(name, [f"{group}={choice}"])[group] if choice and group != "experiment" else cfg.get(group)
        lines = [line for line in _keys(node, f"{group}.") if line not in seen] if node is not None else []
        seen |= set(lines)
        about = inspect.getdoc(OmegaConf.get_type(node)) if schema_of(node) else None
        head = f"{group}={choice}" if choice else group
        yield "\n".join([f"{head}{f'  {about}' if about else ''}", *lines])


def _plain(cfg: DictConfig, groups: Sequence[str]) -> list[str]:
    """Parts of the configuration that have no choices."""
    return [str(key) for key in cfg if key not in (*groups, "hydra") and schema_of(cfg[key])]


def _keys(node: Any, prefix: str) -> Iterator[str]:
    """A line for each key of a part of the configuration: default, meaning and bounds."""
    kind = schema_of(node)
    rules = {knob.name: knob.metadata for knob in dataclasses.fields(kind)} if kind else {}
    values: Any = OmegaConf.to_container(node, resolve=False) if isinstance(node, DictConfig) else {}
    for key, value in values.items():
        if key == "_target_" or isinstance(value, dict):
            continue
        shown = "null" if value is None else str(value).lower() if isinstance(value, bool) else value
        about = "; ".join(filter(None, (meanings(kind).get(key, "") if kind else "", _fits(rules.get(key, {})))))
        yield f"  {f'{prefix}{key}={shown}':<{WIDE}} {about}".rstrip()


def _fits(rules: Any) -> str:
    """The bounds of a key's values."""
    if "choices" in rules:
        return " | ".join(rules["choices"])
    return " and ".join(f"{words} {rules[name]}" for name, (_, words) in LIMITS.items() if name in rules)


def schema_of(node: Any) -> Any:
    """The schema of this part of the configuration; None for a plain value or an untyped part."""
    kind = OmegaConf.get_type(node) if isinstance(node, DictConfig) else None
    return kind if dataclasses.is_dataclass(kind) else None


@cache
def meanings(kind: type) -> dict[str, str]:
    """What the fields of a schema mean: the comment behind each, or above it if the line is full."""
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        if each.__module__ == schema.__name__:
            lines = [line.strip() for line in inspect.getsource(each).splitlines()]
            for above, line in zip(["", *lines], lines, strict=False):
                if field := re.match(r"(\w+): .*?(?:  # (.+))?$", line):
                    told = field[2] or (above.removeprefix("# ") if above.startswith("# ") else "")
                    found |= {field[1]: told} if told else {}
    return found


def _choices(group: str) -> list[str]:
    return sorted(path.stem for path in Path(CONF, group).glob("*.yaml"))
