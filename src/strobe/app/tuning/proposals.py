"""What to try next, from the record of a run: what its findings prescribe, then what nobody predicts but may help."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from typing import Any

from strobe.app.config.schema import OVER
from strobe.diagnose.candidates import estimates
from strobe.diagnose.predict import NOTABLE, WORTH, Step, step_of
from strobe.diagnose.symptoms import steady_waiting, worker_limit
from strobe.overrides import key_of, split
from strobe.present.format import pace
from strobe.records.run import Figure, Record

DIMENSIONS = {key: name for name, keys in OVER.items() for key in keys}
BATCH_SIZE, ACCUMULATE = "data.batch_size", "trainer.accumulate_grad_batches"
RESIDENT_SHARE = 0.2  # of the budget, that loading a whole set into memory may take


@dataclass(frozen=True)
class Proposal:
    """A change of the configuration, and the estimate of what it brings."""

    overrides: tuple[str, ...]
    why: str
    predicted: Figure | None  # from the configuration that it changes
    bounded: bool = False  # nothing was predicted but the most that it can bring: ``predicted.high``
    images: tuple[int, int] | None = None  # of an update, before and after, if it changes them

    @property
    def dimensions(self) -> set[str | None]:
        """What it changes, of those that are searched; None for anything else."""
        return {DIMENSIONS.get(key_of(override)) for override in self.overrides if not _accompanies(override)}

    def as_dict(self) -> dict[str, Any]:
        """As it stands in ``tune.json``."""
        return asdict(self) | {"overrides": list(self.overrides)}


def proposals(record: Record, over: Sequence[str] | None, *, budget: float) -> list[Proposal]:
    """The changes worth trying: prescriptions, what else was measured, and last those whose gain is only bounded.

    Args:
        record: of a run with the configuration that is to be changed.
        over: what may be changed, of ``OVER``; None: all of it.
        budget: seconds, of which preparing a change may take no more than a part.
    """
    step = step_of(record)
    if step is None:
        return []
    wanted = set(OVER if over is None else over)
    found = [*_prescribed(record), *_measured(record, step), *_explored(record, step, budget, asked=set(over or ()))]
    found = [within for proposal in found if (within := _within(proposal, wanted)) is not None]
    first = {frozenset(proposal.overrides): proposal for proposal in reversed(found)}  # a finding comes first
    return [proposal for proposal in found if first[frozenset(proposal.overrides)] is proposal]


def _within(proposal: Proposal, wanted: set[str]) -> Proposal | None:
    """What is wanted of a proposal: of a part of it only is known that it brings no more than the whole."""
    if proposal.dimensions <= wanted:
        return proposal
    kept = tuple(text for text in proposal.overrides if DIMENSIONS.get(key_of(text)) in wanted or _accompanies(text))
    if all(_accompanies(text) for text in kept) or proposal.predicted is None:
        return None
    return replace(proposal, overrides=kept, predicted=Figure(1.0, 1.0, proposal.predicted.high), bounded=True)


def advice(record: Record) -> list[str]:
    """What the findings say that no proposal can try, such as to leave a callback out."""
    return [
        f"{found['title']}. {found['advice']}"
        for found in record.items("findings")
        if found["cause"] != "nothing" and _unsearched(found["overrides"])
    ]


def _prescribed(record: Record) -> Iterator[Proposal]:
    """The findings' prescriptions."""
    for found in record.items("findings"):
        if found["overrides"] and not _unsearched(found["overrides"]):
            yield _proposal(record, found["overrides"], found["title"], Figure(**found["predicted_speedup"]))


def _measured(record: Record, step: Step) -> Iterator[Proposal]:
    """What was measured besides, the best first, and did not become a finding, for another was better or likelier."""
    for entry, speedup in sorted(estimates(record, step), key=lambda pair: -pair[1].median):
        if speedup.median >= WORTH and not _unsearched(entry.overrides):  # however uncertain: it is tried
            why = f"The {entry.side} alone reaches {pace(entry.rate.median)}"
            yield _proposal(record, entry.overrides, why, speedup)


def _proposal(record: Record, overrides: Sequence[str], why: str, predicted: Figure) -> Proposal:
    scaled, images = _larger_update(record, overrides)
    return Proposal((*overrides, *scaled), why, predicted, images=images)


def _larger_update(record: Record, overrides: Sequence[str]) -> tuple[tuple[str, ...], tuple[int, int] | None]:
    """What goes with more images an update, the learning rate scaled with them; and their numbers."""
    new = dict(map(split, overrides))
    size, batches = record.whole(BATCH_SIZE) or 0, record.whole(ACCUMULATE) or 1
    now = size * batches * max(1, record.count("world_size") or 1)
    then = now * int(new.get(BATCH_SIZE, size)) * int(new.get(ACCUMULATE, batches)) // max(1, size * batches)
    if now == then:
        return (), None
    if record.setting("model.lr_scaling") != "none" or not record.has("model.lr_batch_size"):
        return (), (now, then)
    return ("model.lr_scaling=linear", f"model.lr_batch_size={now}"), (now, then)


def _explored(record: Record, step: Step, budget: float, *, asked: set[str]) -> Iterator[Proposal]:
    """Ways of loading, of which only is known that they can bring no more than all the waiting; compiling, if asked."""
    waiting = steady_waiting(record, step)
    if waiting >= NOTABLE:
        why = f"{waiting:.0%} of each step waits for data, which may be gained"
        bound = Figure(1.0, 1.0, 1 / max(1e-3, 1 - waiting))
        yield from (Proposal(overrides, why, bound, bounded=True) for overrides in _loading(record, step, budget))
    if "compile" in asked and record.setting("model.compile") is False:
        yield Proposal(("model.compile=true",), "Asked for by tune.over", None)


def _loading(record: Record, step: Step, budget: float) -> Iterator[tuple[str, ...]]:
    engine, now = record.text("choices", "engine"), step.workers
    limit = worker_limit(record, step)
    if engine != "resident" and _loaded_within(record, step, RESIDENT_SHARE * budget):
        yield ("engine=resident",)
    if engine != "spdl" and find_spec("spdl") and limit:
        yield "engine=spdl", f"engine.num_workers={min(max(1, now), limit.workers)}"
    if limit and now < limit.workers:
        yield (f"engine.num_workers={min(limit.workers, max(1, 2 * now))}",)
    factor = record.whole("engine.prefetch_factor")
    if now and factor:
        yield (f"engine.prefetch_factor={2 * factor}",)


def _loaded_within(record: Record, step: Step, seconds: float) -> bool:
    """Whether all training images are loaded in so many seconds, at the pace of the run's loader."""
    images = record.number("train_images") or math.inf
    each = 1 / step.loader.median if step.loader else step.loading or step.length
    return images * each <= seconds


def _unsearched(overrides: Sequence[str]) -> bool:
    return any(key_of(override) not in DIMENSIONS for override in overrides)


def _accompanies(override: str) -> bool:
    """Whether an override only goes with a larger batch."""
    return key_of(override) in ("model.lr_scaling", "model.lr_batch_size")
