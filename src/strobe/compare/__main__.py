"""The command ``strobe compare``. Imports no torch."""

from strobe.process.signals import listen

if __name__ == "__main__":
    listen()  # before libraries are imported

import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from strobe.overrides import Parse, as_typed
from strobe.process.launch import parser_of, start

HELP = """Compares runs and sweeps: prints a table, and writes comparison.html, comparison.json and comparison.csv.

Runs that differ only in their seed are repeats of one cell. Each cell is compared with the baseline, by images/s of
training as a whole: faster, slower, or no difference where the interval of the ratio includes 1. Cells that may be as
fast as the fastest are tied with it.
Exit code 1 also: nothing was measured, or --strict refuses. With --fail-if-slower 5%: 0 only if each cell is shown to
keep more than 95% of the baseline's speed; 3 if one is shown to keep less, or failed; 4 if it cannot tell, as of runs
of different days: strobe duel lets both train now.

Examples
  strobe compare outputs/sweeps/DATE/TIME                          against the sweep's first cell
  strobe compare outputs/sweeps/DATE/TIME --baseline loader=native
  strobe compare outputs/runs/DATE/RUN outputs/runs/DATE/OTHER
  strobe compare outputs/sweeps/NEW --baseline outputs/sweeps/OLD --fail-if-slower 5%
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare what was asked for; exits with the gate's code. Raises a StrobeError if that is not possible."""
    parser = parser_of("compare", HELP)
    parser.add_argument(
        "runs", nargs="+", type=Path, metavar="RUN_OR_SWEEP", help="directory of a run, of a sweep, or of several"
    )
    parser.add_argument(
        "--baseline",
        metavar="RUN_OR_CELL",
        help="what the others are compared with: a run's directory, a cell's name or a part of it, or another sweep's "
        "directory, cell by cell (default: the first cell)",
    )
    parser.add_argument(
        "--fail-if-slower",
        metavar="5%",
        help="exit with 0 if every cell is shown to lose less, with 3 if one loses more or fails, with 4 if neither "
        "can be told",
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="refuse runs of different machines, versions, commits or data, or of another state of the page cache",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FOLDER",
        help="where to write (default: a single sweep's directory, else a new one)",
    )
    options = parser.parse_args(arguments)
    typed = sys.argv[1:] if arguments is None else arguments
    # Only now, so that help and mistakes in the arguments are told at once.
    from strobe.compare.command import compare
    from strobe.compare.gather import Request
    from strobe.compare.runs import is_sweep, tidy
    from strobe.measure.gate import parse_share

    parse: Parse = as_typed
    with suppress(ModuleNotFoundError):  # without Hydra, as in somebody else's environment
        from strobe.app.config.compose import parse as hydras

        parse = hydras

    if options.baseline is not None and not options.baseline.strip():
        parser.error("--baseline is empty; name a run's or a sweep's directory, or a cell")
    limit = None if options.fail_if_slower is None else parse_share(options.fail_if_slower, "--fail-if-slower ")
    runs = [tidy(path) for path in options.runs]
    one_sweep = len(runs) == 1 and is_sweep(runs[0])
    command = shlex.join(["python", "-m", "strobe.compare", *typed])
    new = Path(f"{datetime.now():outputs/comparisons/%Y-%m-%d/%H-%M-%S.%f}")
    folder = tidy(options.out) if options.out else runs[0] if one_sweep else new
    request = Request(runs, folder, command, options.baseline, limit, parse)
    sys.exit(compare(request, strict=options.strict))


if __name__ == "__main__":
    start(main)
