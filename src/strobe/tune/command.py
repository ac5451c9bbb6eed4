"""``strobe tune SCRIPT.py``: what makes somebody else's training faster, measured without an edit."""

import math
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from strobe.errors import ConfigError, disk_errors
from strobe.present.terminal import console as output
from strobe.present.terminal import say
from strobe.probe.risks import agree
from strobe.probe.script import printed
from strobe.process.launch import Parser, command_of, folder, positive_seconds, refuse_launcher, script_arguments
from strobe.process.locks import alone_in
from strobe.records.places import TUNED, discard, unversioned
from strobe.tune import writing
from strobe.tune.dimensions import ALL, ON_REQUEST, OWN
from strobe.tune.foreign import Scripts
from strobe.tune.page import write_page
from strobe.tune.record import NAME, Tuning, begin
from strobe.tune.script import Script, seconds
from strobe.tune.session import begun, search
from strobe.tune.table import print_tuning

if TYPE_CHECKING:
    from rich.console import Console

SEARCHED = [name for name in ALL if name not in OWN]
STARTING = 5.0  # seconds, about, until a script trains
TURNS, TIMEOUT = 6, 600.0  # of each side to begin with; seconds of one training
WARNING = "This runs {line} until its first training begins, many times, and trains for some seconds each time."
EPILOG = f"""
The script is not edited. It runs many times, in processes of its own, from this folder.

What is searched, unless --over picks some: {", ".join(name for name in SEARCHED if name not in ON_REQUEST)}.
Only if --over names it: {", ".join(ON_REQUEST)}.

Examples
  strobe tune train.py --epochs 3
  strobe tune --budget 3m --over workers,prefetch --patch faster.diff train.py
  strobe tune -m package.train
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Search, and print what to write.

    Raises:
        StrobeError: something that the user can put right.
        KeyboardInterrupt: what was measured until then is kept, and the same command goes on from it.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    parser, console = _parser(), output()
    options = parser.parse_args(words)
    refuse_launcher(parser, options.script)
    script = Script(tuple(command_of(options)))
    over = None if options.over is None else options.over.split(",")
    if unknown := [name for name in over or () if name not in SEARCHED]:
        raise ConfigError(
            f"--over {','.join(unknown)} cannot be searched in a script; choose from {','.join(SEARCHED)}"
        )
    if options.patch is not None and (options.patch.is_dir() or not options.patch.absolute().parent.is_dir()):
        raise ConfigError(f"--patch {options.patch} is not a file in a folder that exists; give another one")
    command = shlex.join(["strobe", "tune", *words])
    budget = seconds(options.budget, "--budget ")
    least = STARTING + 3 * options.seconds + 2 * (STARTING + TURNS * options.turn_seconds)
    if budget < least:
        why = (
            f"one probe and one comparison take about {least:.0f} s; give --budget {math.ceil(2 * least / 60)}m or more"
        )
        raise ConfigError(f"--budget {options.budget} is too little: {why}")
    agree(script.words, WARNING, yes=options.yes)
    of, made = {"script": script.line, "source": script.source}, options.out is None or not options.out.exists()
    place = options.out or unversioned(TUNED) / time.strftime("%Y-%m-%d") / f"{time.strftime('%H-%M-%S')}-{script.name}"
    fresh = begin(place, [], over, command=command, budget=budget, **of)
    tuning = begun(fresh, TUNED, "--out " if options.out else None, console)
    machine = Scripts(
        script,
        tuning.folder,
        seconds=options.seconds,
        turns=TURNS,
        turn_seconds=options.turn_seconds,
        timeout=TIMEOUT,
        deadline=time.monotonic() + budget - tuning.seconds,
        on=[name for name in ON_REQUEST if name in (over or ())],
    )
    with alone_in(tuning.folder, "--out"):
        try:
            search(tuning, machine, console)
        finally:
            if not tuning.probes:
                say(console, *printed(tuning.folder / "looks" / "1"))
                discard(tuning.folder, NAME, "looks", ".lock", made=made)
    print_tuning(console, tuning)
    page = write_page(tuning)
    if options.patch is not None:
        _write_patch(options.patch, tuning, page, console)
    say(console, str(page))


def _write_patch(path: Path, tuning: Tuning, page: Path, console: "Console") -> None:
    """Write what is recommended; without anything an older file goes, which would otherwise be applied."""
    edits = writing.edits(tuning.recommended, writing.made(tuning))
    text, left_out = writing.patch(edits)
    say(console, *left_out)
    with disk_errors(lambda why: f"--patch {path} cannot be written ({why}); {page} has what to write"):
        if text:
            path.write_text(text, encoding="utf-8")
        else:
            path.unlink(missing_ok=True)
    say(console, writing.applying(path, edits) if text else f"There is nothing to patch: {path} was not written.")


def _parser() -> Parser:
    parser = Parser(
        prog="strobe tune",
        usage="strobe tune [OPTIONS] SCRIPT.py|-m MODULE [ARGUMENTS ...]",
        description="Try what makes a training faster, and say what to write; nothing is edited.",
        epilog=EPILOG,
    )
    parser.add_argument("--budget", default="10m", help="how long the search may take: 120s, 10m, 1h (10m)")
    parser.add_argument("--over", metavar="NAME,NAME", help="search only these")
    parser.add_argument("--patch", type=Path, metavar="FILE", help="write what was found as a patch for git apply")
    parser.add_argument("--out", type=folder, metavar="DIR", help=f"where records go ({TUNED}/DATE/TIME-SCRIPT)")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument(
        "--seconds", type=positive_seconds, default=2.0, help="most seconds for loader or model alone (2)"
    )
    parser.add_argument(
        "--turn-seconds", type=positive_seconds, default=1.0, help="seconds of a turn; two steps at least (1)"
    )
    script_arguments(parser)
    return parser
