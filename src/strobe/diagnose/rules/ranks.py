"""Several ranks: one that all others wait for, ranks that are slow in turn, and batches of uneven size."""

from collections.abc import Sequence

from strobe.diagnose.attribution import IN_WORDS
from strobe.diagnose.predict import Step
from strobe.diagnose.rules import Finding
from strobe.diagnose.symptoms import PREPARING
from strobe.present.format import duration, inside, interval, listed, percent
from strobe.records.run import Figure, Record

WAITING = 0.1  # of the step: rank 0's waiting is reported from here on, even if the slow rank is not known
MOSTLY = 0.75  # of the steps: the mean is then what a step takes longer
MOST_NAMED = 4  # ranks
_PLACES = IN_WORDS | dict.fromkeys(PREPARING, "preparing batches")
_SINGULAR, _PLURAL = ("waits", "takes", "gets", "has", "it"), ("wait", "take", "get", "have", "they")
_MACHINE = (
    "It may be the hardware or the data: exchange the ranks' shards to tell. Compare {who} with the others: the "
    "machine's cores, clock, temperature and other processes, and the code."
)
_SIZES = "Give all ranks batches of one size: sort the samples by length, or fill batches by elements, not by samples."


def straggler(record: Record, step: Step) -> Finding | None:
    """The ranks that the others wait for, what they do meanwhile, and how fast training would be without that."""
    gain = [record.number("ranks", "speedup", end) for end in ("median", "low", "high")]
    pattern, phase = record.text("ranks", "pattern"), record.text("ranks", "phase") or "other"
    if pattern is None:
        return _unknown(record, step)
    median, low, high = (max(1.0, end) if end is not None else 1.0 for end in gain)
    own = (record.text("ranks", "owner") or "").rpartition("/")[2] if phase == "callbacks" else None
    place, sized = own or _PLACES.get(phase, "waiting for data"), record.text("ranks", "uneven") is not None
    who, turns = _who(record), pattern == "alternating"
    advice = _advice(phase, own, "one of them" if turns else inside(who))
    return Finding(
        "straggler",
        _title(record, who, phase, place, several=len(record.items("ranks", "slow")) > 1),
        f"{_work(record)}{_missing(record)}",
        _SIZES if sized else advice,
        Figure(median, min(low, median), max(high, median)),
    )


def _title(record: Record, who: str, phase: str, place: str, *, several: bool) -> str:
    share, pattern = record.number("ranks", "share") or 1.0, record.text("ranks", "pattern")
    extra = max(0.0, record.amount("ranks", "extra_seconds"))
    longer = duration(extra if share >= MOSTLY or pattern == "growing" else extra / share)
    plural = several and pattern != "alternating"
    waits, takes, gets, has, it = _PLURAL if plural else _SINGULAR
    others = "the others" if (record.count("ranks", "world_size") or 0) != 2 else "the other"
    more = f"{takes} {longer} longer than {others} in {place}"
    if phase == "data_wait":
        more = f"{waits} for data {longer} more than {others}"
    if record.text("ranks", "uneven") and pattern == "alternating":
        return f"The ranks' batches differ in size: the rank with the largest takes {longer} longer than {others}"
    if record.text("ranks", "uneven"):
        return f"{who} {gets} batches {_larger(record)} as large as those of {others}, and {more}"
    if pattern == "alternating":
        return f"Ranks take turns at being slow: in {percent(share)} of steps one of them {more}"
    if pattern == "growing":
        return f"{who} {has} become slow: since step {record.count('ranks', 'since_step') or 0:,} {it} {more}"
    return f"{who} {more} in {percent(share)} of steps"


