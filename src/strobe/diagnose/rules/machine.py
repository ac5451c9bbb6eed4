"""The machine: other processes on the same cores, and a quota that stops training."""

from strobe.diagnose.attribution import taken
from strobe.diagnose.predict import NOTABLE, Step
from strobe.diagnose.rules import Finding
from strobe.present.format import cores, percent
from strobe.records.run import Figure, Record, as_number


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
