"""What a command runs: which Python, with which program of Python's."""

import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from strobe.errors import ConfigError
from strobe.process.launch import LAUNCHERS, MODULES

EXAMPLE = "give a command such as python train.py ARGUMENTS"
OWN = ("python", "python3", f"python3.{sys.version_info.minor}")
_CLUSTER = re.compile(r"(-[bBdEhiIOPqsSuvVx]*)([cm])(.*)", re.DOTALL)  # options such as -um or -mMODULE
_PYTHON = re.compile(r"python[\d.]*")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_SHELL = re.compile(r"""exec'? ['"]?([^'"]*/python[\d.]*)['"]? """)  # how a long path to a Python is written


@dataclass(frozen=True)
class Program:
    """A program of Python's.

    Attributes:
        interpreter: with its own options, such as -u.
        words: the path of a script, or -m and a module; and its arguments.
        variables: the whole environment.
    """

    interpreter: list[str]
    words: list[str]
    variables: dict[str, str]


def program_of(command: Sequence[str], variables: Mapping[str, str], folder: Path) -> Program:
    """The program that a command runs in a folder: ``[env] [NAME=VALUE] python train.py``, or a script with a ``#!``.

    Raises:
        ConfigError: it runs none, or it cannot be found.
    """
    words, environment = list(command), dict(variables)
    if words and Path(words[0]).name == "env":
        del words[0]
    while words and (assigned := _ASSIGNMENT.fullmatch(words[0])):
        environment[assigned[1]] = assigned[2]
        del words[0]
    if not words:
        raise ConfigError(f"there is no command; {EXAMPLE}")
    name = Path(words[0]).name
    if name in LAUNCHERS:
        raise ConfigError(f"{name} starts several processes, and a duel is between single ones; {EXAMPLE}")
    if _PYTHON.fullmatch(name):
        options, rest = _options(words)
        return Program([_found(words[0], environment, folder), *options], _program(rest, folder), environment)
    path = folder / words[0] if (folder / words[0]).is_file() else Path(_found(words[0], environment, folder))
    interpreter = _shebang(path, environment, folder)
    if interpreter is None and path.suffix == ".py":
        interpreter = [sys.executable]
    if interpreter is None:
        raise ConfigError(f"{words[0]} is not a Python program; {EXAMPLE}")
    return Program(interpreter, [str(path.absolute()), *words[1:]], environment)


def _options(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The options of ``python OPTIONS PROGRAM``, and the program."""
    rest, place = list(words), 1
    while place < len(rest) and (word := rest[place]).startswith("-") and word != "-m":
        cluster = _CLUSTER.fullmatch(word)
        if word == "-" or (cluster and cluster[2] == "c"):
            raise ConfigError(f"python {word} runs no script; {EXAMPLE}")
        if cluster:
            rest[place : place + 1] = [part for part in (cluster[1], "-m", cluster[3]) if part not in ("", "-")]
        else:
            place += 1 + (word in ("-X", "-W"))
    return rest[1:place], rest[place:]


def _program(words: list[str], folder: Path) -> list[str]:
    if not words or words == ["-m"]:
        raise ConfigError(f"python is given no script; {EXAMPLE}")
    if words[0] != "-m" and not (folder / words[0]).exists():
        raise ConfigError(f"there is no {words[0]} in {folder}; give the path of a script")
    if words[0] == "-m" and words[1] in MODULES:
        raise ConfigError(f"{words[1]} starts several processes, and a duel is between single ones; {EXAMPLE}")
    return words


def _found(word: str, variables: Mapping[str, str], folder: Path) -> str:
    """The path of an executable, as a shell finds it; raises a ConfigError if there is none.

    But ``python`` is the one that runs this. A path is one in the folder, or else, such as that of an environment which
    the folder lacks, from here.
    """
    if word in OWN:
        return sys.executable
    tried = [str(place / word) for place in (folder, Path.cwd())] if "/" in word else [word]
    found = next((path for one in tried if (path := shutil.which(one, path=variables.get("PATH")))), None)
    if found is None:
        raise ConfigError(f"{word} cannot be found; {EXAMPLE}")
    return str(Path(found).absolute())  # not its target, which is no longer that of an environment


def _shebang(path: Path, variables: Mapping[str, str], folder: Path) -> list[str] | None:
    """The Python that a script names in its first line, with its options; None if it names none."""
    with path.open("rb") as file:
        first, second = (file.readline(4096).decode(errors="replace").strip() for _ in range(2))
    if not first.startswith("#!"):
        return None
    words = shlex.split(first[2:])
    if words and Path(words[0]).name == "env":
        words = [word for word in words[1:] if word != "-S"]
    if words and Path(words[0]).name == "sh" and (match := _SHELL.search(second)):
        words = [match[1]]
    if not words or not _PYTHON.fullmatch(Path(words[0]).name):
        return None
    return [_found(words[0], variables, folder), *words[1:]]
