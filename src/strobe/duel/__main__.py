"""Which of two trainings is faster: both are started, and one is paused while the other trains, in turns.

    strobe duel [OPTIONS] -- COMMAND A -- COMMAND B
    strobe duel [OPTIONS] --commit A --commit B -- COMMAND

B is compared with A. Exit code: 0; with --fail-if-slower 3 for a regression, and 4 when it cannot tell.
"""

from strobe.process.signals import listen, what_ended

if __name__ == "__main__":
    listen()  # before libraries are imported

import argparse
import contextlib
import functools
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from strobe.attach.entry import WANTED
from strobe.callbacks.columns import PHASES
from strobe.diagnose.cores import TAKEN
from strobe.duel.commits import WORKING_TREE, Repository
from strobe.duel.foreign import TIMEOUT, Foreign
from strobe.duel.paired_trial import FALSE, Defeat, Duel, duel, is_told
from strobe.duel.program import OWN
from strobe.errors import ConfigError, StrobeError
from strobe.measure import contention
from strobe.measure.environment import usable_cores
from strobe.measure.gate import UNKNOWN, Case, parse_share, rule
from strobe.measure.statistics import Estimate
from strobe.present.format import estimate, milliseconds, percent, rate
from strobe.present.terminal import ProgressDisplay, clock, say
from strobe.present.terminal import console as output
from strobe.process.fork import Failure
from strobe.process.launch import Parser, positive_seconds, start
from strobe.process.output import note

FLAG = "--fail-if-slower "
EXAMPLES = """
A command trains with a Trainer of Lightning, or in a loop over strobe.watch, in one process. Its first training takes
part, without an end: no validation, loggers, checkpoints or early stopping. What the script itself writes, it writes
as ever, and both run in the same folder. `python` is the one that Strobe is installed in.

Examples
  strobe duel -- python train.py --workers 0 -- python train.py --workers 4
  strobe duel -- python -m package.train -- other/bin/python -m package.train
  strobe duel --fail-if-slower 5% --commit main --commit HEAD -- python train.py
"""

Train = Callable[..., Foreign]


@dataclass(frozen=True)
class Side:
    """A training that takes part.

    Attributes:
        name: A or B.
        told: what it trains.
        training: not started yet.
        tree: of its commit; None where a command was given.
        root: of the repository, whose files it must not use unless they lie in its tree.
    """

    name: str
    told: str
    training: Foreign
    tree: Path | None = None
    root: Path | None = None


