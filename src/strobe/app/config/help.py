"""What ``--help`` prints: groups, choices, and each key with its default, meaning and bounds. Imports no torch."""

import inspect
import itertools
import re
import shutil
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hydra import compose
from omegaconf import DictConfig, OmegaConf

from strobe.app.config.bounds import LIMITS, fields_of
from strobe.app.config.register import CONF, composing, meanings
from strobe.errors import ConfigError

WIDE = 40  # characters of a key and its value
FIXED = ("_target_", "form", "reads", "copies", "objects")  # what a choice is, which nobody overrides
TRAINS = ("checkpoint", "sweep")  # groups that only train.py uses
OWN = {  # groups that need more words than their choices have
    "trainer": "Arguments of Lightning's Trainer: https://lightning.ai/docs/pytorch/stable/common/trainer.html",
    "logger": "Arguments of Lightning's logger.",
    "experiment": "Presets: each sets several keys.",
}


def text(name: str, asked: Sequence[str] = ()) -> str:
    """The help for the configuration ``name``, or for the groups and keys ``asked`` for, which must be there."""
    with composing():
        suite = ["suite=loading"] if name == "bench" else []  # which has no default
        cfg = compose(name, suite, return_hydra_config=True)
        groups = sorted(group for group in cfg.hydra.runtime.choices if _choices(group))
        others = (*groups, "hydra", *(TRAINS if name != "config" else ()))
        parts = [str(key) for key in cfg if key not in others and fields_of(cfg[key])]  # which have no choices
        keys = [*_keys(cfg, ""), *(line for part in parts for line in _keys(cfg[part], f"{part}."))]
        chosen = (line for group in groups if group in cfg for line in _keys(cfg[group], f"{group}."))
        lines = {line.split("=", 1)[0].strip(): line for line in (*keys, *chosen)}
        if unknown := [each for each in asked if each not in (*groups, *parts, *lines)]:
            there = ", ".join([*groups, *parts])
            raise ConfigError(f"--help {unknown[0]}: there is no such group or key; give one of {there}")
        if asked:
            texts = ([lines[each]] if each in lines else _group(name, cfg, each) for each in asked)
            return "\n\n".join(itertools.chain.from_iterable(texts))
    listed = "\n".join(f"  {group:<11} {', '.join(_choices(group))}" for group in groups)
    filled = {"$APP_CONFIG_GROUPS": f"{listed}\n\n  --help GROUP says what its keys mean", "$CONFIG": "\n".join(keys)}
    page: str = cfg.hydra.help.template
    for place, words in filled.items():
        page = page.replace(place, words)
    return page.rstrip()


def _group(name: str, cfg: DictConfig, group: str) -> Iterator[str]:
    """The keys that all choices of a group share, then each choice with its own keys."""
    if group in OWN:
        yield OWN[group]
    choices = _choices(group)
    if not choices:
        yield "\n".join([f"{group}  {inspect.getdoc(OmegaConf.get_type(cfg[group]))}", *_keys(cfg[group], f"{group}.")])
    nodes = {choice: compose(name, [f"{group}={choice}"])[group] for choice in choices if group != "experiment"}
    lines = {choice: list(_keys(nodes.get(choice), f"{group}.")) for choice in choices}
    shared = [line for line in lines[choices[0]] if all(line in each for each in lines.values())] if choices[1:] else []
    if shared:
        yield "\n".join([f"{group}: every choice", *shared])
    for choice in choices:
        head = _hanging(f"{group}={choice}  ", _comment(Path(CONF, group, f"{choice}.yaml")))
        yield "\n".join([head, *(line for line in lines[choice] if line not in shared)])


def _keys(node: Any, prefix: str) -> Iterator[str]:
    """A line for each key of a part of the configuration: default, meaning and bounds."""
    rules = {knob.name: knob.metadata for knob in fields_of(node)}
    schema: Any = OmegaConf.get_type(node) if rules else None
    comments = meanings(schema) if schema else _commented(prefix.rstrip("."))
    values: Any = OmegaConf.to_container(node, resolve=False) if isinstance(node, DictConfig) else {}
    for key, value in values.items():
        if key in FIXED or (isinstance(value, dict) and value):
            continue
        shown = "null" if value is None else str(value).lower() if isinstance(value, bool) else value
        about = "; ".join(filter(None, (comments.get(key, ""), _fits(rules.get(key, {})))))
        yield _hanging(f"  {f'{prefix}{key}={shown}':<{WIDE}} ", about)


def _hanging(head: str, text: str) -> str:
    """A text beside its head, as wide as the terminal."""
    width = max(shutil.get_terminal_size((160, 0)).columns, 2 * WIDE)
    below = " " * min(len(head), WIDE + 3)
    filled = textwrap.fill(text, width, initial_indent=head, subsequent_indent=below, break_on_hyphens=False)
    return filled or head.rstrip()


def _fits(rules: Any) -> str:
    """The bounds of a key's values."""
    if "choices" in rules:
        return " | ".join(rules["choices"])
    return " and ".join(f"{words} {rules[name]}" for name, (_, words) in LIMITS.items() if name in rules)


def _comment(file: Path) -> str:
    """What a choice is: the comment at the top of its file."""
    lines = itertools.takewhile(lambda line: line.startswith("#"), file.read_text().splitlines())
    return " ".join(line.lstrip("# ") for line in lines if not line.startswith("# @package"))


def _commented(group: str) -> dict[str, str]:
    """What the keys of a group without a schema mean: the comments behind them in its files."""
    files = (Path(CONF, group, f"{choice}.yaml").read_text() for choice in _choices(group))
    return dict(re.findall(r"^(\w+): .*?  # (.+)$", "\n".join(files), re.MULTILINE))


def _choices(group: str) -> list[str]:
    return sorted(path.stem for path in Path(CONF, group).glob("*.yaml"))
