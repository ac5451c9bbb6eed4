"""Two traces compared: what takes more or less time in a step, and whether by its calls or by the time of each."""

from collections.abc import Sequence
from dataclasses import dataclass

from strobe.traces.operators import Kernel, Operator, kernels, operators
from strobe.traces.rank import RankTrace


@dataclass(frozen=True)
class Change:
    """Of an operator's own time, or of a kernel's: calls a step, and microseconds a call, before and after."""

    name: str
    kind: str
    calls: tuple[float, float]
    each: tuple[float, float]

    @property
    def more(self) -> float:
        """Microseconds a step that it takes more than before."""
        return self.calls[1] * self.each[1] - self.calls[0] * self.each[0]

    @property
    def by_calls(self) -> float:
        """Of these, those that come from more calls of the mean length; the rest comes from longer calls."""
        lengths = [each for each, calls in zip(self.each, self.calls, strict=True) if calls]
        return (self.calls[1] - self.calls[0]) * sum(lengths) / len(lengths)


def changes(before: Sequence[RankTrace], after: Sequence[RankTrace]) -> list[Change]:
    """What changed, the most first; of a step of one rank."""
    found = []
    for kind, of in (("operator", operators), ("kernel", kernels)):
        sides = [(_sums(of(ranks)), sum(len(rank.lengths) for rank in ranks)) for ranks in (before, after)]
        for name in {**sides[0][0], **sides[1][0]}:
            calls, each = [], []
            for rows, steps in sides:
                number, time = rows.get(name, (0, 0.0))
                calls.append(number / steps)
                each.append(time / number if number else 0.0)
            found.append(Change(name, kind, (calls[0], calls[1]), (each[0], each[1])))
    return sorted(found, key=lambda change: (-abs(change.more), change.name))


def _sums(rows: Sequence[Operator | Kernel]) -> dict[str, tuple[int, float]]:
    """Calls and microseconds by name, without ranges, which hold what changed."""
    return {
        row.name: (row.calls, row.total if isinstance(row, Kernel) else row.own)
        for row in rows
        if isinstance(row, Kernel) or not row.is_range
    }
