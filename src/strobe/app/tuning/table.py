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
from strobe.present.format import duration, interval, pace
from strobe.present.terminal import say
from strobe.records.run import Record

COLOURS = {"faster": "green", "slower": "red", "no difference": "default"}
HEADS = ("because", "predicted", "measured", "verdict")


def of_probe(record: Record) -> str:
    """The pace of a probe run, and its verdict."""
    step = step_of(record)
    verdict = (record.text("verdict") or "").partition(" Run: ")[0]
    return f"{pace(1 / step.total)}. {verdict}" if step is not None else verdict


def of_trial(trial: Mapping[str, Any]) -> str:
    """A change, what it brought beside what was predicted, and what became of it."""
    told = "with it" if trial.get("left_out") else f"predicted {predicted(trial)}"
    found = trial["error"] or f"{times(trial['measured'])}, {told}"
    return f"  {' '.join(trial['overrides'])}: {found}: {fate(trial)}"


def print_tuning(console: Console, tuning: Tuning) -> None:
    """The trials, predicted beside measured; what they come to; the command to copy; what to know about it."""
    if tuning.trials:
        console.print(_table(tuning))
    console.print(Text(f"{total(tuning)} {ending(tuning)}", "bold"), soft_wrap=True)
    say(console, *notes(tuning))
    console.print(Text(command_of(tuning.recommended), "cyan"), soft_wrap=True)


def total(tuning: Tuning) -> str:
    """What all that was kept comes to."""
    over, proof = tuning.header["over"], tuning.proof
    if not tuning.trials:
        nothing = "Nothing was tried" if tuning.status == "interrupted" else "There was nothing to try"
        return f"Nothing in tune.over=[{','.join(over)}] applies here." if over else f"{nothing}."
    if not tuning.changes:
        return "Nothing that was tried is measurably faster."
    if proof is None and tuning.status == "interrupted":
        return "Interrupted before the proof: go on, or keep what you have."
    if proof is None or proof["ratio"] is None:
        return f"The gain is not proved ({(proof or {}).get('error') or 'not measured again'}): keep what you have."
    if proof["verdict"] == "faster":
        return f"{times(proof['ratio'])} as fast as what you gave, measured again at the end."
    return f"Measured again at the end, it is not faster ({times(proof['ratio'])}): keep what you have."


def ending(tuning: Tuning) -> str:
    """Why it ended, and when."""
    why = (tuning.ended or tuning.status).rstrip(".")
    return f"{why[:1].upper()}{why[1:]} after {duration(tuning.seconds)}."


def warning(tuning: Tuning) -> str:
    """That the recommended configuration trains otherwise, not only faster; empty where it does not."""
    changed = any(key_of(text) in (BATCH_SIZE, ACCUMULATE) for text in tuning.changes)
    updates = [trial["images"] for trial in tuning.trials if trial["kept"] and trial["images"]]
    if not updates or not changed or tuning.recommended != tuning.best:
        return ""
    now, then = updates[0][0], updates[-1][1]
    scaled = any(key_of(text).startswith("model.lr") for text in tuning.changes)
    rate = ", and the learning rate is scaled with them" if scaled else ""
    return f"Each update sees {then} images instead of {now}{rate}: compare the accuracy before you rely on it."


def notes(tuning: Tuning) -> list[str]:
    """What was kept that changes training, and what else the findings say."""
    advice = [f"Also found, but not part of this search: {text}" for text in tuning.advice]
    return [text for text in (warning(tuning), *advice) if text]


def predicted(trial: Mapping[str, Any]) -> str:
    """The estimate: a ratio with its interval, the most that it can be, or ``-`` without one."""
    ratio = trial["predicted"]
    if ratio is None:
        return "-"
    return f"at most {ratio['high']:.2f} times" if trial["bounded"] else times(ratio)


def times(ratio: Interval | None) -> str:
    """A ratio with its interval: 1.42 times (1.31 to 1.55)."""
    if ratio is None:
        return ""
    told, ends = f"{ratio['median']:.2f} times", interval(ratio["low"], ratio["high"], "{:.2f}".format)
    return f"{told} ({ends})" if ends else told


def fate(trial: Mapping[str, Any]) -> str:
    """What became of a change."""
    if trial.get("left_out"):
        return "needed" if trial["kept"] else "not needed, left out"
    wide = trial["measured"] and WIDEST * (trial["measured"]["low"] or 0.0) < (trial["measured"]["high"] or 0.0)
    return "kept" if trial["kept"] else "too noisy to tell" if wide else str(trial["verdict"])


def rows(tuning: Tuning) -> list[tuple[str, str, str, str, str]]:
    """Of each trial the change, and what stands below ``HEADS``."""
    return [
        (
            f"{'without ' if trial.get('left_out') else ''}{' '.join(trial['overrides'])}",
            trial["why"],
            "" if trial.get("left_out") else predicted(trial),
            trial["error"] or f"{times(trial['measured'])}{' with it' if trial.get('left_out') else ''}",
            fate(trial),
        )
        for trial in tuning.trials
    ]


def _table(tuning: Tuning) -> Table:
    table = Table("", "change", *HEADS, title="tried", title_justify="left")
    for trial, (change, why, promised, found, end) in zip(tuning.trials, rows(tuning), strict=True):
        name = Text(change, "bold" if trial["kept"] else "")
        end_ = Text(end, COLOURS.get(trial["verdict"], "yellow"))
        table.add_row(str(trial["number"]), name, Text(why), promised, Text(found), end_)
    return table
