"""What runs in each step beside training: callbacks, loggers, checkpoints within an epoch."""

import math

from strobe.diagnose.attribution import seconds_of
from strobe.diagnose.hooks import Hook, added_callbacks, class_of, hooks
from strobe.diagnose.predict import Step, without
from strobe.diagnose.rules import Finding
from strobe.diagnose.symptoms import advice_on_hyperparameters
from strobe.present.format import duration, percent
from strobe.records.run import Record

NOTABLE = 0.02  # of the step, for a single hook
TARGET = 0.05  # of the step: what logging and checkpoints may take
LOG_EVERY = "trainer.log_every_n_steps"
SAVE_EVERY = "checkpoint.every_n_steps"


def callback(record: Record, step: Step) -> list[Finding]:
    """Each callback, or the module's own hooks, if it takes a notable share of the step.

    Not ``Strobe`` itself, which is there only to find out what is slow.
    """
    findings = []
    for hook in (one for one in _notable(record, step, "callback") if one.name != "Strobe"):
        overrides, advice = _removal(record, hook)
        findings.append(_finding(record, hook, step, hook.mean, overrides=overrides, advice=advice))
    return findings


def logging(record: Record, step: Step) -> list[Finding]:
    """A logger that takes a notable share of the step: log less often."""
    findings, updates = [], _updates(record)
    for hook in _notable(record, step, "logging"):
        now, seldom = record.whole(LOG_EVERY), _seldom_enough(record, hook, step)
        if seldom:  # else a short run logs nothing
            most = min(record.amount("steps", "measured") / 10, record.number("batches_per_epoch") or math.inf)
            seldom = min(seldom, math.floor(most * updates))
        saved, overrides = hook.mean, tuple[str, ...]()
        advice = "Log fewer values per step, or write them in the background."
        if now and now > 0 and seldom and seldom > now and _does(record, hook, once_in=now):
            overrides, (saved, often) = (f"{LOG_EVERY}={seldom}",), _less_often(record, hook, step, seldom)
            advice = f"Log {often}"
        findings.append(_finding(record, hook, step, saved, overrides=overrides, advice=advice))
    return findings


def checkpoint(record: Record, step: Step) -> list[Finding]:
    """Checkpoints within an epoch that take a notable share of the step: save less often."""
    findings, updates = [], _updates(record)
    epoch, added = record.number("batches_per_epoch"), added_callbacks(record)
    for hook in _notable(record, step, "checkpoint"):
        keys = [f"callbacks.{added[name]}.every_n_train_steps" for name in hook.names if name in added]
        key = keys[0] if keys else SAVE_EVERY
        now = record.whole(key)
        seldom, saved, overrides = _seldom_enough(record, hook, step), hook.mean, tuple[str, ...]()
        if not now:
            advice = "Save less often, or to a faster disk."
        elif seldom is None or (epoch is not None and seldom >= epoch * updates):
            overrides, advice = (f"{key}=null",), "Save after each epoch only."
        else:
            every = max(seldom, now)
            overrides, (saved, often) = (f"{key}={every}",), _less_often(record, hook, step, every)
            advice = f"Save {often}"
        advice += advice_on_hyperparameters(record)
        findings.append(_finding(record, hook, step, saved, overrides=overrides, advice=advice))
    return findings


def _less_often(record: Record, hook: Hook, step: Step, every: int) -> tuple[float, str]:
    """Seconds per mean step saved by doing it every N updates, and the advice in words."""
    updates = _updates(record)
    left = (_each(record, hook) or 0.0) * updates / every
    share = percent(left / (step.seconds - hook.mean + left))
    return hook.mean - left, f"every {every} {'steps' if updates == 1 else 'updates'}: it then takes {share} of a step."


