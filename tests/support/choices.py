"""What conf/ holds, and what its parts are by default."""

import importlib
from typing import Any

from omegaconf import OmegaConf

from strobe.app.config.register import schemas
from support.places import ROOT

LOADER_KEYS_FOR_CHECKS = {"reads", "copies", "objects"}
SCHEMAS = {kind.__name__: kind for kind in schemas()}


def choices(group: str) -> dict[str, Any]:
    """The choices of one group, by name."""
    return {path.stem: OmegaConf.load(path) for path in sorted((ROOT / "conf" / group).glob("*.yaml"))}


def make(choice: Any, **options: object) -> Any:
    """The loader or engine as its schema has it, but for those of ``options`` that it knows."""
    schema = SCHEMAS[choice.defaults[0].removeprefix("/").removesuffix("@_here_")]
    given = {
        key: value for key, value in vars(schema()).items() if key not in choice and key not in LOADER_KEYS_FOR_CHECKS
    }
    given |= {key: value for key, value in options.items() if key in given}
    module, _, kind = choice._target_.rpartition(".")
    return getattr(importlib.import_module(module), kind)(**given)
