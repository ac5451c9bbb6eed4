"""Does ``strobe duel`` tell equals apart? Anybody's scripts take turns with themselves: `strobe.validation.aa_test`."""

import contextlib
import json
import math
import os
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from strobe.duel.foreign import TIMEOUT, Foreign
from strobe.duel.paired_trial import FALSE, duel, quads
from strobe.errors import DataError
from strobe.measure.statistics import LEVEL, Estimate, sequential, share
from strobe.present.format import counted, estimate, percent
from strobe.present.terminal import say
from strobe.process.fork import Failure

DUELS = "duels.json"
QUADS = 6

Begin = Callable[..., Foreign]


def fight(
    commands: Sequence[str], folder: Path, console: Console, *, minutes: float, seconds: float, seed: int, begin: Begin
) -> None:
    """Let each command take turns with itself, one after the other until the time is over, and keep the quads' ratios.

    A command is a script and its arguments, and runs in the folder.
    """
    until, found = time.monotonic() + 60 * minutes, list[tuple[str, list[float]]]()
    folder.mkdir(parents=True, exist_ok=True)
    while not found or time.monotonic() < until:
        command = commands[len(found) % len(commands)]
        ratios = _once(command, folder, seconds, hash((seed, len(found))), begin)
        found.append((command, ratios))
        (folder / DUELS).write_text(json.dumps(found))
        told = _decided(ratios)
        say(console, f"[{len(found)}] {command}: {estimate(told.as_record())} times as fast as itself, {told.verdict}")


def _once(command: str, folder: Path, seconds: float, seed: int, begin: Begin) -> list[float]:
    script, *given = shlex.split(command)
    words = [sys.executable, str(Path(script).absolute()), *given]
    with contextlib.ExitStack() as stack:
        sides = []
        for side in "AB":
            training = begin(words, folder / side, variables=os.environ, timeout=TIMEOUT, place=folder)
            stack.enter_context(training)
            if isinstance(started := training.start(), Failure):
                raise DataError(f"{command} cannot train: {started.reason}")
            sides.append(training)
        ended = duel(*sides, turns=QUADS, seconds=seconds, early=False, alpha=FALSE, seed=seed)
    if isinstance(ended, Failure):
        raise DataError(f"{command} broke off: {ended.reason}")
    return quads(ended.ours, ended.theirs)


def _decided(ratios: Sequence[float]) -> Estimate:
    """What the command would say of them."""
    return sequential(ratios, (len(ratios),), FALSE)


def tell(folder: Path, console: Console, aim: float) -> bool:
    """Print what the duels in a folder come to; whether at most a share ``aim`` of them is wrong, as far as they tell.

    Raises:
        DataError: the folder has none.
    """
    try:
        found = json.loads((folder / DUELS).read_text())
    except (OSError, ValueError) as error:
        raise DataError(f"{folder} has no duels to read; give a folder that --duels --keep has made") from error
    told = [_decided(ratios) for _, ratios in found]
    verdicts = [one.verdict for one in told]
    wrong = len(verdicts) - verdicts.count("no difference")
    part = share(wrong, len(verdicts)).as_record()
    held = f"{percent(part['low'])} to {percent(part['high'])}, {LEVEL:.0%}"
    widths = sorted(math.log(one.high / one.low) / 2 for one in told if one.low and one.high)
    say(console, f"duels of equals that find a difference: {wrong} of {len(found)} ({held}; aim: at most {aim:.0%})")
    of = counted(len({command for command, _ in found}), "script")
    say(console, f"{of}; the median interval reaches {widths[len(widths) // 2]:.1%} to either side")
    return bool(part["low"] <= aim)
