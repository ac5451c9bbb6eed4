"""Computing: batches too small, the optimizer, the memory layout, threads."""

import math
from collections.abc import Callable
from dataclasses import asdict, replace

from strobe.callbacks.columns import GPU_CHECK
from strobe.diagnose.attribution import (
    OPTIMIZER_SHARE,
    SLEEPING,
    around_update,
    cores_to_compute,
    seconds_of,
)
from strobe.diagnose.cores import IDLE, taken
from strobe.diagnose.looks import recomputed, share_of
from strobe.diagnose.predict import NOTABLE, Step, faster, idle_of_device, up_to, with_model, without
from strobe.diagnose.rules import Finding, Remedy
from strobe.diagnose.symptoms import (
    ACCUMULATE,
    BATCH_SIZE,
    PREPARING,
    accumulated,
    cores_of_a_rank,
    scaling,
    spent_in,
    tried,
    without_threads,
)
from strobe.present.format import cores, counted, duration, estimate, pace, percent, rate
from strobe.records.run import Alternative, Figure, Record

KNEE = 0.95  # of the best rate: a still larger batch costs memory and gains little
TARGET = 0.05  # of the step: what an update may take once several steps share it
MOST_ACCUMULATED = 8
CHECKING = 0.25  # of the update: so much of it is worth a sentence
SHORT, LOOP = 0.01, 0.1  # seconds of a short step; the share of it from which on the Trainer's own loop shows
MOST_ROWS = 0.5  # of the weights in embeddings: most of an update is then of rows that got no gradient


def small_batch(record: Record, step: Step) -> Finding | None:
    """Larger batches were measured to be faster per image.

    The smallest one within 5% of the best is proposed, or if its gain is not certain, a larger one whose gain is. Where
    gradients are accumulated, accumulation is reduced first, so that an update keeps its number of images.
    """
    if record.text("script") is not None:
        return _short_steps(record, step)
    now = record.whole("data.batch_size")
    if not now or now < 1:
        return None
    larger = {_size(one): one for one in record.alternatives("model") if _size(one) > now}
    quicker = {size: entry for entry in faster(record, step, BATCH_SIZE) if (size := _size(entry)) > now}
    if not quicker:
        return None
    best = max((entry.rate for entry in quicker.values()), key=lambda rate: rate.median)
    # The smallest that is not shown to be slower: beyond it lies noise.
    knee = min(size for size, entry in quicker.items() if entry.rate.high >= KNEE * best.low)
    measured = ", ".join(
        f"{estimate(asdict(entry.rate), rate)} images/s at {size}" for size, entry in sorted(larger.items())
    )
    own = f"{pace(step.model.median)} at {now}, " if step.model else ""
    findings = [
        Finding(
            "small_batch",
            _too_small(now, record, step),
            f"The model alone reaches {own}{measured}.",
            *_in_batches_of(size, now, entry, record, step),
        )
        for size, entry in sorted(quicker.items())
        if size >= knee
    ]
    sure = [one for one in findings if one.predicted_speedup.low > 1]
    first, *others = sure or findings[:1]
    return replace(first, remedies=tuple(Remedy(one.advice, one.overrides, one.predicted_speedup) for one in others))


def _too_small(now: int, record: Record, step: Step) -> str:
    """The title: what a batch costs whatever its size, and whether the cores, or a GPU, are idle meanwhile.

    Busy cores may still wait for each other, as torch's threads do in short operations, so they prove nothing.
    """
    fixed = seconds_of("small_batch", record, step)
    title = f"Batches of {now} compute fewer images per second than larger ones"
    if record.on_cpu:
        used = [record.number("cores_used", name) for name in ("forward", "backward")]
        known = [one for one in used if one is not None]
        idle = bool(known) and max(known) < (1 - IDLE) * cores_to_compute(record)
    else:
        idle = idle_of_device(record) >= NOTABLE * step.seconds
    if idle and fixed:
        title = f"Batches of {now} are too small to keep the {'cores' if step.cores else 'GPU'} busy"
    return f"{title}: each has a fixed cost of {duration(fixed)}" if fixed else title


def _in_batches_of(
    size: int, now: int, entry: Alternative, record: Record, step: Step
) -> tuple[str, Figure, tuple[str, ...]]:
    """What to do for batches of this size, the gain, and with which overrides."""
    summed = accumulated(record)
    fewer = math.ceil(summed * now / size)
    how = f"Use batches of {size}"
    if fewer < summed:
        how += f" and accumulate the gradients of {fewer}" if fewer > 1 else " without accumulating gradients"
    meaning = "An update keeps its number of images, so the learning rate stays as it is."
    if fewer * size != summed * now:
        meaning = "This changes training: updates are fewer and larger" + _scaling(record)
    # The update was measured with all of the accumulation.
    update = max(0.0, record.seconds("optimizer")) / step.images
    then = _slowed(entry.rate, update * (now / size) * (summed / fewer - 1))
    ratio, kept = entry.ratio, then.median / entry.rate.median
    if ratio is not None:
        ratio = Figure(ratio.median * kept, ratio.low * kept, ratio.high * kept)
    return (
        f"{how}. {meaning}",
        with_model(step, then, images=entry.images or step.images * size / now, ratio=ratio),
        entry.overrides + ((f"{ACCUMULATE}={fewer}",) if fewer < summed else ()),
    )


