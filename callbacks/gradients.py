"""How long backward passes go on for gradients that no update uses, of the first steps of a training."""

import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch.compiler import is_compiling
from torch.optim.optimizer import register_optimizer_step_post_hook

from .clock import Clock

LEARN = 3  # steps whose gradients are looked at


@dataclass(slots=True)
class _Pass:
    """A backward pass; by time.perf_counter: its begin, the last gradient of a parameter that is used, its end."""

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

    def begin(self, at: float | None = None) -> None:
        """A backward pass has reached its first parameter; it began then, or so far as is known now."""
        self._passes.append(_Pass(time.perf_counter() if at is None else at))

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


class FirstSteps:
    """What hears of training by hooks of torch's, for ``LEARN`` steps or until `remove`.

    Attributes:
        failure: An error of this class's own, after which it hears nothing more. It is kept from the training.
    """

    def __init__(self) -> None:
        self.failure: Exception | None = None
        self._steps = 0
        self._hooks: list[Any] = []

    def end_step(self) -> None:
        """A step is over, and no optimizer updates."""
        self._steps += 1
        if self._steps == LEARN:
            self.remove()

    def remove(self) -> None:
        """Hear no more; safe to call twice."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []


class HookedGradients(FirstSteps, UsedGradients):
    """Hears of backward passes and updates.

    Args:
        optimizers: Those of whose parameters the gradients are followed.
        clock: Where it knows of backward passes, these begin when their phase does.
    """

    def __init__(self, optimizers: Iterable[Any], clock: Clock) -> None:
        FirstSteps.__init__(self)
        UsedGradients.__init__(self)
        self._clock = clock
        self._hooks.append(register_optimizer_step_post_hook(self._updated))
        for parameter in {one: None for optimizer in optimizers for one in parameters_of(optimizer)}:
            if parameter.requires_grad and parameter.is_leaf:
                self._hooks.append(parameter.register_post_accumulate_grad_hook(self._gradient))

    def _gradient(self, parameter: Any) -> None:
        if self.failure or is_compiling():
            return
        try:
            if not self._passes or self._passes[-1].ended:
                torch.autograd.Variable._execution_engine.queue_callback(self.end)
                self.begin(self._clock.since if self._clock.phase == "backward" else None)
            self.add(parameter)
        except Exception as error:
            self.failure = error

    def _updated(self, optimizer: Any, *_: Any) -> None:
        try:
            if self.failure is None and not is_compiling():
                self.use(parameters_of(optimizer))
        except Exception as error:
            self.failure = error


def parameters_of(optimizer: Any) -> list[Any]:
    """What an optimizer trains; nothing of one that is not torch's."""
    return [parameter for group in getattr(optimizer, "param_groups", ()) for parameter in group["params"]]
