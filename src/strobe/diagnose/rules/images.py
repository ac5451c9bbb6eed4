"""What a network computes on that is in no file: pixels of enlarged images, and padding."""

from strobe.diagnose.predict import NOTABLE, Step, up_to, with_both, with_model, without
from strobe.diagnose.rules import Finding
from strobe.diagnose.symptoms import FAR_BEYOND, SIZE, enlarged, fitting_size, made_up
from strobe.diagnose.wasted import padded
from strobe.present.format import duration, pace, percent
from strobe.records.run import Alternative, Figure, Record


def upsampled(record: Record, step: Step) -> Finding | None:
    """Images are enlarged far beyond their stored size; computing time is roughly proportional to the pixels."""
    times = enlarged(record)
    if times < FAR_BEYOND:
        return None
    stored, given = (_told(record, "image_size", name) for name in ("stored", "given"))
    used, fitting = _told(record, "ceilings", "image_size") or given, fitting_size(record)
    evidence = f"A typical image is stored at {stored} pixels, but the network computes on {used}."
    overrides = (f"{SIZE}={fitting}",) if fitting else ()
    model, loader = (
        next((one for one in record.alternatives(side) if one.overrides == overrides), None)
        for side in ("model", "loader")
    )
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