def _finding(
    record: Record, hook: Hook, step: Step, saved: float, *, overrides: tuple[str, ...] = (), advice: str
) -> Finding:
    """The finding about a hook; ``saved`` is in seconds of a mean step."""
    name = "Saving checkpoints" if hook.cause == "checkpoint" else hook.name
    who = f"Hooks of {name} itself take" if hook.kind == "module" else f"{name} takes"
    title = f"{who} {percent(_cost(record, hook, step) / step.seconds)} of each step"
    measured = record.amount("steps", "measured")
    often = f"it takes notable time in {hook.calls:,.0f} of {measured:,.0f} steps, " if hook.calls and measured else ""
    several = f" ({len(hook.names)} instances)" if len(hook.names) > 1 else ""
    evidence = f"{name} costs {duration(hook.mean)} per mean step{several}: {often}up to {duration(hook.longest)}."
    if sum(one.mean for one in hooks(record)) > step.spare:
        evidence += f" The GPU works meanwhile; it idles for {duration(step.spare)} of each step."
    predicted = without(step, pause=max(0.0, saved))
    return Finding(hook.cause, title, evidence, advice, predicted, overrides, subject=hook.name)


def _notable(record: Record, step: Step, cause: str) -> list[Hook]:
    """The hooks of this cause that cost a notable share of the step."""
    least = NOTABLE * step.seconds
    return [hook for hook in hooks(record) if hook.cause == cause and _cost(record, hook, step) >= least]


def _cost(record: Record, hook: Hook, step: Step) -> float:
    """Seconds of a step: on a GPU, where hooks may wait for what was queued before, its part of those that are lost."""
    return hook.mean if math.isinf(step.spare) else seconds_of(hook.cause, record, step, subject=hook.name)


def _each(record: Record, hook: Hook) -> float | None:
    """Seconds per call."""
    measured = record.amount("steps", "measured")
    return hook.mean * measured / hook.calls if hook.calls and measured else None


def _seldom_enough(record: Record, hook: Hook, step: Step) -> int | None:
    """The number of updates between calls that makes it a twentieth of the rest of the step."""
    rest, each = step.seconds - hook.mean, _each(record, hook)
    return None if each is None or rest <= 0 else _rounded(each * _updates(record) / (TARGET * rest))


def _does(record: Record, hook: Hook, *, once_in: int) -> bool:
    """Whether it ran about once in this many updates."""
    expected = record.amount("steps", "measured") * _updates(record) / once_in
    return abs(hook.calls - expected) <= max(1, expected / 4)


def _updates(record: Record) -> float:
    """Updates per measured step; Lightning counts intervals of logging and saving in updates."""
    share = record.number("updates")
    return share if share and 0 < share <= 1 else 1.0


def _removal(record: Record, hook: Hook) -> tuple[tuple[str, ...], str]:
    """The overrides that remove it (none if the configuration has no key for that), and the advice."""
    added = added_callbacks(record)
    if all(name in added for name in hook.names):
        keys = tuple(f"~callbacks.{added[name]}" for name in hook.names)
        return keys, f"Remove {hook.name}, or run it less often."
    if "ProgressBar" in hook.name and record.has("trainer.enable_progress_bar"):
        return ("trainer.enable_progress_bar=false",), "Train without the progress bar."
    if class_of(record.setting("profiler._target_")) == hook.name:
        return ("profiler=none",), "Train without a profiler."
    if hook.kind == "module":
        return (), f"Make the hooks of {hook.name} cheaper, or run them less often."
    if hook.kind == "metric":
        return (), f"Update {hook.name} every tenth step and compute it once an epoch, or use it in validation only."
    name = hook.name[0].lower() + hook.name[1:] if " " in hook.name else hook.name  # Gradient clipping is no class
    name = f"the {name}" if name.endswith("scheduler") else name
    return (), f"Make {name} cheaper, or run it less often."


def _rounded(steps: float) -> int:
    """Up to a round number: 10, 20, 50, 100 ..."""
    power = 10 ** max(0, math.floor(math.log10(steps))) if steps >= 1 else 1
    return next(power * digit for digit in (1, 2, 5, 10) if power * digit >= steps)
