"""Nothing to fix: how near training is to its ceiling, and what takes the largest part of a step."""

from strobe.diagnose.attribution import IN_WORDS
from strobe.diagnose.cores import taken
from strobe.diagnose.predict import Step
from strobe.diagnose.rules import FINE, NO_CAUSE, Finding
from strobe.diagnose.symptoms import MANY, PREPARING, costliest, operations_of, preparing, too_low
from strobe.present.format import pace, percent
from strobe.records.run import Figure, Record

NEAR = 0.85  # of the lowest ceiling: from here on it explains the step
SCALING = 0.1  # of the step, from here on it is named
IGNORED = 0.5  # of the labels: a smaller share is not worth a sentence

_REPEAT = "Repeat the run on a quiet machine."
_PHASES = IN_WORDS | {
    "transfer": "copying images to the device",
    "optimizer": "the optimizer",
    "other": "time outside all phases",
}
_CEILINGS = {
    "loader": "the loader alone allows",
    "model": "the model alone allows",
    "transfer": "copying to the device allows",
    "joint": "this loader and model allow on these cores",
}


def nothing(record: Record, step: Step) -> Finding | None:
    """How near training is to its ceiling; it promises no gain, so it is listed only if there is no other finding."""
    efficiency, limit = record.number("efficiency"), _limit(record)
    title, advice = FINE, "Going faster needs faster hardware or a smaller model."
    if others := taken(record, "ceilings"):
        evidence = f"Other processes took {percent(others)} of the time while the ceilings were measured."
        return Finding("nothing", "Not measurable here", evidence, _REPEAT, Figure(1.0, 1.0, 1.0))
    if limit is not None and too_low(record):
        evidence = f"Training was faster than {limit}: the machine was slower while that ceiling was measured."
        return Finding("nothing", "Not measurable here", evidence, _REPEAT, Figure(1.0, 1.0, 1.0))
    if efficiency is None or limit is None:
        reason = (record.text("ceilings", "reason") or "").rstrip(".")
        evidence = f"{percent(step.waiting)} of each step waits for data; "
        if record.setting("unloaded") is True:
            evidence = "No DataLoader gives the batches, so how long they take is not known; "
        evidence += f"the ceilings were not measured ({reason})." if reason else "the ceilings are not known."
    elif percent(efficiency) == "100%":
        evidence = f"Training is as fast as {limit}."
    else:
        evidence = f"Training runs at {percent(efficiency)} of what {limit}."
    scaling = _scaling(record, step)
    if efficiency is None or limit is None or efficiency < NEAR:
        title = NO_CAUSE
        advice = "Look at the largest part of a step in a trace (profiler=trace)."
        evidence += _largest(record, scaling)
        if (made := operations_of(record)) >= MANY:
            scaling += f" A step makes {made:,.0f} operations; loops over samples, time steps or pairs make so many."
        if (ignored := record.amount("ignored_labels")) >= IGNORED:
            scaling += (
                f" {percent(ignored)} of the labels are -100, which cross_entropy ignores: compute the last layer only "
                "for the other positions."
            )
    return Finding("nothing", title, evidence + scaling, advice, Figure(1.0, 1.0, 1.0))


def _largest(record: Record, scaling: str) -> str:
    """A sentence on the largest phase; empty if the one on scaling covers it, or if it is unknown."""
    seconds = {name: value for name in _PHASES if (value := record.number("step_seconds", name))}
    largest = max(seconds, key=lambda name: seconds[name], default=None)
    total = record.number("step_seconds", "total")
    if largest is None or not total or (largest in PREPARING and scaling):
        return ""
    share = percent(seconds[largest] / total)
    if operations := costliest(record, largest):
        return f" The largest part of a step is {_PHASES[largest]}, {share}.{operations}"
    shows = "its trace shows the" if record.items("traces") else "profiler=trace shows its"
    return f" The largest part of a step is {_PHASES[largest]}, {share}: {shows} operators."


def _scaling(record: Record, step: Step) -> str:
    """A sentence on scaling and augmenting, which a CPU does in place of a transfer; empty if that is short."""
    share = preparing(record) / step.seconds
    if not record.on_cpu or share < SCALING:
        return ""
    work = "Scaling and augmenting" if record.setting("data.augment") is True else "Scaling"
    return f" {work} the images takes {percent(share)} of each step."


def _limit(record: Record) -> str | None:
    """The lowest ceiling; ``efficiency`` is the share of it."""
    known = {name: rate for name in _CEILINGS if (rate := record.number("ceilings", name))}
    lowest = min(known, key=lambda name: known[name], default=None)
    return f"{_CEILINGS[lowest]} ({pace(known[lowest])})" if lowest else None