def main(arguments: Sequence[str] | None = None, begin: Train = Foreign) -> None:
    """Run the command; exits with the gate's code. Raises a StrobeError where there is no result."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    first = words.index("--") if "--" in words else len(words)
    options = _parser().parse_args(words[:first])
    limit = None if options.fail_if_slower is None else parse_share(options.fail_if_slower, FLAG)
    commands = _commands(words[first:], options.commit)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="strobe-duel-")))
        train = functools.partial(begin, timeout=float(options.timeout))
        sides = list(
            _of_commits(options.commit, commands[0], folder, train, stack)
            if options.commit
            else _of_commands(commands, folder, train)
        )
        for side in sides:
            stack.enter_context(side.training)
        try:
            code = _duel(sides, options, limit, output())
        except KeyboardInterrupt as interrupt:
            note(f"{what_ended(interrupt)} There is no result, and neither training goes on.")
            raise
        sys.exit(code)


def _duel(sides: Sequence[Side], options: argparse.Namespace, limit: float | None, console: Console) -> int:
    first, second = (side.training for side in sides)
    before = contention.read()
    with ProgressDisplay(console) as display:
        outcome = _turns(sides, options, limit, display)
    machine = contention.between(before, contention.read(), usable_cores())
    ratio, unit = outcome.ratio, "steps/s" if first.in_steps else "samples/s"
    words = {"faster": "B is faster", "slower": "B is slower"}.get(ratio.verdict, "no measurable difference")
    for table in _phases(first, second):
        console.print(table)
    say(
        console,
        f"A {rate(_rate(first, outcome.theirs))} {unit}, B {rate(_rate(second, outcome.ours))} {unit}, over all turns",
    )
    told = f"Quad by quad, B is {estimate(ratio.as_record())} times as fast as A ({ratio.n} quads of turns, "
    told += f"{ratio.level:.0%} interval): {words}."
    if ratio.wide and ratio.verdict == "no difference":
        told = f"These turns cannot tell which is faster: the turns differ too much; try --quads {2 * options.quads}."
    say(console, told)
    if (others := (machine["others"] or 0.0) + (machine["stolen"] or 0.0)) >= TAKEN:
        told = f"Others took {percent(others)} of the cores meanwhile"
        say(console, f"{told}; on a quiet machine the interval is narrower.")
    if limit is None:
        return 0
    ruling = rule([Case("B", ratio)], limit, FLAG, "--quads")
    say(console, ruling.text)
    return ruling.code


def _rate(training: Foreign, rates: Sequence[float]) -> float:
    """Of all turns, as the table's; the median turn's where phases are not known."""
    of_step, seconds = 1.0 if training.in_steps else training.step_images, sum(training.step_phases.values())
    return of_step / seconds if of_step and seconds else median(rates)


def _turns(sides: Sequence[Side], options: argparse.Namespace, limit: float | None, display: ProgressDisplay) -> Duel:
    """Start both, and let them take turns, until one is faster or the gate's limit is known to be kept or not."""
    (first, second), turning = (side.training for side in sides), 4 * options.quads * options.seconds
    took = None  # until the first was warm, which the second is likely to take, too
    for side in sides:
        display.say(f"{side.name} starts: {side.told}")
        display.begins(f"{side.name} starts", took and took + turning)
        began = time.monotonic()
        if isinstance(started := side.training.start(), Failure):
            raise StrobeError(f"{side.name} cannot train: {started.reason}")
        took = time.monotonic() - began
        _check_sources(side)
    first.in_steps = second.in_steps = not (first.sized and second.sized)
    if first.in_steps:
        which = " and ".join(side.name for side in sides if not side.training.sized)
        display.say(f"The batches of {which} do not show how many samples they hold, so steps/s are compared.")
    display.say(f"Taking turns for up to about {clock(turning)}, longer where steps are long or turns differ widely")
    tell = functools.partial(display.begins, "Taking turns")

    def decided(ratio: Estimate) -> bool:
        return is_told(ratio) if limit is None else rule([Case("B", ratio)], limit, FLAG, "--quads").code != UNKNOWN

    outcome = duel(first, second, turns=options.quads, seconds=options.seconds, enough=decided, alpha=FALSE, tell=tell)
    if isinstance(outcome, Defeat):
        raise StrobeError(f"{'A' if outcome.side == 'incumbent' else 'B'} broke off: {outcome.reason}")
    return outcome


def _phases(*trainings: Foreign) -> Iterator[Table]:
    """A table of what a step takes, where a side knows it."""
    known = [training.step_phases for training in trainings]
    if not any(known):
        return
    table = Table("a step, ms", *(f"[bold]{name}" for name in "AB"), title=None)
    for column in table.columns[1:]:
        column.justify = "right"
    for phase in PHASES:
        if any(each.get(phase) for each in known):
            table.add_row(phase.replace("_", " "), *(milliseconds(each[phase]) if each else "" for each in known))
    table.add_section()
    table.add_row("in all", *(milliseconds(sum(each.values())) if each else "" for each in known))
    sizes = [training.step_images for training in trainings]
    if any(sizes):
        table.add_row("samples", *("" if size is None else f"{size:,.4g}" for size in sizes))
    yield table


