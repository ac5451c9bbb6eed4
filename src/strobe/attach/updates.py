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
        mine = self._turns()
        self._others = 0 if optimizer is mine else self._others + 1
        if self._others == ANOTHER or (self._others and isinstance(mine, Passes)):
            self._turns, self._others = weakref.ref(optimizer), 0
        return not self._others


class Passes:
    """In the place of an optimizer, in a script that has none of torch's: each backward pass counts as its update.

    That is a call of ``backward``, or of ``autograd.grad`` in a script that calls no ``backward``, such as one that
    differentiates with torch.func.

    Args:
        begin: Called where such a pass begins, and where ``backward`` is called beside an optimizer.
        end: Called after it, with this, or with None where it has failed or does not count.
    """

    def __init__(self, begin: Callable[[], None], end: Callable[["Passes | None"], None]) -> None:
        self._begin, self._end = begin, end
        self._passes, self._within, self._over, self._counted = 0, False, False, "grad"
        self._restore: dict[str, Callable[[], None]] = {}

    def follow(self) -> None:
        """Have ``autograd.backward`` pass through here, and ``autograd.grad`` until the script shows an optimizer."""
        for name in ("backward", "grad"):
            self._follow(name)

    def _follow(self, name: str) -> None:
        from torch import autograd
        from torch.compiler import is_compiling

        differentiate = getattr(autograd, name)

        @functools.wraps(differentiate)
        def followed(*arguments: Any, **named: Any) -> Any:
            if self._within or is_compiling():  # within: what a checkpoint calls
                return differentiate(*arguments, **named)
            counts, passed, self._within = self._counts(name), None, True
            told = counts or (self._over and name == "backward")
            try:
                if told:
                    self._begin()
                gradients = differentiate(*arguments, **named)
                passed = self if counts else None
            finally:
                self._within = False
                if told:
                    self._end(passed)
            return gradients

        def restore() -> None:
            if getattr(autograd, name) is followed:
                setattr(autograd, name, differentiate)

        setattr(autograd, name, followed)
        self._restore[name] = restore

    def forget(self) -> None:
        """The script has an optimizer of torch's."""
        if not self._over:
            self._over = True
            self._restore["grad"]()

    def _counts(self, name: str) -> bool:
        if self._over:
            return False
        if name == "backward":
            self._counted = name
        if name != self._counted:
            return False
        self._passes += 1
        if self._passes == UNSTEPPED:
            from torch.optim import Optimizer

            if any(issubclass(type(one), Optimizer) for one in gc.get_objects()):
                self.forget()
        return self._passes >= UNSTEPPED and not self._over
