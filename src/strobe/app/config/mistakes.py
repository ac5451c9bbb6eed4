"""A user's mistake as one sentence, in place of Hydra's several lines. Imports no torch."""

import dataclasses
import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Any

from hydra import compose
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, IntervalSweep, RangeSweep
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from strobe.app.config.lightning import trainer_hints
from strobe.app.config.register import CONF, composing, meanings, schemas
from strobe.errors import ConfigError, StrobeError
from strobe.overrides import key_of

MISTAKES = (HydraException, OmegaConfBaseException, YAMLError, StrobeError)
ADDED = {  # what has no key until it is added
    "callbacks": "+callbacks.NAME._target_=CLASS adds a callback, +callbacks.NAME.KEY=VALUE its arguments",
    "trainer": "+{}=VALUE gives this argument to Lightning's Trainer",
    "logger": "+{}=VALUE gives this argument to the logger",
}
ELSEWHERE = {  # groups of one command only
    "suite": "strobe bench suite=NAME runs a benchmark suite",
    "tune": "strobe tune reads it",
}
ALIASES = {  # what other programs call a key
    **dict.fromkeys(("learning_rate", "base_lr"), "model.lr"),
    **dict.fromkeys(("bs", "batch"), "data.batch_size"),
    **dict.fromkeys(("gpus", "num_gpus"), "trainer.devices"),
    **dict.fromkeys(("dataset", "datasets"), "data"),
    **dict.fromkeys(("image_size", "img_size"), "data.size"),
    **dict.fromkeys(("arch", "architecture", "network", "backbone"), "model"),
    **dict.fromkeys(("augmentation", "augmentations"), "data.augment"),
    **dict.fromkeys(("output_dir", "out_dir", "save_dir", "output"), "hydra.run.dir"),
    "name": "model.name",
}
WANTED = {  # by OmegaConf's message: what to give in place of a value of a wrong type
    r"could not be converted to Integer": "a whole number",
    r"could not be converted to Float": "a number",
    r"is not a valid bool": "true or false",
    r"is not Optional": "a value other than null",
    r"is not a ListConfig, list or tuple": "a list, such as [1,2]",
    r"is not a (subclass|dict)|cannot be assigned|to a (dict|DictConfig)": "a group of keys",
}
QUOTING = "give KEY=VALUE, and quote a value with spaces or any of ,={}[]()$, such as \"data.root='my data'\""
NO_NAME = (int, float, list, type(None), RangeSweep, IntervalSweep)  # a bool is an int
NEAR = 0.7  # the cutoff of get_close_matches for a typing mistake
NEARER = 0.8  # the cutoff for a key of another group


def mistake(error: Exception, name: str = "config", overrides: Sequence[str] = ()) -> StrobeError:
    """One of ``MISTAKES`` as an error of Strobe's, which has an exit code; the arguments are those of ``sentence``."""
    known = error.__cause__ if isinstance(error.__cause__, StrobeError) else error  # raised in a launcher's job
    return known if isinstance(known, StrobeError) else ConfigError(sentence(error, name, overrides))


