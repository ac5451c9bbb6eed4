"""The command ``strobe probe SCRIPT.py ARGUMENTS``: the ceilings of any training, without an edit."""

from strobe.process.signals import listen

if __name__ == "__main__":
    listen()  # before libraries are imported

import functools
from collections.abc import Sequence
from pathlib import Path

from strobe.attach.place import new_directory
from strobe.errors import DataError, StrobeError
from strobe.probe.risks import agree
from strobe.process import launch
from strobe.records.places import OUTPUT, discard

ABOUT = """Run a script until its first training begins, and measure there: some seconds of that training, its loader
alone, its model alone on batches that were loaded before, on a GPU copies to it, and then a validation and a
checkpoint. Of a loop without a Trainer only the first two. Then the process ends: nothing that the script does
after fit, or further in its loop, is run.
"""
EXAMPLES = """
The record goes to strobe-runs/DATE/TIME-SCRIPT, or to --out DIR, with the script's output in output.txt.

Examples
  strobe probe train.py --epochs 3
  strobe probe --seconds 10 --yes -m package.train --epochs 3
"""
SECONDS, LONGEST = 5.0, 86400.0  # of each side by default; until a training has begun and was measured
INTERRUPTED = (
    "Interrupted: nothing was measured. It takes up to {about} from the script's first training on, and longer where "
    "steps are slow; give it that time, or a smaller --seconds."
)
WARNING = "This runs {line} until its first training begins, and trains for some seconds."


def main(arguments: Sequence[str] | None = None) -> None:
    """Ask, measure, print the verdict. Raises a StrobeError where nothing could be measured."""
    parser = launch.Parser(
        prog="strobe probe",
        usage="strobe probe [--seconds S] [--out DIR] [--yes] SCRIPT.py|-m MODULE [ARGUMENTS ...]",
        description=ABOUT,
        epilog=EXAMPLES,
    )
    parser.add_argument(
        "--seconds", type=launch.positive_seconds, default=SECONDS, metavar="S", help="most seconds for each side (5)"
    )
    parser.add_argument(
        "--out", type=launch.folder, metavar="DIR", help="where the record goes (strobe-runs/DATE/TIME-SCRIPT)"
    )
    parser.add_argument("--yes", action="store_true", help="do not ask")
    launch.script_arguments(parser)
    options = parser.parse_args(arguments)
    launch.refuse_launcher(parser, options.script)
    command = launch.command_of(options)
    agree(command, WARNING, yes=options.yes)
    # Only now, so that help and mistakes in the arguments are told at once.
    from rich.console import Console

    from strobe.present.terminal import ProgressDisplay, clock, say
    from strobe.probe.asked import SIDES
    from strobe.probe.script import keep_until_now, printed, probe_script
    from strobe.process.fork import Failure
    from strobe.process.signals import noted
    from strobe.records.files import BEGUN
    from strobe.records.run import load_record
    from strobe.report.terminal import print_summary

    console, made = Console(stderr=True), options.out is None or not options.out.exists()
    try:
        place = new_directory(options.out, Path(options.script).name.removesuffix(".py"))
    except OSError as error:
        raise DataError(f"Cannot write to {Path.cwd()} ({error.strerror}); give another folder by --out.") from error
    discarded = functools.partial(discard, place, "steps.csv", BEGUN, OUTPUT, made=made)
    about = clock(len(SIDES) * options.seconds)
    try:
        with ProgressDisplay(console) as display:
            first = "Running the script until its first training"
            display.stage(f"{first}, then measuring for up to {about}, longer if steps are slow", None)
            outcome = probe_script(command, place, seconds=options.seconds, timeout=LONGEST, tell=display.stage)
    except KeyboardInterrupt as interrupt:
        with noted():
            if keep_until_now(place, interrupt):
                print_summary(load_record(place).summary, place, Console())
            else:
                discarded()
                say(console, INTERRUPTED.format(about=about))
        raise
    if (place / "summary.json").is_file():
        print_summary(load_record(place).summary, place, Console())
    elif isinstance(outcome, Failure):
        say(console, *printed(place))
        discarded()
    if isinstance(outcome, Failure):
        raise StrobeError(f"Not measured: {outcome.reason.rstrip('.')}.")


if __name__ == "__main__":
    launch.start(main)