def optimizer(record: Record, step: Step) -> Finding | None:
    """The update takes a notable share of the step: fuse it into one kernel, or update less often.

    Not where it mostly waits for a core that others use, unless fusing was measured: they are the cause then.
    """
    seconds = spent_in(record, step, "optimizer")
    share = seconds / step.images / step.length
    if share < OPTIMIZER_SHARE:
        return None
    evidence = f"The update costs {duration(seconds)} per {duration(step.seconds)} step."
    used = record.number("cores_used", "optimizer")
    fused = faster(record, step, "model.fused")
    if used is not None and used < SLEEPING and record.on_cpu:
        if (others := taken(record) >= (1 - used) / 2) and not fused:
            return None
        evidence += f" It uses only {cores(used)}: mostly it waits for {'a core' if others else 'something'}."
    if fused:
        overrides, predicted = fused[0].overrides, with_model(step, fused[0].rate, ratio=fused[0].ratio)
        evidence += f" With a fused optimizer the model alone reaches {pace(fused[0].rate.median)}."
        advice = "Use the fused optimizer, which updates all weights in one kernel."
    elif record.setting("optimizer.searches") is True:
        overrides, predicted = (), up_to(without(step, compute=seconds))
        advice = "L-BFGS computes the loss several times for an update: a smaller max_iter or history_size costs less."
    else:
        now = accumulated(record)
        rest = step.seconds - seconds
        factor = min(MOST_ACCUMULATED, max(2, math.ceil(seconds / (TARGET * rest)))) if rest > 0 else MOST_ACCUMULATED
        overrides = (f"{ACCUMULATE}={now * factor}",) if record.has(ACCUMULATE) else ()
        predicted = without(step, compute=seconds * (1 - 1 / factor))
        advice = (
            f"Update once every {now * factor} batches. This changes training like a batch {factor} times as large"
            + _scaling(record)
        )
    if not fused and (name := record.setting("optimizer.unfused")):
        advice = f"Try its fused update, which computes the same: {name}(..., fused=True) (not measured). Or: {advice}"
    if (checking := share_of(record, "optimizer", GPU_CHECK)) >= CHECKING:
        evidence += f" {percent(checking)} of that looks for a GPU: torch does so before each update."
        advice = f"Set the environment's CUDA_VISIBLE_DEVICES to nothing: then torch looks for no GPU. Or: {advice}"
    rows = record.amount("embedded")
    if sparse := rows >= MOST_ROWS:  # whose gradients of zeros the backward pass makes, too
        advice = (
            f"{percent(rows)} of the weights are rows of embeddings, and a step uses only those of its batch: "
            f"nn.Embedding(..., sparse=True) with an optimizer such as SparseAdam updates no others. Or: {advice}"
        )
    title = f"The optimizer takes {percent(share)} of each step"
    return Finding("optimizer", title, evidence, advice, predicted, overrides, partial=sparse)


def recomputing(record: Record, step: Step) -> Finding | None:
    """The backward pass computes activations again, which checkpointing them did not keep."""
    seconds = recomputed(record)
    if seconds < NOTABLE * step.seconds:
        return None
    return Finding(
        "recomputing",
        f"{percent(seconds / step.seconds)} of each step computes activations again",
        "torch.utils.checkpoint does not keep them after the forward pass; computing them again takes "
        f"{duration(seconds)} of each {duration(step.seconds)} step.",
        "Checkpoint fewer layers, or none, if the memory suffices: leave out torch.utils.checkpoint, or a model's "
        "gradient checkpointing.",
        without(step, compute=seconds),
    )


def memory_layout(record: Record, step: Step) -> Finding | None:
    """The other memory layout of weights and images was measured to be faster."""
    layouts = {"true": "channels last", "false": "channels first"}
    return _setting(
        record,
        step,
        "model.channels_last",
        cause="memory_layout",
        title="The convolutions are faster in another memory layout",
        advice=lambda value: f"Keep images and weights {layouts.get(value, 'in the other layout')}.",
    )


