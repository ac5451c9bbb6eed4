"""What runs beside each step: callbacks, loggers, checkpoints within an epoch."""

import math
import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

from strobe.diagnose.predict import Step, without
from strobe.diagnose.rules import Finding
from strobe.present.format import duration, percent
from strobe.records.run import Record, as_number

NOTABLE = 0.02  # of the step, for one of them
TARGET = 0.05  # of the step, that logging and checkpoints may take
LOG_EVERY = "trainer.log_every_n_steps"
SAVE_EVERY = "checkpoint.every_n_steps"


@dataclass(frozen=True)
class _Hook:
    """One callback, logger or module: seconds of a mean step, of its longest one, steps in which it did something."""

    name: str
    kind: str
    mean: float
    longest: float
    calls: float
    measured: float

    def __str__(self) -> str:
        often = f"in {self.calls:,.0f} of {self.measured:,.0f} steps, " if self.calls and self.measured else ""
        return f"{self.name} takes {duration(self.mean)} of a mean step, {often}{duration(self.longest)} at most."

    @property
    def each(self) -> float | None:
        """Seconds each time that it does something."""
        return self.mean * self.measured / self.calls if self.calls and self.measured else None

    def seldom_enough(self, step: Step, updates: float) -> int | None:
        """In every how many updates it may do something, to take a twentieth of the rest of the step."""
        rest = step.seconds - self.mean
        return None if self.each is None or rest <= 0 else _rounded(self.each * updates / (TARGET * rest))

    def often(self, every: int, updates: float) -> bool:
        """Whether it did something about once in so many updates."""
        expected = self.measured * updates / every
        return abs(self.calls - expected) <= max(1, expected / 4)


def callback(record: Record, step: Step) -> list[Finding]:
    """Each callback, or the module's own hooks, that takes a notable share of the step."""
    found = []
    for hook in _hooks(record, step, "callback"):
        overrides, advice = _removal(record, hook)
        found.append(_finding("callback", hook, step, hook.mean, overrides=overrides, advice=advice))
    return found


def logging(record: Record, step: Step) -> list[Finding]:
    """A logger that takes a notable share of the step: log less often."""
    found, updates = [], _updates(record)
    for hook in _hooks(record, step, "logging"):
        now, seldom = record.whole(LOG_EVERY), hook.seldom_enough(step, updates)
        most = [hook.measured / 10, record.number("batches_per_epoch") or math.inf]  # else a short run logs nothing
        seldom = min(seldom, math.floor(min(most) * updates)) if seldom else None
        saved, overrides = hook.mean, tuple[str, ...]()
        advice = "Log fewer figures a step, or without waiting for where they are written."
        if now and now > 0 and seldom and seldom > now and hook.often(now, updates):
            overrides, (saved, often) = (f"{LOG_EVERY}={seldom}",), _less_often(hook, step, updates, seldom)
            advice = f"Log {often}"
        found.append(_finding("logging", hook, step, saved, overrides=overrides, advice=advice))
    return found


def checkpoint(record: Record, step: Step) -> list[Finding]:
    """Checkpoints within an epoch that take a notable share of the step: save less often."""
    found, updates = [], _updates(record)
    now, epoch = record.whole(SAVE_EVERY), record.number("batches_per_epoch")
    for hook in _hooks(record, step, "checkpoint"):
        seldom, saved, overrides = hook.seldom_enough(step, updates), hook.mean, tuple[str, ...]()
        if not now:
            advice = "Save less often, or to a faster disk."
        elif seldom is None or (epoch is not None and seldom >= epoch * updates):
            overrides, advice = (f"{SAVE_EVERY}=null",), "Save after each epoch only."
        else:
            every = max(seldom, now)
            overrides, (saved, often) = (f"{SAVE_EVERY}={every}",), _less_often(hook, step, updates, every)
            advice = f"Save {often}"
        saving = replace(hook, name="Saving checkpoints")
        found.append(_finding("checkpoint", saving, step, saved, overrides=overrides, advice=advice))
    return found


