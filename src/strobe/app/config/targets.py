"""Classes that overrides name: they must be there, and take their arguments. Imports what the user names, no more."""

import inspect
from collections.abc import Sequence
from typing import Any

from hydra._internal.utils import _locate
from omegaconf import DictConfig, OmegaConf

from strobe.errors import ConfigError
from strobe.overrides import key_of

TARGET = "._target_"
ALSO = {"logger": ("save_dir",)}  # arguments that a run adds itself


def check_targets(cfg: DictConfig, task: Sequence[str], *, whole: bool = True) -> None:
    """Raise a :class:`ConfigError` for a class that is not there, or a callback or logger with wrong arguments.

    ``whole``: False where a sweep gives more arguments.
    """
    named = [f"callbacks.{name}" for name in cfg.callbacks]
    named += [key.removesuffix(TARGET) for key in map(key_of, task) if key.endswith(TARGET)]
    for name in dict.fromkeys(named):
        node = OmegaConf.select(cfg, name)
        if node is not None and isinstance(target := node.get("_target_"), str):
            found = _imported(f"{name}{TARGET}={target}", target)
            if name.startswith(("callbacks.", "logger")):
                _check_arguments(f"{name}{TARGET}={target}", found, node, ALSO.get(name, ()), whole)


def _imported(given: str, target: str) -> Any:
    try:
        return _locate(target)
    except Exception as error:
        cause = error.__cause__ or error
        missing = getattr(cause, "name", None) if isinstance(cause, ModuleNotFoundError) else None
        package, _, leaf = (missing or "").rpartition(".")
        reason = " ".join(f"{type(cause).__name__}: {cause}".split())
        if missing:
            reason = f"{package} has no {leaf}" if package else f"there is no module {missing}"
        raise ConfigError(
            f"{given} cannot be imported ({reason}); name a class as MODULE.CLASS, whose module is installed or beside "
            "train.py"
        ) from error


def _check_arguments(given: str, found: Any, node: DictConfig, also: Sequence[str], whole: bool) -> None:
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):  # of a class written in C
        return
    keys = [str(key) for key in node if str(key) not in ("_target_", "_args_", "_convert_", "_recursive_", "_partial_")]
    bind = signature.bind if whole and not node.get("_partial_") else signature.bind_partial
    try:
        bind(*node.get("_args_", ()), **dict.fromkeys([*keys, *also]))
    except TypeError as error:
        takes = ", ".join(name for name in signature.parameters if name not in also) or "no arguments"
        raise ConfigError(f"{given} cannot be made: {error}; it takes {takes}") from error
