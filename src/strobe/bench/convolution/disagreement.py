"""How far two profiles of the same work disagree, and what of it the cost of looking explains.

An event profiler charges each call a price. It falls on functions that are called often and, above all, on those that
call often, and both look longer than they are. Calls of C have a price as well, even where they are not timed and their
time is their callers'. Samples scatter: of N, a share s by about the root of s (1 - s) / N. Two profilers that the
interpreter asks at each call, such as cProfile and pyinstrument, may agree and both be wrong: see how many times
as long each makes the work.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from strobe.bench.convolution.call_tree import Call, Roots, ordered
from strobe.bench.convolution.event_profile import Price


@dataclass(frozen=True)
class Looking:
    """What a profiler cost the work."""

    without: float  # seconds that the work takes when nobody looks
    under: float  # seconds under the profiler
    calls: int | None = None  # that were timed, where they were counted

    @property
    def a_call(self) -> float | None:
        """Seconds more for each call; None where none were counted."""
        return (self.under - self.without) / self.calls if self.calls else None


def shares(own: Mapping[str, float]) -> dict[str, float]:
    """Each function's share of the sum of own seconds.

    Raises:
        ValueError: The sum is not above 0, for the work was too short to be seen.
    """
    whole = sum(own.values())
    if not whole > 0:
        raise ValueError("The profile holds no time to share out; profile more of the work")
    return {name: seconds / whole for name, seconds in own.items()}


def total_variation(first: Mapping[str, float], second: Mapping[str, float]) -> float:
    """The distance of two profiles: half the sum of all differences between shares.

    It is the share of the time that would have to be given to other functions: 0 for equal shares, 1 where no function
    has time in both.

    Args:
        first: Own seconds of each function, by name; also those of functions that the other does not have.
        second: The same, by another profiler.

    Raises:
        ValueError: A profile holds no time.
    """
    one, other = shares(first), shares(second)
    return sum(abs(one.get(name, 0.0) - other.get(name, 0.0)) for name in one.keys() | other.keys()) / 2


def corrected(roots: Roots, looking: Looking, price: Price) -> Roots:
    """A tree of events less what being timed added to it.

    Each call's part of what the profiler cost the work is taken from the function called and from its caller, in the
    proportion that ``price`` gives. Nothing is taken beyond 0: a price that is one for all calls is too high for some.

    Args:
        roots: Of a profile in which functions in C were timed, for they pay in any case.
        looking: What that profile cost the work.
        price: Who bears the price of a call.
    """
    a_call = max(0.0, looking.a_call or 0.0)
    called, making = a_call * price.callee_share, a_call * (1 - price.callee_share)

    def less(call: Call) -> Call:
        children = ordered(less(child) for child in call.children)
        made = sum(child.calls or 0.0 for child in call.children)
        own = max(0.0, call.own - (call.calls or 0.0) * called - made * making)
        return Call(call.name, own + sum(child.seconds for child in children), own, call.calls, children)

    return ordered(less(root) for root in roots)
