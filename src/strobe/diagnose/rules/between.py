"""Time outside the steady state: validation and checkpoints between steps, and the first step."""

import math

from strobe.diagnose.attribution import after_steps
from strobe.diagnose.candidates import seldomer
from strobe.diagnose.predict import NOTABLE, Step, with_model, without
from strobe.diagnose.restarts import RELOAD, restarts
from strobe.diagnose.rules import Finding
from strobe.diagnose.symptoms import EPOCHS, advice_on_hyperparameters, all_steps, of_an_epoch, start_share
from strobe.present.format import counted, duration, percent
from strobe.records.run import Figure, Record

FAR = 4  # times the size of validation's batches: those of training are far larger
SAVES = "checkpoint.every_n_epochs"


def validation(record: Record, step: Step) -> Finding | None:
    """Validation takes a notable share of training: validate less often."""
    if (lost := _lost(record, "validation", step)) is None:
        return None
    seconds, share, factor = lost
    overrides, left, advice = seldomer(record, factor)
    size, trained = record.whole("validation.batch_size"), record.count("batch_size")
    if size and trained and trained >= FAR * size:
        told = f"Its batches have {counted(size, 'sample')}, those of training {trained}"
        advice = f"{told}: use larger ones, DataLoader(..., batch_size={trained}). Or: {advice}"
    return Finding(
        "validation",
        f"Validation takes {percent(share)} of training",
        f"Validation costs {duration(seconds)} beside each {duration(step.seconds)} step.",
        advice,
        without(step, between=seconds * (1 - left)),
        overrides,
    )


def epoch_checkpoint(record: Record, step: Step) -> Finding | None:
    """Checkpoints at the ends of epochs take a notable share of training: save every few epochs."""
    if (lost := _lost(record, "checkpoints", step)) is None:
        return None
    seconds, share, factor = lost
    now, most = record.whole(SAVES), record.whole("trainer.max_epochs") or -1
    if 0 < most <= max(1, now or 1) and record.number("ceilings", "between", "checkpoints") is None:
        return None  # they are saved once
    known = now is not None and now > 0
    now, validated = max(1, now or 1), max(1, record.whole(EPOCHS) or 1)
    every = math.ceil(now * min(max(2.0, factor), 1e6) / validated) * validated
    every = min(every, most) if most > 0 else every
    left = _saves_an_epoch(every, validated) / _saves_an_epoch(now, validated)
    return Finding(
        "epoch_checkpoint",
        f"Saving checkpoints takes {percent(share)} of training",
        f"Saving costs {duration(seconds)} beside each {duration(step.seconds)} step.",
        (
            f"Save every {every} epochs, and at the end; best.ckpt is then chosen from these epochs only."
            if known
            else "Save less often, or to a faster disk."
        )
        + advice_on_hyperparameters(record),
        without(step, between=seconds * (1 - left if known else 1)),
        (f"{SAVES}={every}",) if known else (),
    )


def between(record: Record, step: Step) -> list[Finding]:
    """Hooks at the starts and ends of epochs, by owner, and whatever else runs there."""
    findings, anew, made_anew = [], restarts(record, step), ""
    if every := record.whole(RELOAD):
        made_anew = f"Make the loaders once, not with reload_dataloaders_every_n_epochs={every}: each time "
        made_anew += "train_dataloader runs, with all that it prepares."
    for name, each in after_steps(record).items():
        seconds = (each - (0.0 if name else anew.between)) * of_an_epoch(record, "between")
        if (share := seconds / step.images / step.total) >= NOTABLE:
            whole = duration(each * all_steps(record))
            findings.append(
                Finding(
                    "between",
                    f"{name or 'Work between epochs'} takes {percent(share)} of training",
                    f"It takes {whole} in all, or {duration(seconds)} per {duration(step.seconds)} step.",
                    f"Make {name} cheaper, or run it less often."
                    if name
                    else made_anew or "Look at what runs when an epoch starts or ends: new samplers, metrics, hooks.",
                    without(step, between=seconds),
                    subject=name,
                )
            )
    return findings


def first_step(record: Record, step: Step) -> Finding | None:
    """Compiling costs more time than it saves in such a short run.

    Other speed-ups are about the steady state, without the first step. This one is about all steps of the run, so it
    needs a measured rate without compiling. Other long first steps are only mentioned in the verdict, because nothing
    can be changed.
    """
    share = start_share(record)
    if share is None or share < NOTABLE or record.setting("model.compile") is not True:
        return None
    if (plain := record.alternative("model", "model.compile", "false")) is None:
        return None
    steady = with_model(step, plain.rate)
    first, usual = record.amount("first_step_seconds"), step.seconds
    median, low, high = (ratio / (1 - share) for ratio in (steady.median, steady.low, steady.high))
    predicted = Figure(median, low, high, steady.level)
    return Finding(
        "first_step",
        f"Compiling takes {percent(share)} of the run",
        f"The first step takes {duration(first)}, others {duration(usual)}; there are {all_steps(record):,.0f} steps.",
        "Do not compile for a run this short; it may pay off in a longer one.",
        predicted,
        plain.overrides,
    )


def _saves_an_epoch(every: int, validated: int) -> float:
    """How often an epoch saves last.ckpt, and best.ckpt, which is only considered after a validation."""
    return 1 / every + 1 / math.lcm(every, validated)


def _lost(record: Record, what: str, step: Step) -> tuple[float, float, float] | None:
    """For work between steps: seconds per step, share of training, and how much less often to do it; None if short."""
    seconds = record.amount("between_seconds", what) * of_an_epoch(record, what)
    share = seconds / step.images / step.total
    rest = step.total * step.images - seconds
    factor = math.ceil(seconds * (1 - NOTABLE) / (NOTABLE * rest)) if rest > 0 else math.inf
    return None if share < NOTABLE else (seconds, share, factor)