def sentence(error: Exception, name: str = "config", overrides: Sequence[str] = ()) -> str:
    """Which override is wrong, and what fits; an unknown error becomes one line as it is.

    The keys of configuration ``name``, which could not be composed with ``overrides``, are what may have been meant.
    """
    text, cause = str(error), str(error.__cause__ or "").partition("\n")[0]
    if isinstance(error, MissingConfigException) and error.options is not None:
        group, _, choice = (error.missing_cfg_file or "").rpartition("/")
        message = f"{group}={choice} is not a choice; choose one of {', '.join(error.options)}"
    elif isinstance(error, OverrideParseException):
        message = f"{error.override} cannot be read; {QUOTING}"
    elif match := re.match(r"Could not (?:override|delete from config\.) '([^']+)'", text):
        message = _unknown(match[1], name, overrides)
    elif match := re.match(r"Could not append to config\. An item is already at '([^']+)'", text):
        message = f"+{match[1]} is a key already; give {match[1]}=VALUE, without the +"
    elif match := re.match(r"Error merging override (.+)", text):
        remedy = next((f"give {value}" for pattern, value in WANTED.items() if re.search(pattern, cause)), cause)
        message = f"{match[1]} does not fit; {remedy}"
    elif match := re.match(r"In '([^']+)': ConfigKeyError .*full_key: (\S+).*object_type=(\w+)", text, re.DOTALL):
        known = [match[2][: match[2].rfind(".") + 1] + field for field in _fields().get(match[3], ())]
        message = f"{match[1]}.yaml: {match[2]} is not a key; {suggestion(match[2], known)}"
    elif isinstance(error, YAMLError):
        message = f"{' '.join(text.split())}; mend this YAML"
    elif match := re.match(r"You must specify '([^']+)'.*Available options:(.*)", text, re.DOTALL):
        message = _unchosen(match[1], match[2].split(), name, overrides)
    elif match := re.match(r"Multiple values for ([^.\s]+)\.", text):
        message = f"{match[1]} has a choice already; give {match[1]}=CHOICE, without a +"
    elif match := re.match(r"Ambiguous value for argument '(([^=]+)=(.+))'", text):
        message = f"{match[1]} has several values; sweep over them with -m, or give a list: '{match[2]}=[{match[3]}]'"
    else:
        place = re.search(r"full_key: (\S+)", text)
        message = " ".join(re.sub(r"\s*(?:full_key|object_type|reference_type)[:=].*", "", text).split())
        message = f"{place[1]}: {message}" if place else message
    return message


def suggestion(key: str, known: Sequence[str]) -> str:
    """What may have been meant by an unknown key; a key of Hydra's own only where the key is one."""
    key = key.lower()
    group, _, leaf = key.rpartition(".")
    if only := _only(key, known):
        return only
    if (alias := ALIASES.get(leaf, "")).startswith(group):
        only = "" if alias in known else _only(alias, known)
        if alias:
            return f"did you mean {alias}?{only and f' {only.capitalize()}'}"
    known = [other for other in known if not other.startswith("hydra") or key.startswith("hydra")]
    leaves = [(other.rpartition(".")[2], other) for other in known if other != key]
    beside = {name: other for name, other in leaves if group and other.rpartition(".")[0] == group}
    meant = [beside[name] for name in get_close_matches(leaf, beside, 2, NEARER)]
    meant = meant or [other for name, other in leaves if name == leaf]
    meant = meant or [other for name, other in leaves if leaf in name.split("_")]
    for near, below in ((NEAR, f"{group}."), (NEARER, "")):
        names = {name: other for name, other in reversed(leaves) if other.startswith(below)}
        meant = meant or [names[name] for name in get_close_matches(leaf, names, 2, near)]
    meant = meant or _by_meaning(leaf, [other for _, other in leaves if other.startswith(group)])
    return f"did you mean {' or '.join(meant[:2])}?" if meant else "--help lists the keys"


def require_values(overrides: Sequence[str]) -> None:
    """Raise a :class:`ConfigError` for what Hydra takes, or fails at with a traceback.

    These are an empty value, such as that of a shell's variable that is not set (as a folder it would be the current
    one), and a group whose choice is no name, such as ``data=5`` or ``loader=null``.
    """
    for parsed in OverridesParser.create().parse_overrides(list(overrides)):
        if parsed.is_delete():
            continue
        override, group, value = parsed.input_line, parsed.key_or_group, parsed.value()
        if not group or getattr(value, "text", value) == "":
            raise ConfigError(f"{override} has no {'value' if group else 'key'}; give KEY=VALUE")
        options = sorted(path.stem for path in CONF.glob(f"{group}/*.yaml"))
        choices = value.list if isinstance(value, ChoiceSweep) else value if isinstance(value, list) else [value]
        if (options or group.startswith("hydra/")) and any(isinstance(one, NO_NAME) for one in choices):
            raise ConfigError(f"{override} is not a choice; choose one of {', '.join(options) or 'its names'}")


def no_option(word: str, name: str) -> str:
    """That Hydra has no such option, and what to give instead: ``--loader native`` is written ``loader=native``."""
    key, known = word.lstrip("-").partition("=")[0].replace("-", "_"), _keys(name, ())
    return f"{word} is not an option; {f'give {key}=VALUE' if key in known else suggestion(key, known)}"