def _less_often(hook: _Hook, step: Step, updates: float, every: int) -> tuple[float, str]:
    """What doing it once in so many updates saves of a mean step, in seconds, and how the advice says so."""
    left = (hook.each or 0.0) * updates / every
    share = percent(left / (step.seconds - hook.mean + left))
    return hook.mean - left, f"every {every} {'steps' if updates == 1 else 'updates'}: that takes {share} of a step."


def _finding(
    cause: str, hook: _Hook, step: Step, saved: float, *, overrides: tuple[str, ...] = (), advice: str
) -> Finding:
    """The finding about a hook, of whose seconds in a mean step so many would be saved."""
    title = f"{hook.name} takes {percent(hook.mean / step.seconds)} of each step"
    return Finding(cause, title, str(hook), advice, overrides, without(step, pause=max(0.0, saved)))


def _hooks(record: Record, step: Step, cause: str) -> list[_Hook]:
    """Those that take a notable share of the step, and of which the rule of this cause tells."""
    measured, added = record.number("steps", "measured") or 0.0, _added(record)
    found = []
    for entry in record.items("callbacks"):
        if not isinstance(entry, dict) or not isinstance(name := entry.get("name"), str):
            continue
        # What ``checkpoint`` configures, and no callback of the user's own with such a name.
        saves = re.fullmatch(r"(Checkpoints|ModelCheckpoint)( \d+)?", name) and name not in added
        kind, mean = str(entry.get("kind")), as_number(entry.get("mean")) or 0.0
        longest, calls = as_number(entry.get("longest")) or mean, as_number(entry.get("calls")) or 0.0
        told_as = "logging" if kind == "logger" else "checkpoint" if saves else "callback"
        if told_as == cause and mean >= NOTABLE * step.seconds:
            found.append(_Hook(name, kind, mean, longest, calls, measured))
    return found


def _updates(record: Record) -> float:
    """Updates in a measured step: Lightning counts its intervals of logging and saving in updates."""
    share = record.number("updates")
    return share if share and 0 < share <= 1 else 1.0


def _removal(record: Record, hook: _Hook) -> tuple[tuple[str, ...], str]:
    """The overrides that leave it out, none where the configuration has no key for that, and the advice."""
    key = _added(record).get(hook.name)
    if key is not None:
        return (f"~callbacks.{key}",), f"Leave {hook.name} out, or have it do its work less often."
    if "ProgressBar" in hook.name and record.has("trainer.enable_progress_bar"):
        return ("trainer.enable_progress_bar=false",), "Train without the progress bar."
    if _class(record.setting("profiler._target_")) == re.sub(r" \d+$", "", hook.name):
        return ("profiler=none",), "Train without a profiler."
    if hook.kind == "module":
        return (), f"Make the hooks of {hook.name} cheaper, or have them do their work less often."
    return (), f"Make {hook.name} cheaper, or have it do its work less often."


def _added(record: Record) -> dict[str, str]:
    """Keys below ``callbacks`` by the names that the record has for them: the class, from the second on numbered."""
    names: dict[str, str] = {}
    seen: Counter[str] = Counter()
    added = record.setting("callbacks")
    for key, node in added.items() if isinstance(added, dict) else ():
        name = _class(node.get("_target_")) if isinstance(node, dict) else ""
        seen[name] += 1
        names[name if seen[name] == 1 else f"{name} {seen[name]}"] = str(key)
    return names


def _class(target: Any) -> str:
    return str(target).rpartition(".")[2]


def _rounded(steps: float) -> int:
    """Up to a round number: 10, 20, 50, 100 ..."""
    power = 10 ** max(0, math.floor(math.log10(steps))) if steps >= 1 else 1
    return next(power * digit for digit in (1, 2, 5, 10) if power * digit >= steps)
