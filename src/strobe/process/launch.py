"""Starts commands, and reads what the launcher (torchrun, srun, Lightning) says about ranks. Imports no torch."""

import argparse
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path

from strobe.process.output import lasting_output, lost_output

LONGEST = 3600  # seconds that an option takes
LAUNCHERS = ("torchrun", "accelerate", "deepspeed", "srun", "mpirun", "mpiexec", "horovodrun")  # of several processes
MODULES = ("torch.distributed.run", "torch.distributed.launch")  # so do these


def parser_of(command: str, text: str) -> argparse.ArgumentParser:
    """The parser of ``python -m strobe.COMMAND``; the first paragraph of ``text`` stands above its options."""
    about, _, more = text.partition("\n\n")
    kind = argparse.RawDescriptionHelpFormatter
    return argparse.ArgumentParser(f"python -m strobe.{command}", description=about, epilog=more, formatter_class=kind)


def script_arguments(parser: argparse.ArgumentParser) -> None:
    """Let a parser take a script, or a module after ``-m``, and all that follows as its arguments."""
    parser.add_argument("-m", dest="module", action="store_true", help="SCRIPT is a module, as for python -m")
    parser.add_argument("script", metavar="SCRIPT")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGUMENTS")


def positive_seconds(text: str) -> float:
    """An option's length of time, as ``type`` of an argument."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= LONGEST:
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds; give one above 0, at most {LONGEST}")
    return value


def command_of(given: argparse.Namespace) -> list[str]:
    """What was given so, as it follows ``python``."""
    return [*(["-m"] if given.module else []), given.script, *given.arguments]


def start(main: Callable[[], None]) -> None:
    """Run a command, which fails if what it prints does not fit on a disk."""
    lasting_output()
    try:
        main()
    finally:
        if (why := lost_output()) is not None:
            sys.exit(f"Not all could be printed ({why})")


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
