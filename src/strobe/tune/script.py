"""Which script a search is of, and for how long. Imports no torch."""

import hashlib
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from strobe.errors import ConfigError
from strobe.probe.risks import file_of

VALUED = ("--budget", "--over", "--patch", "--out", "--seconds", "--turn-seconds")  # options that a value follows
UNITS = {"": 1, "s": 1, "m": 60, "h": 3600}


@dataclass(frozen=True)
class Script:
    """Somebody else's training.

    Attributes:
        words: what follows ``python``: a file, or ``-m`` and a module, and the arguments.
    """

    words: tuple[str, ...]

    @property
    def line(self) -> str:
        """The command as a person types it."""
        return shlex.join(["python", *self.words])

    @property
    def source(self) -> str | None:
        """The hash of its file, which shows whether it was edited; None for a module outside this folder."""
        file = file_of(self.words)
        return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else None

    @property
    def name(self) -> str:
        """Of the file or the module, as part of a path."""
        return re.sub(r"[^\w.-]+", "-", Path(self.words[self.words[0] == "-m"]).name.removesuffix(".py"))


def is_script(arguments: Sequence[str], application: Path) -> bool:
    """Whether arguments name a script or ``-m MODULE``, and not overrides of the application's own script."""
    words = iter(arguments)
    for word in words:
        if word == "-m":
            return re.fullmatch(r"[A-Za-z_][\w.]*", next(words, "")) is not None
        if word in VALUED:
            next(words, None)
        elif "=" in word and not word.startswith("-"):
            return False
        elif word.endswith(".py"):  # also behind an option that there is not
            return Path(word).resolve() != application.resolve()
    return False


def without_option(words: Sequence[str], name: str) -> list[str]:
    """The words of a command without an option and its value, as far as options go."""
    left = list(words)
    for place, word in enumerate(words):
        if word == name:
            del left[place : place + 2]
            break
        if not word.startswith("-") and (place == 0 or words[place - 1] not in VALUED):
            break  # the script
    return left


def seconds(text: str, flag: str) -> float:
    """A length of time such as ``120s``, ``2m`` or ``1h``, in seconds; ``flag`` is what it was given by.

    Raises:
        ConfigError: it is not valid.
    """
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([smh]?)\s*", text)
    if match is None or not float(match[1]):
        raise ConfigError(f"{flag}{text} is not a length of time; give one such as {flag}120s, 10m or 1h")
    return float(match[1]) * UNITS[match[2]]
