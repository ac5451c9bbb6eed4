"""What to try next: the best predicted combination, its rivals and its sides, and what a run's findings prescribe."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from strobe.diagnose.candidates import candidates, seldomer
from strobe.diagnose.foreign import in_words, is_foreign
from strobe.diagnose.hooks import hooks
from strobe.diagnose.predict import NOTABLE, WORTH, Step, step_of, without
from strobe.diagnose.promise import bound, gain
from strobe.diagnose.restarts import restarts, steady_waiting
from strobe.diagnose.symptoms import EPOCHS, INTERVAL, is_rebuilt, times_an_epoch
from strobe.overrides import key_of, split
from strobe.present.format import duration, pace
from strobe.probe.takeover import LOGGING, VALIDATION
from strobe.records.run import Figure, Record, as_number
from strobe.tune.composing import ACCUMULATE, BATCH_SIZE, Combination, Composer, Measure, multiplies
from strobe.tune.dimensions import ALL, DIMENSIONS, ON_REQUEST

RIVAL = 0.9  # times as fast as the best combination, as predicted: so far predictions are off
SELDOM = 50  # steps: Lightning's own log_every_n_steps
SELDOMER, WITH_ONE = 10, 10.0  # times as seldom validation is tried; seconds of a turn that holds one
SHORT = 30.0  # seconds of an epoch, so that trainings in turns see several


@dataclass(frozen=True)
class Proposal:
    """A change of the configuration, and the estimate of what it brings."""

    overrides: tuple[str, ...]
    why: str
    predicted: Figure | None  # from the configuration that it changes
    bounded: bool = False  # nothing was predicted but the most that it can bring: ``predicted.high``
    images: tuple[int, int] | None = None  # of an update, before and after, if it changes them
    rival: bool = False  # of the combination before it, also when that is faster: its loading is another

    @property
    def dimensions(self) -> set[str | None]:
        """What it changes, of those that are searched; None for anything else."""
        return {DIMENSIONS.get(key_of(override)) for override in self.overrides if not _accompanies(override)}

    def as_dict(self) -> dict[str, Any]:
        """As it stands in ``tune.json``."""
        return asdict(self) | {"overrides": list(self.overrides)}


def proposals(record: Record, over: Sequence[str] | None, *, budget: float, measure: Measure) -> Iterator[Proposal]:
    """The changes worth trying: combinations, prescriptions, and last those whose gain is only bounded.

    Args:
        record: of a run with the configuration that is to be changed.
        over: the dimensions that may be changed; None: all of them.
        budget: seconds, of which preparing a change may take no more than a part.
        measure: one side alone, with changes.
    """
    step = step_of(record)
    if step is None:
        return
    step = replace(step, between=step.between - _pauses(record, over) / step.images)
    wanted, seen = set(ALL if over is None else over), set[frozenset[str]]()
    composer = Composer(record, step, wanted, asked=set(over or ()), measure=measure, budget=budget)
    composed = _composed(record, step, composer.combinations())
    asked = set(over or ())
    others = (*_prescribed(record, step, asked=asked), *_of_a_loop(record), *_explored(record, step, asked=asked))
    for proposal in (*composed, *(part for one in others if (part := _within(one, wanted)) is not None)):
        if (key := frozenset(proposal.overrides)) not in seen:
            yield proposal
        seen.add(key)


def _composed(record: Record, step: Step, combinations: Sequence[Combination]) -> Iterator[Proposal]:
    """The best combination; the best one that loads otherwise; of the best each side alone, the better one first."""
    worth = [one for one in combinations if one.predicted.median >= WORTH]
    if not worth:
        return
    first = worth[0]
    yield _combined(record, step, first)
    near = (one for one in worth if one.predicted.median >= RIVAL * first.predicted.median)
    rival = next((one for one in near if _loads_otherwise(one, first)), None)
    if rival is not None:
        yield replace(_combined(record, step, rival), rival=True)
    if first.loading and first.computing:
        sides = ((first.loading, None), (None, first.computing))
        yield from (_combined(record, step, one) for one in worth if (one.loading, one.computing) in sides)


def _loads_otherwise(one: Combination, other: Combination) -> bool:
    """Whether neither has all changes of the other's loading: leaving changes out is what pruning does."""
    sides = [set(side.overrides) if (side := each.loading) else set() for each in (one, other)]
    return not (sides[0] <= sides[1] or sides[1] <= sides[0])


