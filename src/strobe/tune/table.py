"""What a search found, in words and as a table."""

import statistics
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from strobe.diagnose.foreign import BY_WORKER, in_words, is_foreign
from strobe.diagnose.predict import step_of
from strobe.measure import WIDEST
from strobe.measure.statistics import Interval
from strobe.overrides import key_of
from strobe.present.format import counted, duration, interval, pace
from strobe.present.terminal import say
from strobe.records.run import Record
from strobe.tune.composing import ACCUMULATE, BATCH_SIZE, multiplies
from strobe.tune.dimensions import DIMENSIONS, ON_REQUEST
from strobe.tune.record import NOTHING, Tuning
from strobe.tune.writing import first_probe, lines

COLOURS = {"faster": "green", "slower": "red", "no difference": "default"}
ALTERS = (BATCH_SIZE, ACCUMULATE, "trainer.precision", "matmul_precision")  # what is learned, not only how fast
SIDES = ("as it is", "with the changes")
NOISY = "too noisy to tell"
NO_LOSSES = "The losses of the first steps cannot be compared, because training_step returns none."
OF_A_LOOP = "The losses of the first steps cannot be compared: a Trainer tells them, but not a loop of your own."
GIVEN_UP = "its curves have fewer points, and early stopping and the choice of a checkpoint see fewer validations."
OVER = 1.1  # times the budget, from where a search says that it took longer
HEADS = ("because", "predicted", "measured", "verdict")


def of_probe(record: Record) -> str:
    """The pace of a probe run, and its verdict."""
    step = step_of(record)
    verdict = (record.text("verdict") or "").partition(" Run: ")[0]
    if step is None:
        return verdict
    measured = pace(1 / step.total)
    return f"{in_words(measured, record) if is_foreign(record) else measured}. {verdict}"


def of_trial(tuning: Tuning, trial: Mapping[str, Any]) -> str:
    """A change, what it brought beside what was predicted, and what became of it."""
    expected = "with it" if trial.get("left_out") else f"predicted {predicted(trial)}"
    words = trial["error"] or f"{times(trial['measured'])}, {expected}"
    return f"  {tuning.spelled(trial['overrides'])}: {words}: {fate(trial)}"


def print_tuning(console: Console, tuning: Tuning) -> None:
    """The trials, predicted beside measured; what they come to; the command to copy; what to know about it."""
    if tuning.trials:
        console.print(_table(tuning))
    console.print(Text(f"{total(tuning)} {ending(tuning)}", "bold"), soft_wrap=True)
    say(console, *notes(tuning))
    for line in lines(tuning):
        console.print(Text(line, "cyan"), soft_wrap=True)


def total(tuning: Tuning) -> str:
    """What all that was kept comes to."""
    proof = tuning.proof
    if not tuning.trials:
        return _untried(tuning)
    if not tuning.changes:
        which = "Too noisy to tell whether anything is" if undecided(tuning) else "Nothing that was tried is measurably"
        return f"{which} faster."
    if proof is None and tuning.status == "interrupted":
        return "Stopped before the last comparison, so nothing is recommended; the same command goes on."
    if proof is None or proof["ratio"] is None:
        return f"The gain is not proved ({(proof or {}).get('error') or 'not measured again'}): keep what you have."
    if proof["verdict"] == "faster":
        return f"{times(proof['ratio'])} as fast as what you gave, measured again at the end."
    shown = "is slower" if proof["verdict"] == "slower" else "is not measurably faster"
    return f"Measured again at the end, it {shown} ({times(proof['ratio'])}): keep what you have."


def undecided(tuning: Tuning) -> bool:
    """Whether no trial could tell anything."""
    return bool(tuning.trials) and all(fate(trial) == NOISY for trial in tuning.trials)


def _untried(tuning: Tuning) -> str:
    """What it means that there was no trial."""
    if tuning.ended != NOTHING:
        return "Nothing was tried."
    if not (over := ",".join(tuning.header["over"] or ())):
        return "There was nothing to try."
    key = f"tune.over=[{over}]" if tuning.header["script"] is None else f"--over {over}"
    return f"Nothing in {key} promises to help here."


def ending(tuning: Tuning) -> str:
    """Why it ended, and when."""
    why, budget = (tuning.ended or tuning.status).rstrip("."), float(tuning.header["budget"])
    sentence = f"{why[:1].upper()}{why[1:]} after {duration(tuning.seconds)}"
    if tuning.ended == NOTHING:
        sentence = f"Stopped after {duration(tuning.seconds)}: nothing else helped"
    if tuning.seconds > OVER * budget:
        sentence += f" instead of {duration(budget)}, because a comparison that has begun is finished"
    return " ".join((f"{sentence}.", disturbance(tuning))).strip()


def disturbance(tuning: Tuning) -> str:
    """That other processes took cores in the first look at what is searched; empty where they took few."""
    first = first_probe(tuning) or Record({})
    shared = [str(finding["title"]) for finding in first.items("findings") if finding["cause"] == "shared_machine"]
    return f"{shared[0]} meanwhile: search again when the machine is quiet." if shared else ""


