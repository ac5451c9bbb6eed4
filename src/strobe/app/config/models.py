"""The names of torchvision's models, by its source, so that a mistake is reported before torch is imported."""

import re
from collections.abc import Sequence
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path

from strobe.errors import ConfigError

_REGISTERED = re.compile(r"^@register_model\(\)\n(?:@.*\n)*def (\w+)\(", re.MULTILINE)


def torchvision_models() -> list[str]:
    """All that classify images; empty where torchvision keeps no source."""
    package = find_spec("torchvision")
    folders = (package and package.submodule_search_locations) or []
    files = [file for folder in folders for file in Path(folder, "models").glob("*.py")]
    return [name for file in files for name in _REGISTERED.findall(file.read_text())]


def check_name(name: str, known: Sequence[str], library: str) -> None:
    """Raise a :class:`ConfigError` for a ``model.name`` that the library does not have."""
    if name not in known:
        near = get_close_matches(name, known, 3)
        meant = f"did you mean {' or '.join(near)}?" if near else "such are resnet50, efficientnet_b0"
        raise ConfigError(f"model.name={name} is not a classification model of {library}; {meant}")
