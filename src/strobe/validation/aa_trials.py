"""How often does a paired trial of two equal trainings find one of them faster?

    python -m strobe.validation.aa_trials [KEY=VALUE ...] [--minutes 9] [--seconds 0.5] [--keep FOLDER] [--seed N]

One configuration trains all the time, as the incumbent of a search does. Candidates of the same configuration take
turns with it, each in a process of its own and until its trial is over, as proposals of ``python -m strobe.tune`` do,
at the share of false alarms that each of a search's proposals may have. From the same turns follows what a single trial
would have found. KEY=VALUE goes to both. See docs/bench/same.md.
"""

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rich.console import Console

from strobe.app.tuning.search import PROPOSALS
from strobe.app.tuning.trainee import Trainee
from strobe.duel.paired_trial import Duel, duel, quads
from strobe.errors import DataError
from strobe.measure.statistics import FALSE_ALARM, LEVEL, Estimate, is_over, looks, sequential, share
from strobe.present import terminal
from strobe.present.format import counted, estimate, percent
from strobe.process.fork import Failure
from strobe.process.signals import exit_code, interruptible
from strobe.validation.experiment import arguments as arguments_of
from strobe.validation.experiment import folder_of, is_override, say

AIM = 0.05  # of trials, or whole searches, of equals may find the candidate faster
TURNS = 6  # of each side, until a trial is looked at for the first time
TIMEOUT = 300.0  # seconds until a training is warm

Begin = Callable[..., contextlib.AbstractContextManager[Trainee]]


def main(arguments: Sequence[str] | None = None, begin: Begin = Trainee) -> None:
    """Run the trials and print what they found; exit code 1 where the aim is shown to be missed."""
    options = parse(arguments)
    console, found, code = terminal.console(), list[list[float]](), 0
    try:
        with folder_of(options.keep) as folder, interruptible():
            for ratios in trials(options, folder, begin):
                found.append(ratios)
                folder.mkdir(parents=True, exist_ok=True)
                (folder / "trials.json").write_text(json.dumps(found))
                say(console, f"[{len(found)}] B is {estimate(single(ratios).as_record())} times as fast as itself")
    except DataError as error:
        sys.exit(str(error))
    except KeyboardInterrupt as interrupt:
        code = exit_code(interrupt)
    missed = told(found, console)
    sys.exit(code or missed)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """``overrides``, ``minutes``, ``seconds``, ``keep`` and ``seed``; exits on a wrong one."""
    parser = arguments_of(
        "strobe.validation.aa_trials", "Paired trials of equal trainings.", seed="of the order of turns"
    )
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="an override for both trainings")
    parser.add_argument("--minutes", type=float, default=9.0, help="after which no trial begins (9)")
    parser.add_argument("--seconds", type=float, default=0.5, help="of a turn (0.5)")
    options = parser.parse_intermixed_args(arguments)
    if wrong := [given for given in options.overrides if not is_override(given)]:
        parser.error(f"{wrong[0]!r} is not an override; give KEY=VALUE, such as loader=native")
    if not (options.minutes > 0 and options.seconds > 0):
        parser.error("--minutes and --seconds must be above 0")
    return options


def trials(options: argparse.Namespace, folder: Path, begin: Begin) -> Iterator[list[float]]:
    """The ratios of the quads of each trial, one after the other until the time is over; raises a DataError."""
    until, number = time.monotonic() + 60 * options.minutes, 0
    with begin(options.overrides, folder / "A", timeout=TIMEOUT) as incumbent:
        if isinstance(started := incumbent.start(), Failure):
            raise DataError(f"The configuration cannot train: {started.reason}")
        while number == 0 or time.monotonic() < until:
            with begin(options.overrides, folder / "B", timeout=TIMEOUT) as candidate:
                started = candidate.start()
                fought: Duel | Failure = (
                    started
                    if isinstance(started, Failure)
                    else duel(
                        incumbent,
                        candidate,
                        turns=TURNS,
                        seconds=options.seconds,
                        alpha=FALSE_ALARM / PROPOSALS,
                        seed=hash((options.seed, number)),
                    )
                )
            if isinstance(fought, Failure):
                raise DataError(f"A training broke off: {fought.reason}")
            number += 1
            yield quads(fought.ours, fought.theirs)


def single(ratios: Sequence[float], alpha: float = FALSE_ALARM) -> Estimate:
    """What a trial with such a share of false alarms says at the look at which it would have been over."""
    planned = looks(TURNS // 2)
    for count in (look for look in planned if look <= len(ratios)):
        found = sequential(ratios[:count], planned, alpha)
        if is_over(found, planned):
            break
    return found


def told(found: Sequence[Sequence[float]], console: Console) -> int:
    """Print how many were false alarms, with the interval of their share; 1 if it lies above the aim, else 0."""
    missed = 0
    each = [str(single(ratios).verdict) for ratios in found]
    strict = [single(ratios, FALSE_ALARM / PROPOSALS).verdict for ratios in found]
    whole = [strict[at : at + PROPOSALS] for at in range(0, len(strict) - PROPOSALS + 1, PROPOSALS)]
    for what, among, verdict in (
        ("trial", each, "faster"),
        ("trial", each, "slower"),
        (f"search of {PROPOSALS} proposals", ["faster" if "faster" in search else "" for search in whole], "faster"),
    ):
        if not among:
            say(console, f"no {what}: too few trials, give a larger --minutes")
            continue
        wrong = among.count(verdict)
        part = share(wrong, len(among)).as_record()
        missed |= part["low"] > AIM
        held = f"{percent(part['low'])} to {percent(part['high'])}, {LEVEL:.0%}"
        verdicts = f"{wrong} of {len(among)} ({held}; aim: at most {AIM:.0%})"
        say(console, f"a {what} of equals finds one {verdict}: {verdicts}")
    say(console, f"{counted(len(found), 'trial')} of {counted(sum(map(len, found)), 'quad')} in all")
    return int(missed)


if __name__ == "__main__":
    main()
