"""Steps that differ: a few that take far longer than others, and steps that get slower and slower."""

from itertools import pairwise

from strobe.diagnose.cores import interrupting, taken, taken_by_threads
from strobe.diagnose.predict import NOTABLE, Step
from strobe.diagnose.restarts import epoch_starts, restarts
from strobe.diagnose.symptoms import aside
from strobe.records.run import Record, as_number

GROWN = 1.4  # times as long at the end as at the start; machines drift less than this
RISING = 0.85  # of all pairs of steps, in which the later one takes longer: by chance it is half of them
FEWEST, FEW = 3, 4  # long steps; at most one in so many, otherwise they are normal


def uneven(record: Record, step: Step) -> tuple[str, float]:
    """The phase that makes a few steps far longer than the others, and its cost in seconds per mean step.

    Callbacks are left out, because they are reported by name. One wait in as many steps as there are workers is normal.
    The cost of restarted workers, and of what begins an epoch, is not counted again.
    """
    phase, long = record.text("uneven", "phase") or "", record.number("uneven", "steps") or 0.0
    measured = record.number("steps", "measured") or 0.0
    usual = phase == "data_wait" and step.workers > 0 and measured <= FEW * step.workers * long
    extra, garbage = (record.number("uneven", f"{name}_seconds") or 0.0 for name in ("extra", "garbage"))
    others = taken(record) or taken_by_threads(record) or interrupting(record) * step.seconds >= extra
    if growth(record, step) or (others and not record.items("uneven", "files", "slow")):  # which explain it
        return "", 0.0
    begun = anew.begun + anew.computing if (anew := restarts(record, step)) else 0.0
    begun += epoch_starts(record, step)
    if phase in ("", "callbacks") or long < FEWEST or measured < FEW * long or usual or begun > extra / 2:
        return "", 0.0
    extra -= aside(record).get(phase, 0.0) + begun
    whole = max(record.number(of, phase) or 0.0 for of in ("step_seconds", "device_seconds"))
    return phase, max(0.0, min(extra - garbage, whole, step.spare))


def growth(record: Record, step: Step) -> tuple[list[float], str] | None:
    """A typical step in each quarter of a run whose steps get slower, and the phase that grows; None if they do not.

    A phase that grows alone tells before the whole step does: a machine that becomes slower slows all phases.
    """
    steps, phase = _quarters(record, "seconds"), record.text("quarters", "phase") or ""
    alone = _quarters(record, "phase_seconds")
    if not steps or taken(record) or (record.number("quarters", "rising") or 1.0) < RISING:
        return None
    if steps[-1] >= GROWN * steps[0]:
        return steps, phase
    rest = [whole - part for whole, part in zip(steps, alone, strict=True)] if alone else []
    if not rest or alone[-1] < GROWN * alone[0] or step.seconds - steps[0] < NOTABLE * step.seconds:
        return None
    return (steps, phase) if rest[-1] / rest[0] - 1 < (alone[-1] / alone[0] - 1) / 2 else None


def _quarters(record: Record, name: str) -> list[float]:
    """Four values that rise; [] if they do not, or are not known."""
    values = [as_number(value) or 0.0 for value in record.items("quarters", name)]
    rising = len(values) == 4 and min(values) > 0 and all(after >= before for before, after in pairwise(values))
    return values if rising else []
