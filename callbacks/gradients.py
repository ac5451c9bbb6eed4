"""How long backward passes go on for gradients that no update uses, of the first steps of a loop."""

import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class _Pass:
    """A backward pass; by time.perf_counter: its first gradient of a parameter, the last one that is used, its end."""

    began: float
    used: float = 0.0
    ended: float = 0.0


class UsedGradients:
    """Which gradients an optimizer uses before they are replaced, and what is computed after the last of these.

    As in a GAN whose discriminator learns from images that still hang on the generator: its backward pass goes on
    through the generator, whose gradients are thrown away before its own pass. A gradient is added to the one before it
    in place, which counts its version up by one; a new one in its place begins anew.
    """

    def __init__(self) -> None:
        self._passes: list[_Pass] = []
        self._pending = defaultdict[int, list[tuple[_Pass, int, float]]](list)  # by the parameter: pass, version, time

    def begin(self) -> None:
        """A backward pass has reached its first parameter."""
        self._passes.append(_Pass(time.perf_counter()))

    def add(self, parameter: Any) -> None:
        """The gradient of this parameter is there."""
        version = -1 if parameter.grad is None else parameter.grad._version
        self._pending[id(parameter)].append((self._passes[-1], version, time.perf_counter()))

    def end(self) -> None:
        """The pass is over."""
        self._passes[-1].ended = time.perf_counter()

    def use(self, parameters: Iterable[Any]) -> None:
        """An optimizer is about to update these."""
        for parameter in parameters:
            given = self._pending.pop(id(parameter), [])
            for later, (one, version, at) in enumerate(reversed(given)):
                if parameter.grad is not None and parameter.grad._version >= version + later:
                    one.used = max(one.used, at)

    def unused(self) -> float | None:
        """The share of backward passes after the last gradient that was used; None if there was no pass.

        A pass of which nothing was used is for something else, such as the gradients of its inputs.
        """
        over = [one for one in self._passes if one.ended]
        whole = sum(one.ended - one.began for one in over)
        return sum(one.ended - one.used for one in over if one.used) / whole if whole else None
