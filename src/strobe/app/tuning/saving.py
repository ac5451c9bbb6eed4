"""What was found as a preset, ``conf/experiment/NAME.yaml``."""

import contextlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra import compose
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from strobe.app.config.checks import without_hydra
from strobe.errors import ConfigError
from strobe.records.files import whole

GROUPS = ("data", "loader", "engine", "model", "trainer", "profiler", "logger")
NO_TEXT = ("true", "false", "null", "yes", "no", "on", "off", "inf", "nan")  # to Hydra or YAML
MARK = "# @package _global_\n# Written by strobe tune"


def destination(name: str) -> Path:
    """Where a preset is written; its name must be valid, and not that of one which another hand wrote."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{0,99}", name) or name.lower() in NO_TEXT:
        raise ConfigError(
            f"tune.save={name} is not a valid name; use letters, digits, - and _, such as tune.save=tuned"
        )
    sources = [source for source in HydraConfig.get().runtime.config_sources if source.provider == "main"]
    path = Path(sources[0].path) / "experiment" / f"{name}.yaml"
    if path.exists() and not path.read_text(errors="replace").startswith(MARK):
        raise ConfigError(f"tune.save={name}: {path} exists and is not this command's; give another name, or remove it")
    return path


def save(path: Path, overrides: Sequence[str], comment: str) -> None:
    """Write the preset that composes to the same configuration as these overrides of ``train.py``; ``comment``: a line.

    Raises a :class:`ConfigError` if no preset can say what the overrides do, such as to delete a key.
    """
    wanted, choices = _composed(overrides)
    chosen = {group: choices[group] for group in GROUPS}
    _, defaults = _composed(())
    base, _ = _composed([f"{group}={choice}" for group, choice in chosen.items()])
    lines: list[Any] = [{f"override /{group}": name} for group, name in chosen.items() if name != defaults[group]]
    body = OmegaConf.to_yaml(OmegaConf.create({"defaults": [*lines, "_self_"], **difference(base, wanted)}))
    earlier = path.read_bytes() if path.exists() else None
    good = False
    try:
        with whole(path) as partial:
            partial.write_text(f"{MARK}: {' '.join(comment.split())}\n{body}")
        with contextlib.suppress(HydraException, OmegaConfBaseException):
            good = _composed([f"experiment={path.stem}"])[0] == wanted
    finally:
        if not good:
            path.unlink(missing_ok=True) if earlier is None else path.write_bytes(earlier)
    if not good:
        raise ConfigError(
            f"tune.save={path.stem}: no preset can say all of {' '.join(overrides)}; use the command above instead"
        )


def difference(base: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The values of ``wanted`` that are others than in ``base``, nested as they are."""
    different: dict[str, Any] = {}
    for key, value in wanted.items():
        if isinstance(value, dict) and isinstance(base.get(key), dict):
            if inner := difference(base[key], value):
                different[key] = inner
        elif key not in base or base[key] != value:
            different[key] = value
    return different


def _composed(overrides: Sequence[str]) -> tuple[dict[str, Any], dict[str, str]]:
    """The configuration of ``train.py`` as plain values, interpolations unresolved, and the choice of each group."""
    cfg: DictConfig = compose("config", list(overrides), return_hydra_config=True)
    values: Any = OmegaConf.to_container(without_hydra(cfg), resolve=False)
    return values, dict(cfg.hydra.runtime.choices)
