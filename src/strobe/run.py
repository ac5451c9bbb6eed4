"""The command ``strobe run SCRIPT.py ARGUMENTS``: runs any training, with a verdict at its end."""

from strobe.process.signals import listen

if __name__ == "__main__":
    listen()  # before libraries are imported

import argparse
import os
import sys
from collections.abc import Sequence
from importlib.metadata import entry_points
from pathlib import Path

from strobe.attach import driver
from strobe.attach.entry import DIRECTORY, GROUPS, TRACE, WANTED
from strobe.errors import StrobeError
from strobe.process.launch import Parser, command_of, script_arguments, start

EXAMPLES = """
Arguments, output and exit code are the script's own; the verdict goes to standard error. Each fit of each Trainer
leaves a record, as does a training in loops of the script's own. With other launchers, set the environment:
STROBE=1 torchrun train.py (STROBE_OUT=DIR, STROBE_TRACE=1).

Examples
  strobe run train.py --epochs 3
  strobe run --out here --trace -m package.train --epochs 3
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the script in this process.

    Raises:
        StrobeError: Lightning would not find Strobe.
    """
    parser = Parser(
        prog="strobe run",
        usage="strobe run [--out DIR] [--trace] SCRIPT.py|-m MODULE [ARGUMENTS ...]",
        description="Runs a script, and records what it trains: by a Lightning Trainer, or in loops over DataLoaders.",
        epilog=EXAMPLES,
    )
    parser.add_argument(
        "--out", type=_folder, metavar="DIR", help="where the record goes (strobe-runs/DATE/TIME-SCRIPT)"
    )
    parser.add_argument("--trace", action="store_true", help="record some steps with torch.profiler, too")
    script_arguments(parser)
    given = parser.parse_args(arguments)
    if not any(entry_points(group=group, name="strobe") for group in GROUPS):
        raise StrobeError(
            "Lightning does not find Strobe: its entry points are not installed; install Strobe again with pip"
        )
    told = {WANTED: "1"} | ({TRACE: "1"} if given.trace else {})
    told |= {DIRECTORY: str(given.out)} if given.out else {}
    os.execve(sys.executable, [sys.executable, driver.__file__, *command_of(given)], os.environ | told)


def _folder(text: str) -> Path:
    """As ``type`` of an argument: a folder that can be written, or made."""
    wanted = Path(text).absolute()
    there = next(one for one in (wanted, *wanted.parents) if one.exists())
    if not there.is_dir():
        raise argparse.ArgumentTypeError(f"{text} cannot be a folder, because {there} is a file; give another one")
    if not os.access(there, os.W_OK):
        raise argparse.ArgumentTypeError(f"{text} cannot be written, because {there} is read-only; give another folder")
    return wanted


if __name__ == "__main__":
    start(main)
