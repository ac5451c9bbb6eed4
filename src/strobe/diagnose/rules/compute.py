"""Computing: batches too small, the optimizer, the memory layout, threads; and nothing to fix."""

import math
from collections.abc import Callable

from strobe.diagnose.candidates import OPTIMIZER_SHARE
from strobe.diagnose.finding import Finding, Speedup, duration, pace, percent
from strobe.diagnose.predict import WORTH, Step, step_of, with_model, without
from strobe.diagnose.record import Alternative, Record
from strobe.diagnose.symptoms import cores_of_a_rank

KNEE = 0.95  # of the best rate: beyond, a larger batch costs memory and gains little
TARGET = 0.05  # of the step, that an update may take once it is shared by several steps
MOST_ACCUMULATED = 8


def small_batch(record: Record) -> Finding | None:
    """Larger batches were measured to be faster per image; the smallest within 5% of the best of them is the knee."""
    step, now = step_of(record), record.whole("data.batch_size")
    if step is None or not now:
        return None
    larger = {size: entry for entry in _changing(record, "data.batch_size") if (size := _size(entry)) > now}
    faster = {size: entry for size, entry in larger.items() if _is_faster(entry, step)}
    if not faster:
        return None
    best = max(entry.rate.value for entry in faster.values())
    knee = min(size for size, entry in faster.items() if entry.rate.value >= KNEE * best)
    chosen = faster[knee]
    images = chosen.images or step.images * knee / now
    measured = ", ".join(f"{pace(entry.rate.value)} at {size}" for size, entry in sorted(larger.items()))
    own = f"{pace(step.model.value)} at {now}, " if step.model else ""
    return Finding(
        "small_batch",
        f"Batches of {now} are too small to keep the device busy",
        f"The model alone computes {own}{measured}.",
        f"Use batches of {knee}. That changes training, fewer and larger steps: model.lr_scaling=linear "
        f"model.lr_batch_size={now} scales the learning rate with the batch.",
        chosen.overrides,
        with_model(step, chosen.rate, images=images),
    )


def optimizer(record: Record) -> Finding | None:
    """The update takes a notable share of the step: one kernel for all of it, or fewer updates."""
    step = step_of(record)
    seconds = record.number("step_seconds", "optimizer") or 0.0
    share = 0.0 if step is None else seconds / step.images / step.length
    if step is None or share < OPTIMIZER_SHARE:
        return None
    evidence = f"The optimizer takes {duration(seconds)} of {duration(step.length * step.images)} a step."
    fused = [entry for entry in _changing(record, "model.fused") if _is_faster(entry, step)]
    if fused:
        rate = fused[0].rate
        overrides, predicted = fused[0].overrides, with_model(step, rate)
        evidence += f" With a fused one the model alone reaches {pace(rate.value)}."
        advice = "Let the optimizer update all weights in one kernel."
    else:
        now = record.whole("trainer.accumulate_grad_batches") or 1
        rest = step.length * step.images - seconds
        factor = min(MOST_ACCUMULATED, max(2, math.ceil(seconds / (TARGET * rest)))) if rest > 0 else MOST_ACCUMULATED
        known = record.has("trainer.accumulate_grad_batches")
        overrides = (f"trainer.accumulate_grad_batches={now * factor}",) if known else ()
        predicted = without(step, compute=seconds * (1 - 1 / factor))
        advice = (
            f"Update once in {now * factor} batches. That changes training as a batch {factor} times as large does: "
            "model.lr_scaling=linear scales the learning rate with it."
        )
    return Finding(
        "optimizer", f"The optimizer takes {percent(share)} of each step", evidence, advice, overrides, predicted
    )


def memory_layout(record: Record) -> Finding | None:
    """The other order of the weights' and images' dimensions was measured to be faster."""
    layouts = {"true": "channels last", "false": "channels first"}
    return _setting(
        record,
        "model.channels_last",
        "memory_layout",
        "The convolutions are faster in another memory layout",
        lambda value: f"Keep images and weights {layouts.get(value, 'in the other layout')}.",
    )


def threads(record: Record) -> Finding | None:
    """Another number of computing threads was measured to be faster; only fewer are, where cores are short."""
    count, own = record.count("threads"), cores_of_a_rank(record)
    title = f"{count} computing threads are too many" if count else "There are too many computing threads"
    title += f" for {own:g} usable cores" if own else ""
    return _setting(record, "threads", "threads", title, lambda value: f"Compute on {value} threads.")


def nothing(record: Record) -> Finding:
    """Nothing to fix, and why; it gains nothing, and so is listed only where no other finding is."""
    step = step_of(record)
    if step is None:
        evidence = "No step was measured."
    elif (efficiency := record.number("efficiency")) is not None and (limit := _limit(record)):
        evidence = (
            f"Training runs at {percent(efficiency)} of {limit}, and no change promises {percent(WORTH - 1)} more."
        )
    else:
        reason = record.text("ceilings", "reason")
        evidence = f"{percent(step.waiting)} of each step waits for data, and no other part stands out; "
        evidence += (
            f"the ceilings were not measured ({reason.rstrip('.')})." if reason else "the ceilings are not known."
        )
    advice = "To go faster takes faster hardware, or a smaller model." if step else "Train at least a few steps."
    return Finding("nothing", "Nothing to fix", evidence, advice, (), Speedup(1.0, 1.0, 1.0))


def _limit(record: Record) -> str | None:
    """The lowest ceiling, by which ``efficiency`` is measured."""
    names = {
        "loader": "what the loader alone reaches",
        "model": "what the model alone reaches",
        "transfer": "what copying to the device alone reaches",
        "joint": "what loader and model reach together on the cores that they share",
    }
    known = {name: rate for name in names if (rate := record.number("ceilings", name))}
    lowest = min(known, key=lambda name: known[name], default=None)
    return f"{names[lowest]} ({pace(known[lowest])})" if lowest else None


def _setting(record: Record, key: str, cause: str, title: str, advice: Callable[[str], str]) -> Finding | None:
    """The fastest other value of a key, if the model alone was measured to be faster with it."""
    step = step_of(record)
    if step is None or step.model is None:
        return None
    faster = [entry for entry in _changing(record, key) if _is_faster(entry, step)]
    if not faster:
        return None
    best = max(faster, key=lambda entry: entry.rate.value)
    evidence = (
        f"The model alone reaches {pace(best.rate.value)} with {best.overrides[0]}, {pace(step.model.value)} now."
    )
    return Finding(cause, title, evidence, advice(best.changes[key]), best.overrides, with_model(step, best.rate))


def _changing(record: Record, key: str) -> list[Alternative]:
    """Measured alternatives of the model that change this key alone."""
    return [entry for entry in record.alternatives("model") if entry.changes.keys() == {key}]


def _is_faster(entry: Alternative, step: Step) -> bool:
    """Beyond what noise explains: the two intervals do not overlap."""
    return step.model is not None and entry.rate.low > step.model.high


def _size(entry: Alternative) -> int:
    value = entry.changes["data.batch_size"]
    return int(value) if value.isdigit() else 0