def _unknown(record: Record, step: Step) -> Finding | None:
    """Rank 0 waits, and the others' rows are missing, so it is unknown which rank is slow, if any."""
    waited = sum(max(0.0, wait) for wait in record.amounts_of("ranks", "first", "waits").values())
    if not _absent(record) or waited < WAITING * step.seconds:
        return None
    most = step.seconds / max(step.seconds - waited, 1e-3 * step.seconds)
    return Finding(
        "straggler",
        f"Rank 0 waits {duration(waited)} of each step for other ranks",
        f"It waits for {percent(waited / step.seconds)} of the step, for a slower rank or for the exchange of "
        f"gradients.{_missing(record)}",
        "Copy the files that the other ranks left (ranks/<rank>*) into this record's folder ranks, and make the "
        "report again (strobe report).",
        Figure(most**0.5, 1.0, most),
    )


def _who(record: Record) -> str:
    """Such as ``Rank 1``, or ``Ranks 2 and 3``."""
    names = [str(rank) for rank in record.items("ranks", "slow")] or [str(record.count("ranks", "slowest") or 0)]
    if len(names) > MOST_NAMED:
        return f"{len(names)} ranks ({', '.join(names[:MOST_NAMED])} ...)"
    return f"Rank{'s' * (len(names) > 1)} {listed(names)}"


def _larger(record: Record) -> str:
    """How much larger the slow ranks' batches are, such as ``1.6 times``."""
    sizes = record.amounts_of("ranks", "elements")
    slow = {str(rank) for rank in record.items("ranks", "slow")}
    sides = [[size for rank, size in sizes.items() if (rank in slow) == side] for side in (True, False)]
    ours, others = (sum(side) / max(1, len(side)) for side in sides)
    return f"{ours / others:.1f} times" if others > 0 else "several times"


def _work(record: Record) -> str:
    """Sentences on how long each rank works and waits, and on the slow-down."""
    own, waits = (record.amounts_of("ranks", key) for key in ("own_seconds", "waits"))
    each = [
        f"rank {rank} works {duration(own[rank])} and waits {duration(waits.get(rank, 0.0))}" for rank in _shown(own)
    ]
    works = f"Of a mean step {', '.join(each)}{' ...' if len(own) > len(each) else ''}. " if each else ""
    slow, low, high = (record.number("ranks", "slowdown", end) for end in ("median", "low", "high"))
    if slow is None:
        return f"{works}How long the others work is not known."
    spread = interval(low, high, lambda end: f"{end:.2f}")
    spread = spread and f" ({spread})"
    return f"{works}The slowest rank of a step works {slow:.2f} times as long as the mean rank{spread}."


def _shown(own: dict[str, float]) -> Sequence[str]:
    """The slowest ranks and the fastest one, if there are many."""
    if len(own) <= MOST_NAMED:
        return sorted(own, key=lambda rank: int(rank) if rank.isdecimal() else 0)
    ordered = sorted(own, key=lambda rank: -own[rank])
    return [*ordered[: MOST_NAMED - 1], ordered[-1]]


def _missing(record: Record) -> str:
    """A sentence on ranks, or steps, without rows; empty if none are missing."""
    coverage = record.number("ranks", "coverage")
    if missing := _absent(record):
        named = ", ".join(missing[:MOST_NAMED]) + " ..." * (len(missing) > MOST_NAMED)
        many = len(missing) > 1
        return f" Rank{'s' * many} {named} left no rows here: what {'they do' if many else 'it does'} is not known."
    if coverage is not None and coverage < 1:
        return f" All ranks have rows of {percent(coverage)} of the steps, and only these count."
    return ""


def _absent(record: Record) -> list[str]:
    """Ranks without rows."""
    known = record.items("ranks", "ranks")
    return [str(rank) for rank in range(min(record.count("ranks", "world_size") or 0, 100_000)) if rank not in known]


def _advice(phase: str, owner: str | None, who: str) -> str:
    if phase == "data_wait":
        return f"Look at what {who} reads: the share of the data, the disk it lies on, and the workers that load it."
    if phase == "callbacks":
        name = owner or "Such a callback"
        return f"Make {name} cheaper, or run it less often: while one rank is in it, all others wait."
    return _MACHINE.format(who=who)