def _combined(record: Record, step: Step, one: Combination) -> Proposal:
    why = _reason(record, step, one)
    return _proposal(record, one.overrides, in_words(why, record) if is_foreign(record) else why, one.predicted)


def _reason(record: Record, step: Step, one: Combination) -> str:
    """What saves most: computing, loading, or that something is paid for once for more images."""
    computing, hook = one.computing, next(iter(hooks(record)), None)
    seldom = step.per_step * (1 - step.images / (computing.images or step.images)) if computing else 0.0
    saved = max(0.0, 1 / step.model.median - 1 / computing.rate.median) if computing and step.model else 0.0
    loading = step.total * (1 - 1 / one.predicted.median) - saved - seldom if one.loading else 0.0
    if hook is not None and seldom > max(saved, loading):
        return f"{hook.name} takes {duration(hook.mean)} a step, which larger batches pay less often"
    if one.loading and (computing is None or loading > saved):
        return _reaches("loader", one.loading.rate, step.loader)
    return _reaches("model", computing.rate, step.model) if computing else ""


def _reaches(side: str, then: Figure, now: Figure | None) -> str:
    before = f", instead of {pace(now.median)}" if now else ""
    return f"With this the {side} alone reaches {pace(then.median)}{before}"


def _within(proposal: Proposal, wanted: set[str]) -> Proposal | None:
    """What is wanted of a proposal: of a part of it only is known that it brings no more than the whole."""
    if proposal.dimensions <= wanted:
        return proposal
    kept = tuple(text for text in proposal.overrides if DIMENSIONS.get(key_of(text)) in wanted or _accompanies(text))
    if all(_accompanies(text) for text in kept) or proposal.predicted is None:
        return None
    return replace(proposal, overrides=kept, predicted=Figure(1.0, 1.0, proposal.predicted.high), bounded=True)


def advice(record: Record, over: Sequence[str] | None = None) -> list[str]:
    """What the findings say that no proposal tries, such as to leave a callback out, and what a probe left out."""
    asked, reason = set(over or ()), record.text("ceilings", "reason")
    sentences = [
        f"{finding['title']}{f' ({promised})' if (promised := gain(finding)) else ''}. "
        f"{f'{most}. ' if (most := bound(finding)) else ''}{finding['advice']}"
        for finding in record.items("findings")
        if finding["cause"] not in ("nothing", "shared_machine")
        and (_unsearched(record, _remedy(finding), asked) or (is_foreign(record) and not _remedy(finding)))
    ]
    step = step_of(record) if record.setting("loop") else None
    if step is not None and (share := step.between / step.total) >= NOTABLE:
        sentences.append(f"{share:.0%} of training lies between epochs, such as a validation: that was not compared.")
    return [*sentences, f"Not measured: {reason}"] if reason and is_foreign(record) else sentences


def _prescribed(record: Record, step: Step, *, asked: set[str]) -> Iterator[Proposal]:
    """The findings' prescriptions; what they give a step with its pauses is more of one without."""
    pause = _pauses(record, asked) / step.images

    def of_steps(times: float) -> float:
        return step.total / max((step.total + pause) / max(times, 1e-9) - pause, 1e-3 * step.total)

    for finding in record.items("findings"):
        if (remedy := _remedy(finding)) and not _unsearched(record, remedy, asked):
            raw = Figure(**finding["predicted_speedup"])
            predicted = replace(raw, median=of_steps(raw.median), low=of_steps(raw.low), high=of_steps(raw.high))
            yield _proposal(record, remedy, finding["title"], predicted)


def _of_a_loop(record: Record) -> Iterator[Proposal]:
    """What may compute faster in a loop without a Trainer, whose model cannot be measured alone."""
    if record.setting("loop"):
        computing = (one.overrides for one in candidates(record) if one.side == "model")
        yield from (
            _proposal(record, overrides, "Without a Trainer only a trial tells", None) for overrides in computing
        )


