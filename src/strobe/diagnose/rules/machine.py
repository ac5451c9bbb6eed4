"""The machine: other processes on the same cores, and a quota that stops training."""

from strobe.diagnose.attribution import MOST_TAKEN, taken
from strobe.diagnose.predict import NOTABLE, Step
from strobe.diagnose.rules import Finding
from strobe.present.format import cores, duration, percent, size
from strobe.records.run import Figure, Record, as_number

SWAPPED = 1e6  # bytes a second: less is what systems put away that nobody uses


def shared_machine(record: Record, _: Step) -> Finding | None:
    """Other processes, or other machines of the host, took cores that training needed."""
    if not (lost := taken(record)):
        return None
    names = ("own", "others", "stolen", "idle")
    own, others, stolen, idle = (min(1.0, record.number("machine", name) or 0.0) for name in names)
    who = "Other processes" if others >= stolen else "The hypervisor's other machines"
    evidence = f"Training stood ready for {percent(lost)} of its time, and had no core. Of the cores' time others took "
    evidence += f"{percent(others + stolen)}, and this training {percent(own)}; {percent(idle)} was idle."
    named = [
        f"{entry.get('name')} (process {entry.get('pid')}) {cores(used)}"
        for entry in record.items("machine", "busiest")
        if isinstance(entry, dict) and (used := as_number(entry.get("cores")))
    ]
    evidence += f" The busiest: {', '.join(named)}." if named else " They came and went meanwhile."
    return Finding(
        "shared_machine",
        f"{who} took {percent(others + stolen)} of the cores",
        evidence,
        "Train when they have ended, or elsewhere; what is measured beside them holds for this mixture only.",
        (),
        _up_to(lost),
    )


def swapping(record: Record, _: Step) -> Finding | None:
    """Memory was moved to a disk and back: too little of it, for this training and what else runs."""
    swapped, seconds = (record.number("machine", name) or 0.0 for name in ("swapped_bytes", "seconds"))
    choked, idle = record.number("machine", "choked"), record.number("machine", "idle") or 0.0
    lost = min(MOST_TAKEN, idle if choked is None else choked)  # what waits for its memory leaves a core idle
    if swapped < SWAPPED * seconds or lost < NOTABLE:
        return None
    evidence = f"{size(swapped)} were swapped in {duration(seconds)}. "
    if choked is None:
        evidence += f"How long processes waited for that is not known here; {percent(idle)} of the cores was idle."
    else:
        evidence += f"For {percent(choked)} of the time all that could have run waited for its memory."
    return Finding(
        "swapping",
        f"Memory is short: {size(swapped / max(seconds, 1e-9))} a second were swapped",
        evidence,
        "Use fewer loader workers, smaller batches or a smaller cache, or end what else holds memory.",
        (),
        _up_to(lost),
    )


def quota(record: Record, _: Step) -> Finding | None:
    """The container may not use more of the processors, and is stopped when it has used its share."""
    share = record.number("machine", "throttled") or 0.0
    if share < NOTABLE:
        return None
    return Finding(
        "quota",
        f"The container's CPU quota was used up for {percent(share)} of the time",
        f"Linux stopped its processes for {percent(share)} of the training (throttled_usec of the cgroup's cpu.stat).",
        "Give the container more cores (docker run --cpus, resources.limits.cpu), or compute on fewer threads.",
        (),
        _up_to(min(share, 0.95)),
    )


def _up_to(lost: float) -> Figure:
    """Of what would be without it nobody knows more than that it lies between nothing and all that was lost."""
    most = 1 / (1 - lost)
    return Figure(most**0.5, 1.0, most)
