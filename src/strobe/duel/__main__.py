"""Which of two trainings is faster, measured by turns: both are alive, and one stands still while the other trains.

    python -m strobe.duel [OPTIONS] -- python train.py OVERRIDES_A -- python train.py OVERRIDES_B

A is what B is held against. Exit code: 0; with --fail-if-slower 3 for a regression, and 4 when it cannot tell.
"""

import argparse
import contextlib
import shlex
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from statistics import median

from rich.console import Console

from strobe.app.tuning.trainee import Trainee
from strobe.duel.paired_trial import Defeat, duel
from strobe.errors import ConfigError, StrobeError
from strobe.measure.gate import Case, parse_share, rule
from strobe.present.format import estimate, pace
from strobe.present.terminal import console as output
from strobe.process.fork import Failure
from strobe.process.signals import exit_code, interruptible

FLAG = "--fail-if-slower "
TIMEOUT = 600.0  # seconds, until a training is warm

Begin = Callable[..., AbstractContextManager[Trainee]]


def main(arguments: Sequence[str] | None = None, begin: Begin = Trainee) -> None:
    """Run the command; exits with the gate's code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    first = given.index("--") if "--" in given else len(given)
    options = _parser().parse_args(given[:first])
    try:
        limit = None if options.fail_if_slower is None else parse_share(options.fail_if_slower, FLAG)
        sides = _commands(given[first:])
        with interruptible():
            sys.exit(_duel(sides, options, limit, begin, output()))
    except StrobeError as error:
        print(error, file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt as interrupt:
        sys.exit(exit_code(interrupt))


def _duel(
    sides: Sequence[list[str]], options: argparse.Namespace, limit: float | None, begin: Begin, console: Console
) -> int:
    with tempfile.TemporaryDirectory(prefix="strobe-duel-") as folder, contextlib.ExitStack() as stack:
        trainings = []
        for name, overrides in zip("AB", sides, strict=True):
            training = stack.enter_context(begin(overrides, Path(folder) / name, timeout=TIMEOUT))
            console.print(f"{name} starts: train.py {shlex.join(overrides)}", markup=False, highlight=False)
            if isinstance(started := training.start(), Failure):
                raise StrobeError(f"{name} cannot train: {started.reason}")
            trainings.append(training)
        found = duel(*trainings, turns=options.quads, seconds=options.seconds, early=False)
        if isinstance(found, Defeat):
            raise StrobeError(f"{'A' if found.side == 'incumbent' else 'B'} broke off: {found.reason}")
    ratio = found.ratio
    words = {"faster": "B is faster", "slower": "B is slower"}.get(found.verdict, "no difference was found")
    console.print(f"A {pace(median(found.theirs))}, B {pace(median(found.ours))}", highlight=False)
    console.print(
        f"B is {estimate(ratio.as_record())} times as fast as A, by {ratio.n} quads of turns (interval of "
        f"{ratio.level:.0%}): {words}.",
        highlight=False,
        soft_wrap=True,
    )
    if limit is None:
        return 0
    ruling = rule([Case("B", ratio)], limit, FLAG, "--quads")
    console.print(ruling.text, markup=False, highlight=False, soft_wrap=True)
    return ruling.code


def _commands(given: Sequence[str]) -> list[list[str]]:
    """The overrides of the two commands, each of which follows a ``--``."""
    commands: list[list[str]] = []
    for word in given:
        if word == "--":
            commands.append([])
        else:
            commands[-1].append(word)
    if len(commands) != 2:
        raise ConfigError(
            f"a duel is of two commands, and {len(commands)} came: give each after a --, as in "
            "python -m strobe.duel -- python train.py loader=skimage -- python train.py loader=native"
        )
    return [_overrides(command) for command in commands]


def _overrides(command: Sequence[str]) -> list[str]:
    """What ``train.py`` is given."""
    words = list(command)
    if words and Path(words[0]).name.startswith("python"):
        words = words[1:]
    if not words or Path(words[0]).name != "train.py":
        raise ConfigError(f"{shlex.join(command) or 'an empty command'} is not a command of this project's train.py")
    return words[1:]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m strobe.duel",
        usage="%(prog)s [OPTIONS] -- python train.py OVERRIDES_A -- python train.py OVERRIDES_B",
        description="Which of two trainings is faster: they take turns, A B B A, on this machine.",
    )
    parser.add_argument("--seconds", type=_positive, default=1.0, help="of a turn (1)")
    parser.add_argument("--quads", type=_count, default=6, help="of turns, A B B A or B A A B, by chance; even (6)")
    parser.add_argument(
        "--fail-if-slower", metavar="SHARE", help="such as 5%%: exit code 3 or 4 unless B is shown not to be"
    )
    return parser


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value <= 3600:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 3600 seconds")
    return value


def _count(text: str) -> int:
    value = int(text)
    if value < 4 or value % 2:
        raise argparse.ArgumentTypeError(f"{text} is not an even number from 4 on")
    return value


if __name__ == "__main__":
    main()
