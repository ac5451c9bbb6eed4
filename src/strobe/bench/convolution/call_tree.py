"""Where time went, as a tree of calls: one form for every profiler, and its text."""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePath

from strobe.report.html.text import duration, percent


@dataclass(frozen=True)
class Call:
    """A function, called from one place in the tree."""

    name: str
    """``module.py:line(function)``, without a folder; a function in C is named in angle brackets."""

    seconds: float
    """Together with what it calls."""

    own: float
    """Without: ``seconds`` less those of the children."""

    calls: float | None = None
    """How often; None of a profiler that does not count. Shared out as time is, where a profiler knows no paths."""

    children: tuple["Call", ...] = ()
    """What it calls, the longest first."""

    @property
    def builtin(self) -> bool:
        """Whether it is a function in C."""
        return self.name.startswith("<")

    @property
    def module(self) -> str:
        """The file it is in, or the kind of a function in C."""
        return "<built-in>" if self.builtin else self.name.partition(":")[0]


Roots = tuple[Call, ...]


def function_name(file: str, line: int, function: str) -> str:
    """A short name, which does not depend on the machine."""
    return f"{PurePath(file).name}:{line}({function})"


def ordered(calls: Iterable[Call]) -> Roots:
    """The longest first."""
    return tuple(sorted(calls, key=lambda call: (-call.seconds, call.name)))


def total(roots: Roots) -> float:
    """Seconds of all roots."""
    return sum(root.seconds for root in roots)


def walk(roots: Roots) -> Iterator[Call]:
    """Every call of the tree."""
    for call in roots:
        yield call
        yield from walk(call.children)


def own_seconds(roots: Roots) -> dict[str, float]:
    """Each function's own time, from all places where it is called."""
    seconds: dict[str, float] = {}
    for call in walk(roots):
        seconds[call.name] = seconds.get(call.name, 0.0) + call.own
    return seconds


def without_builtins(roots: Roots) -> Roots:
    """The tree of Python functions: time of those in C is their callers', and what they call their callers call.

    A function in C that nothing calls stays, for there is nobody to whom its time could go.
    """
    return ordered(_without_builtins(root) for root in roots)


def _without_builtins(call: Call) -> Call:
    own = call.own
    children: list[Call] = []
    for child in map(_without_builtins, call.children):
        if child.builtin:
            own += child.own
            children += child.children
        else:
            children.append(child)
    return Call(call.name, call.seconds, own, call.calls, merged(children))


def merged(calls: Iterable[Call]) -> Roots:
    """One call for each function, with the sums of those that are of one."""
    found: dict[str, list[Call]] = {}
    for call in calls:
        found.setdefault(call.name, []).append(call)
    return ordered(same[0] if len(same) == 1 else _sum(same) for same in found.values())


def _sum(same: list[Call]) -> Call:
    counts = [call.calls for call in same if call.calls is not None]
    return Call(
        same[0].name,
        sum(call.seconds for call in same),
        sum(call.own for call in same),
        sum(counts) if counts else None,
        merged(child for call in same for child in call.children),
    )


def tree_text(roots: Roots, least: float = 0.005) -> str:
    """The tree as lines of text: share and seconds of each call with what it calls, its own seconds, and its calls.

    Args:
        roots: The tree.
        least: Share of the whole that a call must have to be a line.
    """
    whole = total(roots)
    return "\n".join(_lines(roots, whole, least * whole, "")) if whole > 0 else "nothing was seen"


def _lines(calls: Roots, whole: float, least: float, indent: str) -> Iterator[str]:
    for call in calls:
        if call.seconds < least:
            continue
        yield f"{percent(call.seconds / whole):>5} {indent}{call.name}: {figures(call)}"
        yield from _lines(call.children, whole, least, indent + "  ")


def figures(call: Call) -> str:
    """A call's times and, where they were counted, its number, in words."""
    counted = "" if call.calls is None else f", {call.calls:,.0f} call{'s' * (round(call.calls) != 1)}"
    return f"{duration(call.seconds)}, own {duration(call.own)}{counted}"


def check_alone() -> None:
    """Refuse to profile beside another profiler: before Python 3.12 that one would be replaced without a word.

    Raises:
        RuntimeError: One is active in this thread.
    """
    if (active := sys.getprofile()) is not None:
        raise RuntimeError(f"Another profiler runs in this thread ({type(active).__name__}); stop it first")
