"""The command ``strobe probe SCRIPT.py ARGUMENTS``: the ceilings of any Lightning training, without an edit."""

from strobe.process.signals import listen

if __name__ == "__main__":
    listen()  # before libraries are imported

import argparse
import functools
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from strobe.attach.place import new_directory
from strobe.probe.risks import agree
from strobe.process.launch import LAUNCHERS, MODULES, command_of, positive_seconds, script_arguments, start

ABOUT = """Run a script until its first training begins, and measure there: some seconds of that training, its loader
alone, its model alone on batches that were loaded before, on a GPU copies to it, and then a validation and a
checkpoint. Then the process ends: nothing that the script does after fit is run.
"""
EXAMPLES = """
The record goes to strobe-runs/DATE/TIME-SCRIPT, or to --out DIR, with the script's output in output.txt.
Exit code 0: measured; 1: not, and one sentence says why; 2: you did not agree to it.

Examples
  strobe probe train.py --epochs 3
  strobe probe --seconds 10 --yes -m package.train --epochs 3
"""
SECONDS, LONGEST = 5.0, 86400.0  # of each side by default; until a training has begun and was measured
WARNING = "This runs {line} up to its first fit, and trains for some seconds."


def main(arguments: Sequence[str] | None = None) -> None:
    """Ask, measure, print the verdict; exits with 1 and a sentence where nothing could be measured."""
    parser = argparse.ArgumentParser(
        prog="strobe probe",
        usage="strobe probe [--seconds S] [--out DIR] [--yes] SCRIPT.py|-m MODULE [ARGUMENTS ...]",
        description=ABOUT,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--seconds", type=positive_seconds, default=SECONDS, metavar="S", help="most seconds for each side (5)"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="where the record goes (strobe-runs/DATE/TIME-SCRIPT)")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    script_arguments(parser)
    given = parser.parse_args(arguments)
    command = command_of(given)
    if Path(given.script).name in (*LAUNCHERS, *MODULES):
        parser.error(f"{given.script} starts a script in several ranks; give that script, whose Trainer starts them")
    if not given.module and not Path(given.script).is_file():
        parser.error(f"there is no file {given.script}; give the script that trains, or -m MODULE")
    agree(command, WARNING, yes=given.yes)
    # Only now, so that help and mistakes in the arguments are told at once.
    from rich.console import Console

    from strobe.present.terminal import clock, say
    from strobe.probe.asked import SIDES
    from strobe.probe.script import OUTPUT, probe_script
    from strobe.process.fork import Failure
    from strobe.records.run import load_record
    from strobe.report.terminal import print_summary

    try:
        folder = new_directory(given.out, Path(given.script).name.removesuffix(".py"))
    except OSError as error:
        sys.exit(f"Cannot write to {given.out or Path.cwd()} ({error.strerror}); give another folder by --out.")
    console = Console(stderr=True)
    about = clock(len(SIDES) * given.seconds)
    say(console, f"Running the script until its first fit, then measuring for about {about}")
    try:
        tell = functools.partial(say, console)
        found = probe_script(command, folder, seconds=given.seconds, timeout=LONGEST, tell=tell)
    except KeyboardInterrupt:
        if not (folder / "summary.json").is_file():
            shutil.rmtree(folder, ignore_errors=True)
        say(console, "Interrupted: nothing was measured.")
        raise
    if (folder / "summary.json").is_file():
        print_summary(load_record(folder).summary, folder, Console())
    else:
        (folder / "steps.csv").unlink(missing_ok=True)
    if isinstance(found, Failure):
        say(console, f"Not measured: {found.reason.rstrip('.')}. Its output is in {folder / OUTPUT}.")
        sys.exit(1)


if __name__ == "__main__":
    start(main)
