"""Which of two trainings is faster: both are started, and one is paused while the other trains, by turns.

    python -m strobe.duel [OPTIONS] -- python train.py OVERRIDES_A -- python train.py OVERRIDES_B
    python -m strobe.duel [OPTIONS] --commit A --commit B -- python train.py OVERRIDES

B is compared with A. A commit is a branch, a tag or a hash, or . for the working tree as it is. Exit code: 0; with
--fail-if-slower 3 for a regression, and 4 when it cannot tell.
"""

import argparse
import contextlib
import os
import shlex
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from statistics import median

import strobe.app.needed  # noqa: F401  # isort: skip

from rich.console import Console

from strobe.app.tuning.trainee import Trainee
from strobe.duel.commits import WORKING_TREE, Repository
from strobe.duel.foreign import Foreign
from strobe.duel.paired_trial import Defeat, duel
from strobe.errors import ConfigError, StrobeError
from strobe.measure.gate import Case, parse_share, rule
from strobe.overrides import quoted
from strobe.present.format import estimate, pace
from strobe.present.terminal import clock, say
from strobe.present.terminal import console as output
from strobe.process.fork import Failure
from strobe.process.signals import exit_code, interruptible

FLAG = "--fail-if-slower "
SCRIPT = "train.py"
TIMEOUT = 600.0  # seconds, until a training is warm

Begin = Callable[..., AbstractContextManager[Trainee]]


def main(arguments: Sequence[str] | None = None, begin: Begin = Trainee) -> None:
    """Run the command; exits with the gate's code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    first = given.index("--") if "--" in given else len(given)
    options = _parser().parse_args(given[:first])
    try:
        limit = None if options.fail_if_slower is None else parse_share(options.fail_if_slower, FLAG)
        commands = _commands(given[first:], options.commit)
        sides: Sequence[tuple[str, Trainee | Foreign]]
        with interruptible(), contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="strobe-duel-")))
            if options.commit:
                sides = _of_commits(options.commit, commands[0], folder, stack)
            else:
                sides = [
                    (f"train.py {shlex.join(each)}", stack.enter_context(begin(each, folder / name, timeout=TIMEOUT)))
                    for name, each in zip("AB", commands, strict=True)
                ]
            sys.exit(_duel(sides, options, limit, output()))
    except StrobeError as error:
        print(error, file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt as interrupt:
        sys.exit(exit_code(interrupt))


def _duel(
    sides: Sequence[tuple[str, Trainee | Foreign]], options: argparse.Namespace, limit: float | None, console: Console
) -> int:
    for name, (told, training) in zip("AB", sides, strict=True):
        say(console, f"{name} starts: {told}")
        if isinstance(started := training.start(), Failure):
            raise StrobeError(f"{name} cannot train: {started.reason}")
    first, second = (training for _, training in sides)
    about = clock(4 * options.quads * options.seconds)
    say(console, f"Taking turns for about {about}, longer where two steps take more than a turn")
    found = duel(first, second, turns=options.quads, seconds=options.seconds, early=False)
    if isinstance(found, Defeat):
        raise StrobeError(f"{'A' if found.side == 'incumbent' else 'B'} broke off: {found.reason}")
    ratio = found.ratio
    words = {"faster": "B is faster", "slower": "B is slower"}.get(ratio.verdict, "no measurable difference")
    say(console, f"A {pace(median(found.theirs))}, B {pace(median(found.ours))}")
    told = f"B is {estimate(ratio.as_record())} times as fast as A ({ratio.n} quads of turns, "
    told += f"{ratio.level:.0%} interval): {words}."
    if ratio.wide and ratio.verdict == "no difference":
        told = f"These turns cannot tell which is faster: the {ratio.n} quads differ too much; give more --quads."
    say(console, told)
    if limit is None:
        return 0
    ruling = rule([Case("B", ratio)], limit, FLAG, "--quads")
    say(console, ruling.text)
    return ruling.code


def _of_commits(
    commits: Sequence[str], overrides: Sequence[str], folder: Path, stack: contextlib.ExitStack
) -> list[tuple[str, Foreign]]:
    """The same command by two commits, each in a work tree and, where it requires other packages, its environment."""
    repository, sides = Repository(Path.cwd()), []
    names = [repository.resolved(commit) for commit in commits]
    if repository.dirty and WORKING_TREE not in names:
        print("The working tree has changes that neither commit holds; --commit . takes it as it is", file=sys.stderr)
    for side, given, name in zip("AB", commits, names, strict=True):
        python = repository.interpreter(name)
        tree = stack.enter_context(repository.tree(name, folder / f"tree-{side}"))
        if not (tree / SCRIPT).is_file():
            raise ConfigError(f"--commit {given} has no {SCRIPT}; give another commit")
        words = [python, str(tree / SCRIPT), *overrides, f"hydra.run.dir={quoted(folder / side)}"]
        variables = os.environ | {"PYTHONPATH": str(tree / "src")}
        training = Foreign(words, folder / side, variables=variables, timeout=TIMEOUT)
        sides.append((f"{SCRIPT} {shlex.join(overrides)} of {given}", stack.enter_context(training)))
    return sides


def _commands(given: Sequence[str], commits: Sequence[str]) -> list[list[str]]:
    """The overrides of the two commands, each of which follows a ``--``, or of the one for two commits."""
    commands: list[list[str]] = []
    for word in given:
        if word == "--":
            commands.append([])
        else:
            commands[-1].append(word)
    if commits and (len(commits), len(commands)) != (2, 1):
        raise ConfigError(
            f"a duel of commits takes two commits and one command, not {len(commits)} and {len(commands)}: give "
            "python -m strobe.duel --commit main --commit . -- python train.py loader=native"
        )
    if not commits and len(commands) != 2:
        raise ConfigError(
            f"a duel takes two commands, not {len(commands)}: give each after a --, as in "
            "python -m strobe.duel -- python train.py loader=skimage -- python train.py loader=native"
        )
    return [_overrides(command) for command in commands]


def _overrides(command: Sequence[str]) -> list[str]:
    """What ``train.py`` is given."""
    words = list(command)
    if words and Path(words[0]).name.startswith("python"):
        words = words[1:]
    if not words or Path(words[0]).name != SCRIPT:
        raise ConfigError(f"{shlex.join(command) or 'an empty command'} is not a command of this project's train.py")
    return words[1:]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m strobe.duel",
        usage="%(prog)s [OPTIONS] -- python train.py A -- python train.py B\n"
        "       %(prog)s [OPTIONS] --commit A --commit B -- python train.py OVERRIDES",
        description="Which of two trainings is faster: they take turns, A B B A, on this machine.",
    )
    parser.add_argument("--seconds", type=_positive, default=1.0, help="of a turn (1)")
    parser.add_argument("--quads", type=_count, default=6, help="of turns, A B B A or B A A B, by chance; even (6)")
    parser.add_argument(
        "--commit", action="append", default=[], help="A, and then B, with one command; . is the working tree as it is"
    )
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
