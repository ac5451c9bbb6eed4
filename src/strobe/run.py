"""The command ``strobe run SCRIPT.py ARGUMENTS``: runs any training, with a verdict at its end."""

from strobe.process.signals import listen

if __name__ == "__main__":
    listen()  # before libraries are imported

import os
import sys
from collections.abc import Sequence
from importlib.metadata import entry_points
from pathlib import Path

from strobe.attach import driver
from strobe.attach.entry import DIRECTORY, GROUPS, TRACE, WANTED
from strobe.errors import StrobeError
from strobe.process.launch import Parser, command_of, folder, script_arguments, start, starts_ranks

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
        "--out", type=folder, metavar="DIR", help="where the record goes (strobe-runs/DATE/TIME-SCRIPT)"
    )
    parser.add_argument("--trace", action="store_true", help="record some steps with torch.profiler, too")
    script_arguments(parser)
    given = parser.parse_args(arguments)
    if starts_ranks(name := Path(given.script).name):
        parser.error(
            f"{name} starts other processes, in which strobe run records nothing; set STROBE=1 for {name}, or, "
            "where the script has no Trainer and no Fabric, write -m strobe.run before SCRIPT.py"
        )
    if not any(entry_points(group=group, name="strobe") for group in GROUPS):
        raise StrobeError(
            "Lightning does not find Strobe: its entry points are not installed; install Strobe again with pip"
        )
    told = {WANTED: "1"} | ({TRACE: "1"} if given.trace else {})
    told |= {DIRECTORY: str(given.out.absolute())} if given.out else {}
    os.execve(sys.executable, [sys.executable, driver.__file__, *command_of(given)], os.environ | told)


if __name__ == "__main__":
    start(main)
