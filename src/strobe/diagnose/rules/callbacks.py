"""What runs beside each step: callbacks, loggers, checkpoints within an epoch."""

import math
import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

from strobe.diagnose.finding import Finding
from strobe.diagnose.predict import Step, without
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
        rest = step.length * step.images - self.mean
        return None if self.each is None or rest <= 0 else _rounded(self.each * updates / (TARGET * rest))

    def often(self, every: int, updates: float) -> bool:
        """Whether it did something about once in so many updates."""
        expected = self.measured * updates / every
        return abs(self.calls - expected) <= max(1, expected / 4)


def callback(record: Record, step: Step) -> list[Finding]:
    """Each callback, or the module's own hooks, that takes a notable share of the step."""
    found = []
    for hook in _hooks(record, step):
        if hook.kind != "logger" and not _saves(record, hook):
            overrides, advice = _removal(record, hook)
            found.append(_finding("callback", hook, step, advice, overrides, saved=hook.mean))
    return found


def logging(record: Record, step: Step) -> list[Finding]:
    """A logger that takes a notable share of the step: log less often."""
    found = []
    for hook in _hooks(record, step):
        if hook.kind != "logger":
            continue
        updates = _updates(record)
        now, seldom = record.whole(LOG_EVERY), hook.seldom_enough(step, updates)
        most = [hook.measured / 10, record.number("batches_per_epoch") or math.inf]  # else a short run logs nothing
        seldom = min(seldom, math.floor(min(most) * updates)) if seldom else None
        overrides: tuple[str, ...] = ()
        if now and now > 0 and seldom and seldom > now and hook.each is not None and hook.often(now, updates):
            left = hook.each * updates / seldom
            saved, overrides = hook.mean - left, (f"{LOG_EVERY}={seldom}",)
            advice = f"Log every {seldom} {_unit(updates)}: {_remaining(hook, step, left)}."
        else:
            saved = hook.mean
            advice = "Log fewer figures a step, or without waiting for where they are written."
        found.append(_finding("logging", hook, step, advice, overrides, saved=saved))
    return found


def checkpoint(record: Record, step: Step) -> list[Finding]:
    """Checkpoints within an epoch that take a notable share of the step: save less often."""
    found = []
    for hook in _hooks(record, step):
        if not _saves(record, hook):
            continue
        updates = _updates(record)
        now, seldom = record.whole(SAVE_EVERY), hook.seldom_enough(step, updates)
        epoch = record.number("batches_per_epoch")
        overrides: tuple[str, ...] = ()
        if not now:
            saved = hook.mean
            advice = "Save less often, or to a faster disk."
        elif seldom is None or (epoch is not None and seldom >= epoch * updates) or hook.each is None:
            saved, overrides = hook.mean, (f"{SAVE_EVERY}=null",)
            advice = "Save after each epoch only."
        else:
            seldom = max(seldom, now)
            left = hook.each * updates / seldom
            saved, overrides = hook.mean - left, (f"{SAVE_EVERY}={seldom}",)
            advice = f"Save every {seldom} {_unit(updates)}: {_remaining(hook, step, left)}."
        saving = replace(hook, name="Saving checkpoints")
        found.append(_finding("checkpoint", saving, step, advice, overrides, saved=saved))
    return found


def _finding(cause: str, hook: _Hook, step: Step, advice: str, overrides: tuple[str, ...], *, saved: float) -> Finding:
    """The finding about a hook, of whose seconds in a mean step so many would be saved."""
    title = f"{hook.name} takes {percent(hook.mean / step.images / step.length)} of each step"
    return Finding(cause, title, str(hook), advice, overrides, without(step, pause=max(0.0, saved)))


def _hooks(record: Record, step: Step) -> list[_Hook]:
    """Those that take a notable share of the step."""
    measured = record.number("steps", "measured") or 0.0
    found = []
    for entry in record.items("callbacks"):
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            continue
        mean = as_number(entry.get("mean")) or 0.0
        longest, calls = as_number(entry.get("longest")) or mean, as_number(entry.get("calls")) or 0.0
        if mean >= NOTABLE * step.length * step.images:
            found.append(_Hook(entry["name"], str(entry.get("kind")), mean, longest, calls, measured))
    return found


def _saves(record: Record, hook: _Hook) -> bool:
    """Whether it is what ``checkpoint`` configures, and no callback of the user's own with such a name."""
    ours = re.fullmatch(r"(Checkpoints|ModelCheckpoint)( \d+)?", hook.name)
    return hook.kind != "logger" and ours is not None and hook.name not in _added(record)


def _updates(record: Record) -> float:
    """Updates in a measured step: Lightning counts its intervals of logging and saving in updates."""
    share = record.number("updates")
    return share if share and 0 < share <= 1 else 1.0


def _unit(updates: float) -> str:
    return "steps" if updates == 1 else "updates"


def _remaining(hook: _Hook, step: Step, left: float) -> str:
    """What it still takes of a step, in which it takes so many seconds."""
    return f"that takes {percent(left / (step.length * step.images - hook.mean + left))} of a step"


def _removal(record: Record, hook: _Hook) -> tuple[tuple[str, ...], str]:
    """The overrides that leave it out, none where the configuration has no key for that, and the advice."""
    key = _added(record).get(hook.name)
    if key is not None:
        return (f"~callbacks.{key}",), f"Leave {hook.name} out, or have it do its work less often."
    if "ProgressBar" in hook.name and record.has("trainer.enable_progress_bar"):
        return ("trainer.enable_progress_bar=false",), "Train without the progress bar."
    if _class(record.setting("profiler._target_")) == _base(hook.name):
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


def _base(name: str) -> str:
    return re.sub(r" \d+$", "", name)


def _rounded(steps: float) -> int:
    """Up to a round number: 10, 20, 50, 100 ..."""
    power = 10 ** max(0, math.floor(math.log10(steps))) if steps >= 1 else 1
    return next(power * digit for digit in (1, 2, 5, 10) if power * digit >= steps)
