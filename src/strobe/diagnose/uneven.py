"""Steps that differ: a few that take far longer than others, and steps that get slower and slower, or at once."""

from itertools import pairwise
from typing import NamedTuple

from strobe.diagnose.cores import interrupting, taken, taken_by_threads
from strobe.diagnose.predict import NOTABLE, Step
from strobe.diagnose.restarts import epoch_starts, restarts
from strobe.diagnose.symptoms import aside
from strobe.records.run import Record

GROWN = 1.4  # times as long at the end as at the start; machines drift less than this
FLAT = 0.97  # times as long as in the quarter before: two quarters that are mostly of one epoch are alike
RISING = 0.85  # of all pairs of steps, in which the later one takes longer: by chance it is half of them
LOOK_FOR_IT = (
    "Look for what only these steps do: evaluate, collect data or garbage, compute with new shapes. Do it less often, "
    "or make it cheaper."
)
CALL_IT_LESS = (
    "Only these steps make that call: make it less often, or cheaper. An evaluation can do without gradients "
    "(torch.inference_mode()), with larger batches, or on a part of the data."
)
FEWEST, FEW = 3, 4  # long steps; at most one in so many, otherwise they are normal


def uneven(record: Record, step: Step) -> tuple[str, float]:
    """The phase that makes a few steps far longer than the others, and its cost in seconds per mean step.

    Callbacks are left out, because they are reported by name. One wait in as many steps as there are workers is normal.
    The cost of restarted workers, and of what begins an epoch, is not counted again.
    """
    phase, long = record.text("uneven", "phase") or "", record.amount("uneven", "steps")
    measured = record.amount("steps", "measured")
    usual = phase == "data_wait" and step.workers > 0 and measured <= FEW * step.workers * long
    extra, garbage = (record.amount("uneven", f"{name}_seconds") for name in ("extra", "garbage"))
    others = taken(record) or taken_by_threads(record) or interrupting(record) * step.seconds >= extra
    if growth(record, step) or (others and not record.items("uneven", "files", "slow")):  # which explain it
        return "", 0.0
    anew = restarts(record, step)
    begun = anew.begun + anew.computing + epoch_starts(record, step)
    if phase in ("", "callbacks") or long < FEWEST or measured < FEW * long or usual or begun > extra / 2:
        return "", 0.0
    extra -= aside(record).get(phase, 0.0) + begun
    whole = max(record.amount(of, phase) for of in ("step_seconds", "device_seconds"))
    return phase, max(0.0, min(extra - garbage, whole, step.spare))


class Growth(NamedTuple):
    """How steps got slower."""

    steps: list[float]  # seconds of a typical step in each quarter of the run; before and after, if at once
    phase: str  # which grew most
    alone: bool  # whether hardly any other did
    since: int | None  # the step from which on they take longer, if at once


def growth(record: Record, step: Step) -> Growth | None:
    """How a run's steps get slower, from quarter to quarter or at once; None if they do not, or others take its cores.

    A phase that grows alone tells before the whole step does: a machine that becomes slower slows all phases.
    """
    if taken(record):
        return None
    if found := jump(record):
        queued = found.phase == "data_wait" and (found.since or 0) <= FEW * step.workers  # until then batches are ready
        return None if queued else _grown(found, record.amounts("quarters", "jump", "phase_seconds"), step)
    if (record.number("quarters", "rising") or 1.0) < RISING:
        return None
    quarters = Growth(_rising(record, "seconds"), record.text("quarters", "phase") or "", False, None)
    return _grown(quarters, _rising(record, "phase_seconds"), step)


def jump(record: Record) -> Growth | None:
    """From which step on steps take longer, and how much, whoever takes the cores; None if they do not."""
    seconds, since = record.amounts("quarters", "jump", "seconds"), record.number("quarters", "jump", "step")
    if len(seconds) != 2 or min(seconds) <= 0 or since is None:
        return None
    return Growth(seconds, record.text("quarters", "jump", "phase") or "", False, int(since))


def _grown(found: Growth, part: list[float], step: Step) -> Growth | None:
    """The growth if it is notable, of the whole step or of its phase, which takes ``part`` of each of these steps."""
    steps, alone = found.steps, False
    if not steps:
        return None
    if len(part) == len(steps) and part[0] > 0:
        rest = [max(whole - seconds, 1e-9) for whole, seconds in zip(steps, part, strict=True)]
        alone = rest[-1] / rest[0] - 1 < (part[-1] / part[0] - 1) / 2
    if steps[-1] >= GROWN * steps[0]:
        return found._replace(alone=alone)
    notable = step.seconds - steps[0] >= NOTABLE * step.seconds
    return found._replace(alone=True) if alone and notable and part[-1] >= GROWN * part[0] else None


def _rising(record: Record, name: str) -> list[float]:
    """Four values that rise; [] if they do not, or are not known."""
    values = record.amounts("quarters", name)
    rising = len(values) == 4 and min(values) > 0 and all(after >= FLAT * before for before, after in pairwise(values))
    return values if rising else []