@contextlib.contextmanager
def _named(side: str) -> Iterator[None]:
    """Names the side in an error about its command."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{side}: {error}") from error


def _of_commands(commands: Sequence[Sequence[str]], folder: Path, train: Train) -> Iterator[Side]:
    """Two commands, here."""
    for side, command in zip("AB", commands, strict=True):
        with _named(side):
            training = train(command, folder / side, variables=_variables())
        yield Side(side, shlex.join(command), training)


def _of_commits(
    commits: Sequence[str], command: Sequence[str], folder: Path, train: Train, stack: contextlib.ExitStack
) -> Iterator[Side]:
    """One command by two commits, each in a work tree and, where one can be made for it, its environment."""
    repository, pythons = Repository(Path.cwd()), list[list[str]]()
    names = [repository.resolved(commit) for commit in commits]
    if repository.dirty and WORKING_TREE not in names:
        print("The working tree has changes that neither commit holds; --commit . takes it as it is", file=sys.stderr)
    trees = {repository.resolved("HEAD") if name == WORKING_TREE and not repository.dirty else name for name in names}
    if len(trees) == 1:
        print("A and B are the same files: only chance can make them differ", file=sys.stderr)
    for side, given, name in zip("AB", commits, names, strict=True):
        words, tree = list(command), stack.enter_context(repository.tree(name, folder / f"tree-{side}"))
        place = tree / Path.cwd().relative_to(repository.root)
        if not place.is_dir():
            raise ConfigError(f"--commit {given} has no folder {place.relative_to(tree)}; start from another one")
        first = next((at for at, word in enumerate(words) if Path(word).name != "env" and "=" not in word), 0)
        if words[first : first + 1] and words[first] in OWN:
            words[first] = repository.interpreter(name)
        pythons.append(words[first : first + 1])
        variables = _variables() | {"PYTHONPATH": _search_path(tree, repository.root)}
        with _named(side):
            training = train(words, folder / side, variables=variables, place=place)
        yield Side(side, f"{shlex.join(command)} of {given}", training, tree, repository.root)
    if pythons[0] == pythons[1] and (unlike := repository.unlike(*names)):
        told = f"Both commits train in the same Python, with what it has installed, but differ in {', '.join(unlike)}"
        print(told, file=sys.stderr)


def _variables() -> dict[str, str]:
    """The environment, without what would leave a record."""
    return {name: value for name, value in os.environ.items() if name != WANTED}


def _search_path(tree: Path, root: Path) -> str:
    """PYTHONPATH by which packages of a repository that are installed from its folder are those of the tree."""
    given = [Path(word) for word in os.environ.get("PYTHONPATH", "").split(os.pathsep) if word]
    moved = [tree / path.relative_to(root) if path.is_relative_to(root) else path for path in given]
    return os.pathsep.join(map(str, [*([tree / "src"] if (tree / "src").is_dir() else []), tree, *moved]))


def _check_sources(side: Side) -> None:
    """Raise a StrobeError where a side has imported a file of the repository's that is not of its commit."""
    if side.tree is None or side.root is None:
        return
    root, tree = side.root.resolve(), side.tree.resolve()
    for path in side.training.sources:
        if (real := path.resolve()).is_relative_to(root) and not real.is_relative_to(tree):
            raise StrobeError(
                f"{side.name} uses {path}, which is not of its commit; give paths relative to the repository, and do "
                "not put its folder into sys.path"
            )


def _commands(given: Sequence[str], commits: Sequence[str]) -> list[list[str]]:
    """The words of the two commands, each of which follows a ``--``, or of the one for two commits."""
    commands: list[list[str]] = []
    for word in given:
        if word == "--":
            commands.append([])
        else:
            commands[-1].append(word)
    if commits and (len(commits), len(commands)) != (2, 1):
        raise ConfigError(
            f"a duel of commits takes two commits and one command, not {len(commits)} and {len(commands)}: give "
            "strobe duel --commit main --commit . -- python train.py"
        )
    if not commits and len(commands) != 2:
        raise ConfigError(
            f"a duel takes two commands, not {len(commands)}: give each after a --, as in "
            "strobe duel -- python train.py --workers 0 -- python train.py --workers 4"
        )
    return commands


def _parser() -> Parser:
    parser = Parser(
        prog="strobe duel",
        usage="%(prog)s [OPTIONS] -- COMMAND A -- COMMAND B\n"
        "       %(prog)s [OPTIONS] --commit A --commit B -- COMMAND",
        description="Which of two trainings is faster: they take turns, A B B A, on this machine.",
        epilog=EXAMPLES,
    )
    parser.add_argument("--seconds", type=positive_seconds, default=1.0, help="seconds of a turn (1)")
    parser.add_argument(
        "--quads",
        type=_count,
        default=6,
        help="most quads of turns, A B B A or B A A B at random; half of them if that tells; even (6)",
    )
    parser.add_argument(
        "--commit",
        action="append",
        default=[],
        help="a branch, a tag or a hash: A, and then B, with one command; . is the working tree as it is",
    )
    parser.add_argument(
        "--fail-if-slower", metavar="SHARE", help="such as 5%%: exit code 3 if B loses more, 4 if that is unknown"
    )
    parser.add_argument(
        "--timeout",
        type=positive_seconds,
        default=TIMEOUT,
        metavar="SECONDS",
        help=f"longest wait until a side is warm ({TIMEOUT:.0f})",
    )
    return parser


def _count(text: str) -> int:
    value = int(text) if text.isdecimal() else 0
    if value < 4 or value % 2:
        raise argparse.ArgumentTypeError(f"{text} is not an even number from 4 on")
    return value


if __name__ == "__main__":
    start(main)
