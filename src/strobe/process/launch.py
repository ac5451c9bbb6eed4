"""Starts commands, and reads what the launcher (torchrun, srun, Lightning) says about ranks. Imports no torch."""

import argparse
import math
import os
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

from strobe.errors import ConfigError, StrobeError
from strobe.process.output import lasting_output, lost_output
from strobe.process.signals import exit_code, over

LONGEST = 3600  # seconds that an option takes
SHELL = re.compile(rb"#!\s*(\S*/)?(env\s+(-S\s+)?)?(ba|da|k|z|c|tc|fi)?sh\s")
LAUNCHERS = ("torchrun", "accelerate", "deepspeed", "srun", "mpirun", "mpiexec", "horovodrun")  # of several processes
MODULES = ("torch.distributed.run", "torch.distributed.launch")  # so do these


def starts_ranks(script: str) -> bool:
    """Whether a script, or a module after ``-m``, is a launcher, which starts another script in several processes."""
    return Path(script).name in (*LAUNCHERS, *MODULES)


def refuse_launcher(parser: argparse.ArgumentParser, script: str) -> None:
    """End with a sentence where the script starts others, of which the parser's command would see nothing."""
    if starts_ranks(script):
        parser.error(f"{script} starts a script in several ranks; give that script, whose Trainer starts them")


class Parser(argparse.ArgumentParser):
    """Tells a mistake in one sentence, with the option that was meant, and exits with 2.

    ``epilog`` holds ``Examples``, of which the first is shown to who left out what the command needs.
    """

    def __init__(self, **named: Any) -> None:
        super().__init__(**named | {"formatter_class": argparse.RawDescriptionHelpFormatter})

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and end."""
        kind, _, words = message.partition(": ")
        if kind == "unrecognized arguments":
            message = self._unknown(words.split()[0])
        elif kind == "the following arguments are required":
            missing = words.split(", ")[0]
            article = "" if missing.startswith("-") else "a "
            message = f"{self.prog} needs {article}{missing.lower().replace('_', ' ')}, as in: {self._example}"
        elif words == "expected one argument":  # for argparse, what begins with a hyphen is an option
            option = kind.rpartition(" ")[2].rpartition("/")[2]
            message = f"{option} needs a value; one that begins with a hyphen is written {option}=-VALUE"
        self.exit(ConfigError.code, f"{message}\n")

    def _unknown(self, word: str) -> str:
        if not word.startswith("-"):
            return f"{word} has no place here; give a command as in: {self._example}"
        meant = get_close_matches(word.partition("=")[0], self._option_string_actions, 1)
        told = f"did you mean {meant[0]}?" if meant else "--help lists the options"
        return f"{word} is not an option of {self.prog}; {told}"

    @property
    def _example(self) -> str:
        line, *_ = (self.epilog or "").partition("Examples\n")[2].splitlines() or [f"{self.prog} --help"]
        return line.strip().partition("   ")[0]  # what is said of it stands behind


def parser_of(command: str, text: str) -> Parser:
    """The parser of ``strobe COMMAND``; the first paragraph of ``text`` stands above its options."""
    about, _, more = text.partition("\n\n")
    return Parser(prog=f"strobe {command}", description=about, epilog=more)


def script_arguments(parser: argparse.ArgumentParser) -> None:
    """Let a parser take a script, or a module after ``-m``, and all that follows as its arguments."""
    parser.add_argument("-m", dest="module", action="store_true", help="SCRIPT is a module, as for python -m")
    parser.add_argument("script", metavar="SCRIPT")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGUMENTS", action=_Arguments)


class _Arguments(argparse.Action):
    """A script's arguments; where the script is ``python`` of Strobe's own environment, the first names the script."""

    def __call__(
        self, parser: argparse.ArgumentParser, given: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        of_a_module = values[:1] == ["-m"]
        words = values[of_a_module:]
        named = words and (of_a_module or not words[0].startswith("-"))  # an option of Python's is refused later
        if named and not given.module and _is_own_python(given.script):
            given.module, (given.script, *values) = of_a_module, words
        given.arguments = values


def _is_own_python(word: str) -> bool:
    found = shutil.which(word) if re.fullmatch(r"python[\d.]*", Path(word).name) else None
    return found is not None and Path(found).absolute().parent == Path(sys.executable).parent


def positive_seconds(text: str) -> float:
    """An option's length of time, as ``type`` of an argument."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= LONGEST:
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds; give one above 0, at most {LONGEST}")
    return value


def folder(text: str) -> Path:
    """As ``type`` of an argument: a folder that can be written, or made."""
    wanted = Path(text)
    there = next(one for one in (wanted.absolute(), *wanted.absolute().parents) if one.exists())
    if not there.is_dir():
        raise argparse.ArgumentTypeError(f"{text} cannot be a folder, because {there} is a file; give another one")
    if not os.access(there, os.W_OK):
        raise argparse.ArgumentTypeError(f"{text} cannot be written, because {there} is read-only; give another folder")
    return wanted


def command_of(given: argparse.Namespace) -> list[str]:
    """What was given so, as it follows ``python``; raises a ConfigError where that would run no script."""
    if not given.module:
        _check_script(Path(given.script), given.arguments)
    return [*(["-m"] if given.module else []), given.script, *given.arguments]


def _check_script(script: Path, arguments: Sequence[str]) -> None:
    if not script.exists():
        named = [one for one in arguments if not one.startswith("-")]
        if re.fullmatch(r"python[\d.]*", script.name) and named:
            raise ConfigError(f"leave out {script}: Strobe starts Python itself; begin with {named[0]}")
        raise ConfigError(f"there is no file {script}; give the script that trains, or -m MODULE")
    if script.suffix == ".ipynb":
        raise ConfigError(
            f"{script} is a notebook; in a cell of it, give the Trainer callbacks=[strobe.Strobe()], or write: "
            "for batch in strobe.watch(loader)"
        )
    first, second = b"", b""
    if script.is_file():  # what comes through a pipe can be read only once
        with suppress(OSError), script.open("rb") as file:
            first, second = file.readline(200), file.readline(10)
    of_a_shell = SHELL.match(first) and not second.startswith((b"'", b'"'))  # such a text is Python's as well
    if of_a_shell or first.startswith(b"\x7fELF"):
        raise ConfigError(f"{script} is not a Python script; give the one that it starts, with its arguments")


def start(main: Callable[[], None]) -> None:
    """Run a command; a user's mistake and Ctrl-C end it without a traceback. docs/exit-codes.md has the codes.

    It fails if what it prints does not fit on a disk.
    """
    lasting_output()
    try:
        main()
    except StrobeError as error:
        refuse(error)
    except KeyboardInterrupt as interrupt:
        sys.exit(exit_code(interrupt))
    finally:
        over()
        if (why := lost_output()) is not None:
            sys.exit(f"Not all could be printed ({why})")


def refuse(error: StrobeError) -> NoReturn:
    """Say what is wrong, and end with the error's code."""
    print(error, file=sys.stderr)
    sys.exit(error.code)


def rank() -> int:
    """The global rank of this process before torch.distributed starts, from torchrun, srun or Lightning's launcher."""
    return int(next((os.environ[name] for name in ("RANK", "SLURM_PROCID", "LOCAL_RANK") if os.environ.get(name)), 0))


def started_by_torchrun() -> bool:
    """Whether torchrun started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def quieten_kineto() -> None:
    """Keep torch.profiler from reporting a missing GPU with each trace; call this before importing torch."""
    if not Path("/dev/nvidiactl").exists():
        os.environ.setdefault("KINETO_LOG_LEVEL", "6")
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # its allocator's, when memory is profiled