def threads(record: Record, step: Step) -> Finding | None:
    """Another number of threads was measured to be faster, or there are more threads than cores."""
    count, own = record.count("threads"), cores_of_a_rank(record)
    title = "Fewer computing threads are faster"
    if count and own and count < math.floor(own):
        title = f"Training uses {counted(count, 'thread')} on {own:g} usable cores"
    if count and own and count > own:
        rank = " of each rank" if (record.count("devices") or 1) > 1 else ""
        title = f"{count} computing threads are too many for {own:g} usable core{'' if own == 1 else 's'}{rank}"
    found = _setting(
        record, step, "threads", cause="threads", title=title, advice=lambda value: f"Compute on {_threads(value)}."
    )
    return found or _too_many_threads(record, step, title) or _too_few_threads(record, step, title)


def _too_many_threads(record: Record, step: Step, title: str) -> Finding | None:
    """More threads than cores, with nothing measured: the gain lies between none and the excess threads per core."""
    count, own = record.count("threads"), cores_of_a_rank(record)
    if tried(record, "threads") or step.cores is None or not count or not own or not record.has("threads"):
        return None
    fitting = max(1, math.floor(own))
    if fitting >= count:
        return None
    predicted = up_to(without(step, compute=(step.compute - step.per_step) * step.images * (1 - fitting / count)))
    return Finding(
        "threads",
        title,
        f"{count / fitting:.3g} threads compete for each core; what that costs was not measured.",
        f"Compute on {_threads(str(fitting))}.",
        predicted,
        (f"threads={fitting}",),
        lost=1 - 1 / predicted.median,
    )


def _too_few_threads(record: Record, step: Step, title: str) -> Finding | None:
    """Fewer threads than cores, with nothing measured: at best operations gain all cores."""
    if not without_threads(record) or (seconds := seconds_of("threads", record, step)) < NOTABLE * step.seconds:
        return None
    idle = percent(record.amount("machine", "idle"))
    limits = "threads=" if record.text("script") is None else "torch.set_num_threads()"
    return Finding(
        "threads",
        title,
        f"{idle} of the cores' time was idle. Unless told otherwise, torch has a thread for each core.",
        f"Leave out {limits} and OMP_NUM_THREADS. If they are meant for loader workers: each has one "
        "thread anyway, and a call in the data set's __init__ holds for training, too.",
        up_to(without(step, compute=seconds)),
    )


def _short_steps(record: Record, step: Step) -> Finding | None:
    """A script's steps on a CPU are so short that the Trainer's own work matters, which is the same for any batch size.

    That is ``other``, the time outside all phases, without a loop's own code (``loop_code``); forward, backward and
    update have such a fixed cost too.
    """
    names = (*PREPARING, "forward", "backward", "optimizer", "other")
    spent = {name: record.seconds(name) for name in names}
    spent["other"] -= around_update(record, step)
    seconds = sum(spent.values())
    if not record.on_cpu or not spent["backward"]:  # of a loop without a Trainer it is not known
        return None
    if seconds >= SHORT or spent["other"] < LOOP * seconds:
        return None
    most = without(step, compute=seconds / 2)
    return Finding(
        "small_batch",
        f"Steps are short: {duration(seconds)} of computing",
        f"The Trainer's loop takes {percent(spent['other'] / seconds)} of that, whatever a batch's size; the forward "
        "pass, the backward pass and the update have such a fixed cost, too.",
        "Use larger batches: of twice the size, they halve this time per sample at best. This changes training: "
        "updates are fewer and larger.",
        up_to(most),
        lost=1 - 1 / most.median,
    )


def _setting(
    record: Record, step: Step, key: str, *, cause: str, title: str, advice: Callable[[str], str]
) -> Finding | None:
    """The fastest other value of a key, if the model alone measured faster with it."""
    quicker = faster(record, step, key)
    if step.model is None or not quicker:
        return None
    best = max(quicker, key=lambda entry: entry.rate.median)
    evidence = (
        f"The model alone reaches {pace(best.rate.median)} with {best.overrides[0]}, {pace(step.model.median)} now."
    )
    return Finding(
        cause, title, evidence, advice(best.changes[key]), with_model(step, best.rate, ratio=best.ratio), best.overrides
    )


def _threads(count: str) -> str:
    return counted(int(count), "thread") if count.isdigit() else f"{count} threads"


def _scaling(record: Record) -> str:
    """The end of a sentence: how to scale the learning rate with the images of an update."""
    changes = " ".join(scaling(record))
    return f": {changes} scales the learning rate with it." if changes else "."


def _slowed(rate: Figure, seconds: float) -> Figure:
    """A rate if each image takes ``seconds`` more."""
    return Figure(*(1 / (1 / value + seconds) for value in (rate.median, rate.low, rate.high)))


def _size(entry: Alternative) -> int:
    """Images of a batch, where the alternative changes nothing else; else 0."""
    value = entry.changes.get(BATCH_SIZE, "") if len(entry.changes) == 1 else ""
    return int(value) if value.isdigit() else 0
