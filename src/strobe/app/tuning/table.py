"""How a search goes, and what it found, for the terminal."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from strobe.app.tuning.proposals import Move
from strobe.app.tuning.record import Tuning
from strobe.diagnose.finding import pace
from strobe.diagnose.predict import step_of
from strobe.measure.statistics import Interval
from strobe.overrides import command_of
from strobe.present.terminal import ProgressDisplay
from strobe.records.run import Record

COLOURS = {"faster": "green", "slower": "red", "no difference": "default"}


class Progress(ProgressDisplay):
    """Says how each action ended; on a terminal it also shows the current one, and the time left of the budget."""

    def looks(self, overrides: Sequence[str], left: float) -> None:
        """A look begins."""
        self.begins(f"looking at {' '.join(overrides) or 'the defaults'}", left)

    def looked(self, record: Record | None) -> None:
        """Tell the rate, and what the verdict is."""
        step = step_of(record) if record is not None else None
        if record is not None and step is not None:
            verdict = (record.text("verdict") or "").partition(" Run: ")[0]
            self.say(f"{pace(1 / step.total)}. {verdict}")

    def tries(self, move: Move, left: float) -> None:
        """A trial begins."""
        self.begins(f"trying {' '.join(move.overrides)}", left)

    def tried(self, trial: Mapping[str, Any]) -> None:
        """Tell what it found."""
        found = trial["error"] or f"{times(trial['measured'])}, predicted {predicted(trial)}"
        what = "kept" if trial["kept"] else trial["verdict"]
        self.say(f"  {' '.join(trial['overrides'])}: {found}: {what}")

    def proves(self, left: float) -> None:
        """The proof begins."""
        self.begins("comparing what was found with what was given", left)


def print_tuning(console: Console, tuning: Tuning) -> None:
    """The trials, predicted beside measured; what they come to; the command to copy; what to know about it."""
    if tuning.trials:
        console.print(_table(tuning))
    console.print(Text(f"{_sum(tuning)} {_ending(tuning)}", "bold"), soft_wrap=True)
    for note in notes(tuning):
        console.print(note, markup=False, highlight=False, soft_wrap=True)
    console.print(Text(command_of(tuning.recommended), "cyan"), soft_wrap=True)


def _sum(tuning: Tuning) -> str:
    """What all that was kept comes to."""
    if not tuning.trials:
        over = tuning.header["over"]
        return f"Of tune.over=[{','.join(over)}] nothing applies here." if over else "There was nothing to try."
    if not tuning.kept:
        return "Nothing that was tried is faster."
    proof = tuning.proof or {"verdict": None, "ratio": None, "error": "it was not measured"}
    if proof["verdict"] == "faster":
        return f"{times(proof['ratio'])} as fast as what was given, measured anew."
    if proof["ratio"] is not None:
        return f"Measured anew, what was found is no faster ({times(proof['ratio'])}): keep what was given."
    product = math.prod(trial["measured"]["median"] for trial in tuning.kept)
    return f"About {product:.2f} times as fast, the product of what was kept; not proved: {proof['error']}."


def _ending(tuning: Tuning) -> str:
    """Why it ended, and when."""
    why = (tuning.ended or tuning.status).rstrip(".")
    return f"{why[:1].upper()}{why[1:]} after {tuning.seconds:.0f} s."


def notes(tuning: Tuning) -> list[str]:
    """What was kept that changes training, and what else the findings say."""
    updates = [trial["images"] for trial in tuning.kept if trial["images"]] if tuning.recommended == tuning.best else []
    found = [] if not updates else [larger_update(updates[0][0], updates[-1][1])]
    return found + [f"Not tried, as it does not belong to what is searched: {text}" for text in tuning.advice]


def larger_update(before: int, after: int) -> str:
    """A word of warning."""
    return (
        f"{after} images an update in place of {before} change training, also with the learning rate scaled with them: "
        "compare the accuracy."
    )


def predicted(trial: Mapping[str, Any]) -> str:
    """What was promised: a ratio with its interval, the most that it can be, or nothing."""
    ratio = trial["predicted"]
    if ratio is None:
        return "nothing"
    return f"at most {ratio['high']:.2f} times" if trial["bounded"] else times(ratio)


def times(ratio: Interval | None) -> str:
    """A ratio with its interval: 1.42 times (1.31 to 1.55)."""
    if ratio is None:
        return ""
    told = f"{ratio['median']:.2f} times"
    return told if ratio["low"] is None else f"{told} ({ratio['low']:.2f} to {ratio['high']:.2f})"


def _table(tuning: Tuning) -> Table:
    table = Table("", "change", "because", "predicted", "measured", "verdict", title="tried", title_justify="left")
    for trial in tuning.trials:
        verdict = "kept" if trial["kept"] else trial["verdict"]
        table.add_row(
            str(trial["number"]),
            Text(" ".join(trial["overrides"]), "bold" if trial["kept"] else ""),
            Text(trial["why"]),
            predicted(trial),
            Text(trial["error"] or times(trial["measured"])),
            Text(verdict, COLOURS.get(trial["verdict"], "yellow")),
        )
    return table
