"""The bounds and choices that the schema gives its keys (``knob``), and the one sentence for a value outside them."""

import dataclasses
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf

from strobe.errors import ConfigError

LIMITS: dict[str, tuple[Callable[[Any, Any], bool], str]] = {
    "min": (operator.ge, "at least"),
    "above": (operator.gt, "greater than"),
    "max": (operator.le, "at most"),
    "below": (operator.lt, "less than"),
}


def check_bounds(cfg: DictConfig) -> None:
    """Raise a :class:`ConfigError` for the first value that is out of its bounds."""
    for prefix, node in {"": cfg, **{f"{name!s}.": node for name, node in cfg.items()}}.items():
        for knob in fields_of(node):
            if knob.metadata:
                check_value(f"{prefix}{knob.name}", node[knob.name], knob.metadata)


def check_value(key: str, value: Any, rules: Mapping[str, Any]) -> None:
    """Raise a :class:`ConfigError` if a key's value breaks one of its rules."""
    if value is None:
        return
    values = value if isinstance(value, ListConfig) else [value]
    if not len(values):
        raise ConfigError(f"{key}=[] is empty; give at least one value")
    if "choices" in rules and not all(each in rules["choices"] for each in values):
        raise ConfigError(f"{key}={value} is not a choice; choose one of {', '.join(rules['choices'])}")
    limits = {name: rules[name] for name in LIMITS if name in rules}
    finite = not limits or all(map(math.isfinite, values))
    if not finite or not all(LIMITS[name][0](each, limit) for name, limit in limits.items() for each in values):
        wanted = " and ".join(f"{LIMITS[name][1]} {limit}" for name, limit in limits.items())
        raise ConfigError(f"{key}={value} is out of range; it must be {wanted}{'' if finite else ' and finite'}")


def fields_of(node: Any) -> tuple[dataclasses.Field[Any], ...]:
    """The fields in the schema of a part of the configuration; none of a plain value or an untyped part."""
    schema = OmegaConf.get_type(node) if isinstance(node, DictConfig) else None
    return dataclasses.fields(schema) if schema is not None and dataclasses.is_dataclass(schema) else ()
