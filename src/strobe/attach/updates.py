"""What ends the steps of a training whose batches come from no loader: updates, or backward passes."""

import functools
import gc
import weakref
from collections.abc import Callable
from typing import Any

FEWEST = 5  # steps of such a training: fewer try something out
ANOTHER = 20  # updates in a row by other optimizers, after which theirs end steps
UNSTEPPED = 3  # backward passes, after which a script without an optimizer of torch's updates its weights itself


class Updates:
    """In the place of a loader: updates of one optimizer end the steps.

    Where several step in turns, as in a GAN, all of their updates are one step.
    """

    def __init__(self, optimizer: Any) -> None:
        self._turns, self._others = weakref.ref(optimizer), 0

    def end_step(self, optimizer: Any) -> bool:
        """Whether the update that this optimizer has made ends a step."""
        self._others = 0 if optimizer is self._turns() else self._others + 1
        if self._others == ANOTHER:
            self._turns, self._others = weakref.ref(optimizer), 0
        return not self._others


class Passes:
    """In the place of an optimizer, in a script that has none of torch's: each backward pass counts as its update.

    Args:
        begin: Called where such a pass begins.
        end: Called with this after it, unless it has failed.
    """

    def __init__(self, begin: Callable[[], None], end: Callable[["Passes"], None]) -> None:
        self._begin, self._end = begin, end
        self._passes, self._within, self._over = 0, False, False

    def follow(self) -> None:
        """Have torch's ``backward`` pass through here, until the script shows an optimizer."""
        from torch import autograd

        backward = autograd.backward

        @functools.wraps(backward)
        def followed(*given: Any, **named: Any) -> None:
            if self._within or self._over or not self._counts():  # within: what a checkpoint calls
                backward(*given, **named)
                return
            self._within = True
            self._begin()
            try:
                backward(*given, **named)
            finally:
                self._within = False
            self._end(self)

        autograd.backward = followed

    def forget(self) -> None:
        """The script has an optimizer of torch's."""
        self._over = True

    def _counts(self) -> bool:
        self._passes += 1
        if self._passes == UNSTEPPED:
            from torch.optim import Optimizer

            self._over = any(issubclass(type(one), Optimizer) for one in gc.get_objects())
        return self._passes >= UNSTEPPED and not self._over