def keys(cfg: Any) -> list[str]:
    """All keys and groups of a configuration, Hydra's own last, without what Hydra only notes."""
    leaves = [key for key in _flat(OmegaConf.to_container(cfg, resolve=False)) if not key.startswith("hydra.runtime.")]
    groups = dict.fromkeys(key.partition(".")[0] for key in leaves if "." in key)
    return sorted([*groups, *leaves], key=lambda key: key.startswith("hydra."))


def _unknown(key: str, name: str, overrides: Sequence[str]) -> str:
    """That there is no such key, and which keys are similar."""
    known = _keys(name, [override for override in overrides if override[:1] != "-" and key_of(override) != key])
    if any(other.startswith(f"{key}.") for other in known):
        return f"{key} is a group; give {key}=CHOICE, or one of its keys: {key}.KEY=VALUE"
    group, _, leaf = key.partition(".")
    meant = suggestion(key, known)
    if group in ELSEWHERE and group not in known:
        meant = ELSEWHERE[group]
    if group in ADDED and (leaf in trainer_hints() if group == "trainer" else not meant.startswith("did")):
        meant = ADDED[group].format(key)
    return f"{key} is not a key; {meant}"


def _unchosen(group: str, options: Sequence[str], name: str, overrides: Sequence[str]) -> str:
    """That a group without a default needs a choice; before that what else is wrong, as far as any choice shows it."""
    choose = f"give {group}=NAME; choose one of {', '.join(options)}"
    others = [text for text in overrides if text[:1] != "-" and not key_of(text).startswith(f"{group}.")]
    chosen = [f"{group}={options[0]}", *others]
    GlobalHydra.instance().clear()
    try:
        with composing():
            compose(name, chosen)
    except MISTAKES as error:
        if not str(error).startswith("Ambiguous"):  # of a sweep
            said = sentence(error, name, chosen)
            return f"{said}{'.' * (not said.endswith('?'))} Also {choose}"
    return f"G{choose[1:]}"


def _only(key: str, known: Sequence[str]) -> str:
    """Which choices have a key that the chosen ones lack, in words; empty if none."""
    group, _, leaf = key.rpartition(".")
    others = _choices_with(group, leaf) if group in known else []
    return f"only {' and '.join(others)} {'has' if len(others) == 1 else 'have'} it" if others else ""


def _by_meaning(words: str, known: Sequence[str]) -> list[str]:
    """The one or two keys whose meaning has all of these words, which ``_`` joins; the shortest meaning first."""
    texts: dict[str, str] = {}
    for kind in schemas():
        texts |= meanings(kind)
    sought, about = set(words.split("_")), {key: texts.get(key.rpartition(".")[2], "").lower() for key in known}
    meant = sorted(
        (key for key, text in about.items() if sought <= set(re.findall(r"\w+", text))), key=lambda key: len(about[key])
    )
    return meant if len(meant) <= 2 else []


def _choices_with(group: str, leaf: str) -> list[str]:
    """The choices of a group whose schema has this key, such as ``loader=native``."""
    fields = _fields()
    return [
        f"{group}={path.stem}"
        for path in sorted(CONF.glob(f"{group}/*.yaml"))
        if any(leaf in fields[name] for name in re.findall(r"^ +- /(\w+)@_here_", path.read_text(), re.MULTILINE))
    ]


def _fields() -> dict[str, list[str]]:
    """The keys of each schema, by its name."""
    return {kind.__name__: [one.name for one in dataclasses.fields(kind)] for kind in schemas()}


def _keys(name: str, overrides: Sequence[str]) -> list[str]:
    """All keys of a configuration with these overrides, or without them if one of these is wrong too."""
    GlobalHydra.instance().clear()
    with composing():
        for attempt in (overrides, ()):
            try:
                return keys(compose(name, list(attempt), return_hydra_config=True))
            except MISTAKES:
                continue
    return []


def _flat(node: object, above: str = "") -> Iterator[str]:
    for key, value in node.items() if isinstance(node, dict) else ():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{above}{key}.")
        else:
            yield f"{above}{key}"
