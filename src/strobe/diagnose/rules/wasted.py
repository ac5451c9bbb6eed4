"""Computing that a step could leave out: unused results, the same again, slow operands, enlarged pixels, padding."""

from collections.abc import Callable
from typing import Any

from strobe.diagnose.looks import most_is_at
from strobe.diagnose.predict import NOTABLE, Step, up_to, with_both, with_model, without
from strobe.diagnose.rules import Finding
from strobe.diagnose.symptoms import FAR_BEYOND, PREPARING, SIZE, enlarged, fitting_size, made_up
from strobe.diagnose.wasted import FOR_NOTHING, UNUSED, Waste, after_used, for_gradients, for_nothing, padded
from strobe.present.format import duration, pace, percent, size
from strobe.records.run import Alternative, Figure, Record


def unused_gradients(record: Record, step: Step) -> Finding | None:
    """The backward pass computes gradients of weights that nothing updates."""
    share, seconds = record.amount("unused_gradients"), for_gradients(record)
    if seconds < NOTABLE * step.seconds:
        return None
    after = after_used(record)
    if share >= max(UNUSED, after):
        title = f"{percent(share)} of the gradients are of weights that no optimizer has"
        advice = (
            "If these weights are not to learn, such as a teacher's or a frozen network's, compute with them under "
            "torch.no_grad(), or call requires_grad_(False) on them. Otherwise give them to the optimizer."
        )
    else:
        part = (
            f"{percent(after)} of the backward pass is" if after else f"{percent(seconds / step.seconds)} of a step is"
        )
        title = f"{part} for gradients that no update uses"
        advice = (
            "Detach what comes from a network that this loss does not train, as in discriminator(fake.detach()); call "
            "requires_grad_(False) on one that is frozen, and not requires_grad_() on what goes into it. Where that "
            "needs gradients, as for forces, name the weights: loss.backward(inputs=list(model.parameters()))."
        )
    evidence = f"Computing them takes {duration(seconds)} of each {duration(step.seconds)} step."
    most = up_to(without(step, compute=seconds))
    return Finding("unused_gradients", title, evidence, advice, most)


def upsampled(record: Record, step: Step) -> Finding | None:
    """Images are enlarged far beyond their stored size; computing time is roughly proportional to the pixels."""
    times = enlarged(record)
    if times < FAR_BEYOND:
        return None
    stored, given = (_told(record, "image_size", name) for name in ("stored", "given"))
    used, fitting = _told(record, "ceilings", "image_size") or given, fitting_size(record)
    evidence = f"A typical image is stored at {stored} pixels, but the network computes on {used}."
    overrides: tuple[str, ...] = (f"{SIZE}={fitting}",) if fitting else ()
    model, loader = (record.alternative(side, SIZE, fitting) for side in ("model", "loader"))
    predicted = up_to(without(step, compute=made_up(record, step)))
    if not fitting:
        where = " inside the network" if used != given else ""
        advice = f"Enlarge images less{where}, or not at all: computing time is roughly proportional to their pixels."
    else:
        advice = f"Train on {fitting}x{fitting} pixels, and compare the accuracy: it changes what the network sees."
    if model is not None:
        evidence += f" With {overrides[0]} the model alone reaches {pace(model.rate.median)}"
        evidence += f", {pace(step.model.median)} now." if step.model else "."
        predicted = _measured(step, model, loader)
    elif fitting:
        evidence += " Smaller images were not measured; computing time is roughly proportional to their pixels."
    title = f"Images are enlarged to {times:.{0 if times >= 10 else 1}f} times their stored pixels"
    return Finding("upsampled", title, evidence, advice, predicted, overrides)


def _measured(step: Step, model: Alternative, loader: Alternative | None) -> Figure:
    """The speed-up by a model on smaller images, and by a loader if that was measured."""
    if loader is None:
        return with_model(step, model.rate, ratio=model.ratio)
    cpus = (loader.cpu_seconds, model.cpu_seconds)
    return with_both(step, loader.rate, model.rate, workers=step.workers, images=None, cpus=cpus)


def padding(record: Record, step: Step) -> Finding | None:
    """Sequences are padded to a length that no sample of a batch has, and the network computes on all of it."""
    share, seconds = record.amount("padding"), padded(record)
    if share < NOTABLE or seconds < NOTABLE * step.seconds:
        return None
    return Finding(
        "padding",
        f"{percent(share)} of each batch is padding",
        f"In the last {percent(share)} of its length all samples have the same number. "
        f"Computing takes {duration(seconds / share)} of each {duration(step.seconds)} step, and grows with the "
        "length, or faster.",
        "Pad each batch to its own longest sample (a collate_fn with pad_sequence, or padding='longest'), not to a "
        "fixed length.",
        up_to(without(step, compute=seconds)),
    )


def _told(record: Record, *path: str) -> str:
    return "x".join(f"{side:.0f}" for side in record.items(*path) if isinstance(side, (int, float)))


def _rule(cause: str, waste: Waste) -> Callable[[Record, Step], Finding | None]:
    """The rule for one way to compute more than is needed."""

    def rule(record: Record, step: Step) -> Finding | None:
        computing = for_nothing(record, waste.kind, *PREPARING, "forward", "backward", "other")
        waiting = for_nothing(record, waste.kind, "data_wait")  # where the training process loads
        if computing + waiting < NOTABLE * step.seconds:
            return None
        words = _words(record, waste.kind, computing + waiting, step)
        most = up_to(without(step, compute=computing, wait=waiting))
        return Finding(cause, waste.title.format(**words), waste.evidence.format(**words), waste.advice, most)

    rule.__name__ = cause
    return rule


def _words(record: Record, kind: str, seconds: float, step: Step) -> dict[str, Any]:
    """What titles and evidence in ``FOR_NOTHING`` may name, of so many seconds of a step."""
    calls, name = record.count(kind, "calls") or 0, record.text(kind, "name")
    called = f"{name} is called {calls} times on the same input"
    part = record.amount(kind, "share")
    lengths = [one for one in record.items(kind, "shape") if isinstance(one, int)]
    return {
        "share": percent(seconds / step.seconds),
        "seconds": duration(seconds),
        "step": duration(step.seconds),
        "place": most_is_at(record, kind),
        "repeats": called if name else f"A step computes the same thing {calls} times",
        "shape": " x ".join(f"{side:,}" for side in lengths),
        "part": part,
        "alike": percent(part),
        "bytes": size(record.amount(kind, "bytes")),
        "dtype": record.text(kind, "dtype"),
        "length": f"{lengths[0]:,}" if lengths else "",
        "quick": f"{lengths[-1]:,}" if lengths else "",
        "rounds": record.count(kind, "rounds") or 0,
    }


RULES = tuple(_rule(cause, waste) for cause, waste in FOR_NOTHING.items())
