"""What a search found, in words and as a table."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from strobe.app.tuning.composing import ACCUMULATE, BATCH_SIZE
from strobe.app.tuning.record import Tuning
from strobe.diagnose.predict import step_of
from strobe.measure import WIDEST
from strobe.measure.statistics import Interval
from strobe.overrides import command_of, key_of
from strobe.present.format import interval, pace
from strobe.records.run import Record

COLOURS = {"faster": "green", "slower": "red", "no difference": "default"}


def of_probe(record: Record) -> str:
    """The pace of a probe run, and its verdict."""
    step = step_of(record)
    verdict = (record.text("verdict") or "").partition(" Run: ")[0]
    return f"{pace(1 / step.total)}. {verdict}" if step is not None else verdict


def of_trial(trial: Mapping[str, Any]) -> str:
    """A change, what it brought beside what was predicted, and what became of it."""
    told = "beside the rest" if trial.get("left_out") else f"predicted {predicted(trial)}"
    found = trial["error"] or f"{times(trial['measured'])}, {told}"
    return f"  {' '.join(trial['overrides'])}: {found}: {_fate(trial)}"


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
    over, proof = tuning.header["over"], tuning.proof
    if not tuning.trials:
        return f"Of tune.over=[{','.join(over)}] nothing applies here." if over else "There was nothing to try."
    if not tuning.changes:
        return "Nothing that was tried is faster."
    if proof is None or proof["ratio"] is None:
        return f"What was found is not proved ({(proof or {}).get('error') or 'not measured'}): keep what was given."
    if proof["verdict"] == "faster":
        return f"{times(proof['ratio'])} as fast as what was given, measured anew."
    return f"Measured anew, what was found is no faster ({times(proof['ratio'])}): keep what was given."


def _ending(tuning: Tuning) -> str:
    """Why it ended, and when."""
    why = (tuning.ended or tuning.status).rstrip(".")
    return f"{why[:1].upper()}{why[1:]} after {tuning.seconds:.0f} s."


def notes(tuning: Tuning) -> list[str]:
    """What was kept that changes training, and what else the findings say."""
    changed = any(key_of(text) in (BATCH_SIZE, ACCUMULATE) for text in tuning.changes)
    updates = [trial["images"] for trial in tuning.trials if trial["kept"] and trial["images"]]
    warning = (
        f"{updates[-1][1]} images an update in place of {updates[0][0]} change training, also with the learning rate "
        "scaled with them: compare the accuracy."
        if updates and changed and tuning.recommended == tuning.best
        else ""
    )
    advice = [f"Not tried, as it does not belong to what is searched: {text}" for text in tuning.advice]
    return [warning, *advice] if warning else advice


def predicted(trial: Mapping[str, Any]) -> str:
    """The estimate: a ratio with its interval, the most that it can be, or nothing."""
    ratio = trial["predicted"]
    if ratio is None:
        return "nothing"
    return f"at most {ratio['high']:.2f} times" if trial["bounded"] else times(ratio)


def times(ratio: Interval | None) -> str:
    """A ratio with its interval: 1.42 times (1.31 to 1.55)."""
    if ratio is None:
        return ""
    told, ends = f"{ratio['median']:.2f} times", interval(ratio["low"], ratio["high"], "{:.2f}".format)
    return f"{told} ({ends})" if ends else told


def _fate(trial: Mapping[str, Any]) -> str:
    """What became of a change."""
    if trial.get("left_out"):
        return "stays" if trial["kept"] else "left out"
    wide = trial["measured"] and WIDEST * (trial["measured"]["low"] or 0.0) < (trial["measured"]["high"] or 0.0)
    return "kept" if trial["kept"] else "not known" if wide else str(trial["verdict"])


def _table(tuning: Tuning) -> Table:
    table = Table("", "change", "because", "predicted", "measured", "verdict", title="tried", title_justify="left")
    for trial in tuning.trials:
        table.add_row(
            str(trial["number"]),
            Text(" ".join(trial["overrides"]), "bold" if trial["kept"] else ""),
            Text(trial["why"]),
            "" if trial.get("left_out") else predicted(trial),
            Text(trial["error"] or times(trial["measured"])),
            Text(_fate(trial), COLOURS.get(trial["verdict"], "yellow")),
        )
    return table
