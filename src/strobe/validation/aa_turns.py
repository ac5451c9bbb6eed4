"""Equals that take turns, for `strobe.validation.aa_test`: trials as in a search, and duels of any scripts."""

import contextlib
import json
import math
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from strobe.duel import foreign
from strobe.duel.paired_trial import FALSE, is_told, quads
from strobe.duel.training import TakesTurns
from strobe.errors import DataError
from strobe.measure.statistics import FALSE_ALARM, Estimate, is_over, looks, sequential, share
from strobe.present.format import counted, estimate
from strobe.present.terminal import say
from strobe.tune.search import PROPOSALS
from strobe.validation.experiment import fight, interval_of, start

TRIALS, DUELS = "trials.json", "duels.json"  # what a folder holds
ALARMS = 0.05  # of trials, whole searches, or duels of equals may find a difference
TURNS = 6  # of each side, until a trial is looked at for the first time
QUADS = 6  # of a duel
TIMEOUT = 300.0  # seconds until a training is warm
NAME = "The configuration"

Begin = Callable[..., contextlib.AbstractContextManager[TakesTurns]]


def trials(
    overrides: Sequence[str], folder: Path, begin: Begin, *, minutes: float, seconds: float, seed: int
) -> Iterator[list[float]]:
    """The ratios of the quads of each trial: candidates, one after the other, take turns with one incumbent."""
    with begin(overrides, folder / "A", timeout=TIMEOUT) as incumbent:
        start(incumbent, NAME)
        for number in _until(minutes):
            with begin(overrides, folder / "B", timeout=TIMEOUT) as candidate:
                start(candidate, NAME)
                how = {"turns": TURNS, "alpha": FALSE_ALARM / PROPOSALS, "seed": hash((seed, number))}
                ended = fight(NAME, incumbent, candidate, seconds=seconds, **how)
                yield quads(ended.ours, ended.theirs)


def duels(
    commands: Sequence[str], folder: Path, begin: Begin, *, minutes: float, seconds: float, seed: int
) -> Iterator[tuple[str, list[float]]]:
    """Each command, a script and its arguments that run in the folder, in turn; with the ratios of its duel's quads."""
    for number in _until(minutes):
        command = commands[number % len(commands)]
        script, *arguments = shlex.split(command)
        words = [sys.executable, str(Path(script).absolute()), *arguments]
        where = {"variables": os.environ, "timeout": foreign.TIMEOUT, "place": folder}
        with begin(words, folder / "A", **where) as ours, begin(words, folder / "B", **where) as theirs:
            for side in (ours, theirs):
                start(side, command)
            how = {"turns": QUADS, "enough": is_told, "alpha": FALSE, "seed": hash((seed, number))}
            ended = fight(command, ours, theirs, seconds=seconds, **how)
            yield command, quads(ended.ours, ended.theirs)


def _until(minutes: float) -> Iterator[int]:
    """Numbers, one at least, until the time is over."""
    until, number = time.monotonic() + 60 * minutes, 0
    while number == 0 or time.monotonic() < until:
        yield number
        number += 1


def keep(results: Iterable[Any], file: Path, console: Console) -> None:
    """Write all trials or duels so far after each of them, and say what it came to."""
    kept = []
    file.parent.mkdir(parents=True, exist_ok=True)
    for one in results:
        kept.append(one)
        file.write_text(json.dumps(kept))
        if file.name == DUELS:
            ratio = decided(one[1])
            say(
                console,
                f"[{len(kept)}] {one[0]}: {estimate(ratio.as_record())} times as fast as itself, {ratio.verdict}",
            )
        else:
            say(console, f"[{len(kept)}] B is {estimate(single(one).as_record())} times as fast as itself")


def single(ratios: Sequence[float], alpha: float = FALSE_ALARM) -> Estimate:
    """What a trial with such a share of false alarms says at the look at which it would have been over."""
    planned = looks(TURNS // 2)
    for count in (look for look in planned if look <= len(ratios)):
        ratio = sequential(ratios[:count], planned, alpha)
        if is_over(ratio, planned):
            break
    return ratio


def decided(ratios: Sequence[float]) -> Estimate:
    """What ``strobe duel`` would say."""
    return sequential(ratios, looks(QUADS // 2)[:2], FALSE)


def tell(folder: Path, file: str, console: Console) -> bool:
    """Print how many false alarms the trials or duels in a folder had; whether at most ``ALARMS``, as far as they tell.

    A DataError says that the folder has none.
    """
    what = file.removesuffix(".json")
    try:
        results = json.loads((folder / file).read_text())
    except (OSError, ValueError) as error:
        raise DataError(f"{folder} has no {what} to read; give a folder that --{what} --keep has made") from error
    return (told_of_duels if file == DUELS else told_of_trials)(results, console)


def told_of_duels(results: Sequence[tuple[str, Sequence[float]]], console: Console) -> bool:
    """How many found a difference, and how narrow their intervals are."""
    estimates = [decided(ratios) for _, ratios in results]
    wrong = sum(one.verdict != "no difference" for one in estimates)
    good = _alarms(console, "duels of equals that find a difference", wrong, len(estimates))
    widths = sorted(math.log(one.high / one.low) / 2 for one in estimates if one.low and one.high)
    of = counted(len({command for command, _ in results}), "script")
    say(console, f"{of}; the median interval reaches {widths[len(widths) // 2]:.1%} to either side")
    return good


def told_of_trials(results: Sequence[Sequence[float]], console: Console) -> bool:
    """How many trials found a difference, and how many whole searches would have; False if there are no results."""
    good = bool(results)
    each = [str(single(ratios).verdict) for ratios in results]
    strict = [single(ratios, FALSE_ALARM / PROPOSALS).verdict for ratios in results]
    whole = [strict[at : at + PROPOSALS] for at in range(0, len(strict) - PROPOSALS + 1, PROPOSALS)]
    for what, among, verdict in (
        ("trial", each, "faster"),
        ("trial", each, "slower"),
        (f"search of {PROPOSALS} proposals", ["faster" if "faster" in search else "" for search in whole], "faster"),
    ):
        if among:
            good &= _alarms(console, f"a {what} of equals finds one {verdict}", among.count(verdict), len(among))
        else:
            say(console, f"no {what}: too few trials, give a larger --minutes")
    say(console, f"{counted(len(results), 'trial')} of {counted(sum(map(len, results)), 'quad')} in all")
    return good


def _alarms(console: Console, what: str, wrong: int, total: int) -> bool:
    say(console, f"{what}: {wrong} of {total} ({interval_of(wrong, total)}; aim: at most {ALARMS:.0%})")
    return bool(share(wrong, total).as_record()["low"] <= ALARMS)