def _pauses(record: Record, over: Collection[str] | None) -> float:
    """Seconds per step of validations and checkpoints that were measured alone, and that trainings in turns lack.

    Of a loop without a Trainer, of all that lies between its epochs.
    """
    if record.setting("loop"):
        return sum(as_number(seconds) or 0.0 for seconds in record.mapping("between_seconds").values())
    pauses = record.mapping("ceilings", "between").items()
    return float(sum(seconds for name, seconds in pauses if name not in (over or ())))


def _remedy(finding: Mapping[str, Any]) -> list[str]:
    """What a finding prescribes: overrides, or in somebody else's script what can be changed from outside."""
    return list(finding["overrides"] or finding.get("changes") or ())


def _proposal(record: Record, overrides: Sequence[str], why: str, predicted: Figure | None) -> Proposal:
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


def _explored(record: Record, step: Step, *, asked: set[str]) -> Iterator[Proposal]:
    """What can save at most the time spent waiting; and what the user asked for by name."""
    if VALIDATION in asked:
        yield from _validated_less(record, step)
    factor, waiting = record.whole("engine.prefetch_factor"), steady_waiting(record, step)
    waits = bool(step.workers) and waiting >= NOTABLE
    bound = Figure(1.0, 1.0, 1 / max(1e-3, 1 - waiting))
    epoch = (record.count("batches_per_epoch") or math.inf) * step.total * step.images
    if waits and record.setting("engine.persistent_workers") is False and epoch <= SHORT and not is_rebuilt(record):
        why = f"New workers begin each epoch of {duration(epoch)}, without what the last ones kept in memory"
        most = step.model.high * step.total if step.model else 0.0  # they leave the model their cores, too
        most_of_all = replace(bound, high=max(bound.high, most))
        yield Proposal(("engine.persistent_workers=true",), why, most_of_all, bounded=True)
    if waits and factor:
        why = f"{waiting:.0%} of each step waits for data, which may be gained"
        yield Proposal((f"engine.prefetch_factor={2 * factor}",), why, bound, bounded=True)
    context, anew = record.setting("engine.multiprocessing_context"), restarts(record, step)
    if anew and context in ("spawn", "forkserver") and "workers" in asked:  # the script may need it
        why = f"Workers begin by {context} in each epoch, which takes longer"
        bound = Figure(1.0, 1.0, step.total / max(1e-3 * step.total, step.total - anew.seconds / step.images))
        yield Proposal(("engine.multiprocessing_context=fork",), why, bound, bounded=True)
    if "compile" in asked and record.setting("model.compile") is False:
        yield Proposal(("model.compile=true",), "Asked for by name", None)
    every = record.whole("trainer.log_every_n_steps")
    if LOGGING in asked and every and record.items("ceilings", "off"):
        yield Proposal((f"trainer.log_every_n_steps={max(SELDOM, 10 * every)}",), "Asked for by name", None)


def _validated_less(record: Record, step: Step) -> Iterator[Proposal]:
    """Validation less often, but so that turns which hold one are not too long."""
    pause, batches = record.number("ceilings", "between", VALIDATION), record.number("batches_per_epoch")
    interval, epochs = record.setting(INTERVAL), record.whole(EPOCHS)
    steps = interval if epochs is None else (batches or math.inf) * epochs / times_an_epoch(interval, batches)
    if not pause or not isinstance(steps, int | float):
        return
    most = math.floor(WITH_ONE / (steps * step.total * step.images))
    if most < 2:
        return
    overrides, left, advice = seldomer(record, min(most, SELDOMER))
    if overrides and 2 * left * most >= 1:  # whole epochs may be somewhat longer
        why = f"Validation takes {pause / (step.total * step.images):.0%} of the time. {advice}"
        yield Proposal(overrides, why, without(step, between=pause * (1 - left)))


def _unsearched(record: Record, overrides: Sequence[str], asked: set[str]) -> bool:
    """Whether it is no part of a search, or only if it is asked for."""
    unsafe = "workers" not in asked and multiplies(record, overrides)
    return unsafe or any(DIMENSIONS.get(key_of(override)) in (None, *ON_REQUEST) for override in overrides)


def _accompanies(override: str) -> bool:
    """Whether an override only goes with a larger batch."""
    return key_of(override) in ("model.lr_scaling", "model.lr_batch_size")
