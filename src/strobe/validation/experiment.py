"""What the experiments have in common: arguments, the folder that they write to, and how a prediction is scored."""

import argparse
import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from strobe.duel.paired_trial import Duel, duel
from strobe.duel.training import TakesTurns
from strobe.errors import DataError
from strobe.measure.statistics import Interval, quantile
from strobe.measure.statistics import share as share_of
from strobe.process.fork import Failure


def arguments(name: str, about: str, *, seed: str) -> argparse.ArgumentParser:
    """An experiment's parser, with ``--keep`` and ``--seed``, which is ``seed``, such as "of the order of cells"."""
    parser = argparse.ArgumentParser(prog=f"python -m strobe.validation.{name}", description=about)
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep what is written here")
    parser.add_argument("--seed", type=int, default=0, help=f"{seed} (0)")
    return parser


@contextlib.contextmanager
def folder_of(keep: Path | None) -> Iterator[Path]:
    """Where an experiment writes: what the user has named, or a folder that is deleted after the block."""
    if keep is not None:
        yield keep.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="strobe-") as scratch:
        yield Path(scratch)


def start(training: TakesTurns, name: str) -> None:
    """Start one side of a duel; a DataError says why it cannot train."""
    if isinstance(started := training.start(), Failure):
        raise DataError(f"{name} cannot train: {started.reason}")


def fight(name: str, ours: TakesTurns, theirs: TakesTurns, **options: Any) -> Duel:
    """The duel of two sides that were started; a DataError says why it broke off."""
    ended = duel(ours, theirs, **options)
    if isinstance(ended, Failure):
        raise DataError(f"{name} broke off: {ended.reason}")
    return ended


def is_override(text: str) -> bool:
    """Whether an argument is KEY=VALUE, or ~KEY."""
    return "=" in text or text.startswith("~")


def scored(predictions: Sequence[tuple[Interval, float]]) -> str:
    """How far predicted speed-ups were from measured ones, and how many of their intervals held them."""
    errors = [abs(predicted["median"] / measured - 1) for predicted, measured in predictions]
    inside = [(one["low"] > 1, one["low"] <= measured <= one["high"]) for one, measured in predictions]
    held, promised = [within for _, within in inside], [within for promises, within in inside if promises]
    middle, most = ("unknown" if (at := quantile(errors, share)) is None else f"{at:.1%}" for share in (0.5, 0.9))
    return (
        f"prediction error: median {middle} (aim 10%), 90th percentile {most} (aim 20%), of {len(errors)} predictions; "
        f"{sum(held)} measured within the predicted interval ({_covered(held)}aim 85%); of {len(promised)} that "
        f"promise a gain (the interval lies above 1), {sum(promised)} ({_covered(promised)}aim 85%)"
    )


def _covered(held: Sequence[bool]) -> str:
    return f"{interval_of(sum(held), len(held))}; " if held else ""


def interval_of(count: int, total: int) -> str:
    """A share with its interval: ``83%, 95% interval 52% to 98%``."""
    interval = share_of(count, total)
    return f"{interval.middle:.0%}, 95% interval {interval.low:.0%} to {interval.high:.0%}"
