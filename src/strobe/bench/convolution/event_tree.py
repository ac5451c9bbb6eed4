"""The call tree behind a profile by events, which knows who called whom, but not by which way.

A function that is called from several places is shared out among them: its own time as it was measured for each
caller, what it calls in proportion to the rest. That is exact wherever a function does the same for all its callers.
Functions that call themselves or each other are one place in the tree: the one by which it is entered, whose children
are the others, without what they call, and all that any of them calls.
"""

from dataclasses import dataclass, field

from strobe.bench.convolution.call_tree import Call, Roots, ordered

_LEAST = 1e-6  # share of the whole below which a call keeps what it calls to itself: such trees grow without end


@dataclass
class Edge:
    """Calls of a function by one caller."""

    calls: float = 0
    own: float = 0.0
    seconds: float = 0.0

    def add(self, calls: float, own: float, seconds: float) -> None:
        """Count more of them in."""
        self.calls += calls
        self.own += own
        self.seconds += seconds


@dataclass
class Function:
    """A function, and who calls it."""

    calls: int = 0
    own: float = 0.0
    seconds: float = 0.0
    callers: dict[str, Edge] = field(default_factory=dict)


def call_tree(functions: dict[str, Function]) -> Roots:
    """The tree of functions given by their names."""
    return _Tree(functions).roots()


class _Tree:
    def __init__(self, functions: dict[str, Function]) -> None:
        self._functions = functions
        self._callees: dict[str, dict[str, Edge]] = {name: {} for name in functions}
        for name, function in functions.items():
            for caller, edge in function.callers.items():
                if caller in functions:
                    self._callees[caller][name] = edge
        self._circles = _circles(self._callees)
        self._least = 0.0

    def roots(self) -> Roots:
        entries = {name: self._uncalled(name) for name in self._functions}
        self._least = _LEAST * sum(edge.seconds for edge in entries.values())
        return ordered(self._call(name, edge) for name, edge in entries.items() if edge.calls)

    def _uncalled(self, name: str) -> Edge:
        """Calls that the profile saw no caller of."""
        function = self._functions[name]
        known = [edge for caller, edge in function.callers.items() if caller in self._functions]
        calls = function.calls - sum(edge.calls for edge in known)
        if calls == 0 or len(self._circles[name]) > 1 or name in function.callers:
            return Edge(calls, function.own, self._entered(name) if calls else 0.0)
        own = function.own - sum(edge.own for edge in known)
        return Edge(calls, own, function.seconds - sum(edge.seconds for edge in known))

    def _entered(self, name: str) -> float:
        """Seconds of a circle that no caller outside it accounts for."""
        circle = self._circles[name]
        return (
            self._own(circle)
            + self._called(circle)
            - sum(
                edge.seconds
                for member in circle
                for caller, edge in self._functions[member].callers.items()
                if caller in self._functions and caller not in circle
            )
        )

    def _own(self, circle: frozenset[str]) -> float:
        return sum(self._functions[name].own for name in circle)

    def _called(self, circle: frozenset[str]) -> float:
        return sum(edge.seconds for _, edge in self._out(circle))

    def _out(self, circle: frozenset[str]) -> list[tuple[str, Edge]]:
        """What the circle calls outside it."""
        return [
            (callee, edge) for name in circle for callee, edge in self._callees[name].items() if callee not in circle
        ]

    def _call(self, name: str, edge: Edge) -> Call:
        """The calls of a function that ``edge`` stands for, with all that they call."""
        if edge.seconds <= self._least:
            return Call(name, edge.seconds, edge.seconds, edge.calls)
        circle = self._circles[name]
        below = self._called(circle)
        children = []
        if len(circle) == 1 and name not in self._callees[name]:
            share = (edge.seconds - edge.own) / below if below > 0 else 0.0
        else:
            share = edge.seconds / (self._own(circle) + below)
            children = [self._leaf(other, share) for other in circle - {name}]
        parts: dict[str, Edge] = {}
        for callee, part in self._out(circle):
            parts.setdefault(callee, Edge()).add(part.calls * share, part.own * share, part.seconds * share)
        children += [self._call(callee, part) for callee, part in parts.items()]
        own = max(0.0, edge.seconds - sum(child.seconds for child in children))
        return Call(name, edge.seconds, own, edge.calls, ordered(children))

    def _leaf(self, name: str, share: float) -> Call:
        function = self._functions[name]
        return Call(name, function.own * share, function.own * share, function.calls * share)


def _circles(callees: dict[str, dict[str, Edge]]) -> dict[str, frozenset[str]]:
    """For each function itself and those that call it, however indirectly, and are called by it."""
    reached = {name: _reached(callees, name) for name in callees}
    return {
        name: frozenset({name, *(other for other in below if name in reached[other])})
        for name, below in reached.items()
    }


def _reached(callees: dict[str, dict[str, Edge]], name: str) -> set[str]:
    found: set[str] = set()
    waiting = [name]
    while waiting:
        new = callees[waiting.pop()].keys() - found
        found |= new
        waiting += new
    return found