def warning(tuning: Tuning) -> str:
    """That the recommended configuration trains otherwise, not only faster; empty where it does not."""
    if tuning.recommended != tuning.best:
        return ""
    fewer = [text for text in tuning.changes if key_of(text) in ("trainer.precision", "matmul_precision")]
    coarse = f"{tuning.spelled(fewer)} computes in another precision: compare the accuracy before you rely on it."
    seldom = [text for text in tuning.changes if DIMENSIONS.get(key_of(text)) in ON_REQUEST]
    less = f"{tuning.spelled(seldom)} shows less of a training: {GIVEN_UP}"
    first = first_probe(tuning)
    shared = first is not None and multiplies(first, tuning.changes)
    sentences = (_larger_updates(tuning), coarse * bool(fewer), less * bool(seldom), BY_WORKER * shared)
    return " ".join(text for text in sentences if text)


def _larger_updates(tuning: Tuning) -> str:
    changed = any(key_of(text) in (BATCH_SIZE, ACCUMULATE) for text in tuning.changes)
    updates = [trial["images"] for trial in tuning.trials if trial["kept"] and trial["images"]]
    if not updates or not changed:
        return ""
    now, then = updates[0][0], updates[-1][1]
    scaled = any(key_of(text).startswith("model.lr") for text in tuning.changes)
    rate = ", and the learning rate is scaled with them" if scaled else ""
    unit = "images" if tuning.header["script"] is None else "samples"
    return f"Each update sees {then} {unit} instead of {now}{rate}: compare the accuracy before you rely on it."


def notes(tuning: Tuning) -> list[str]:
    """What was kept that changes training, and what else the findings say."""
    advice = ["Also found, but not part of this search:", *(f"  {text}" for text in tuning.advice)]
    return [text for text in (warning(tuning), first_losses(tuning), *(advice if tuning.advice else ())) if text]


def first_losses(tuning: Tuning) -> str:
    """How far the losses of a script's first steps differ, where a change alters results; empty where none does."""
    proof = tuning.proof or {}
    if not any(key_of(text) in ALTERS for text in tuning.changes):
        return ""
    if not (losses := proof.get("losses")):
        why = OF_A_LOOP if (first_probe(tuning) or Record({})).setting("loop") else NO_LOSSES
        return why if tuning.header["script"] is not None and proof.get("ratio") else ""
    pairs = list(zip(losses["before"], losses["after"], strict=False))
    away = [abs(after - before) / max(abs(before), 1e-12) for before, after in pairs]
    ends = [
        f"from {each[0]:.4g} to {each[-1]:.4g} {how}" for each, how in zip(zip(*pairs, strict=True), SIDES, strict=True)
    ]
    return (
        f"From the same seed the loss goes {', '.join(ends)} ({counted(len(pairs), 'step')}; "
        f"{statistics.median(away):.1%} apart in the median, {max(away):.1%} at most)."
    )


def predicted(trial: Mapping[str, Any]) -> str:
    """The estimate: a ratio with its interval, the most that it can be, or ``-`` without one."""
    ratio = trial["predicted"]
    if ratio is None:
        return "-"
    return f"at most {ratio['high']:.2f} times" if trial["bounded"] else times(ratio)


def times(ratio: Interval | None) -> str:
    """A ratio with its interval: 1.42 times (1.31 to 1.55); of a wide one above 1 its lower end: (at least 2.10)."""
    if ratio is None:
        return ""
    middle, ends = f"{ratio['median']:.2f} times", interval(ratio["low"], ratio["high"], "{:.2f}".format)
    if _is_wide(ratio) and ratio["low"] > 1:
        ends = f"at least {ratio['low']:.2f}"
    return f"{middle} ({ends})" if ends else middle


def fate(trial: Mapping[str, Any]) -> str:
    """What became of a change."""
    if trial.get("left_out"):
        return "needed" if trial["kept"] else "not needed, left out"
    if trial["kept"]:
        return "kept" if trial["verdict"] == "faster" else "kept: faster in the last comparison"
    return NOISY if trial["measured"] and _is_wide(trial["measured"]) else str(trial["verdict"])


def _is_wide(ratio: Interval) -> bool:
    return WIDEST * (ratio["low"] or 0.0) < (ratio["high"] or 0.0)


def rows(tuning: Tuning) -> list[tuple[str, str, str, str, str]]:
    """Of each trial the change, and what stands below ``HEADS``."""
    return [
        (
            f"{'without ' if trial.get('left_out') else ''}{tuning.spelled(trial['overrides'])}",
            trial["why"],
            "" if trial.get("left_out") else predicted(trial),
            trial["error"] or f"{times(trial['measured'])}{' with it' if trial.get('left_out') else ''}",
            fate(trial),
        )
        for trial in tuning.trials
    ]


def _table(tuning: Tuning) -> Table:
    table = Table("", Column("change", overflow="fold", min_width=24), *HEADS, title="tried", title_justify="left")
    for trial, (change, why, promised, measured, end) in zip(tuning.trials, rows(tuning), strict=True):
        name = Text(change, "bold" if trial["kept"] else "")
        end_ = Text(end, COLOURS.get(trial["verdict"], "yellow"))
        table.add_row(str(trial["number"]), name, Text(why), promised, Text(measured), end_)
    return table
