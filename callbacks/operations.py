"""How many differentiable operations training makes, and what one costs however small its tensors are."""

import inspect
import time
from threading import get_ident

import torch

CHAIN, TRIES = 200, 5  # operations in a row; the fastest of so many rows is their cost


class Operations:
    """Counts the differentiable operations of the thread that makes it, until ``end``, at no cost to a step.

    Autograd numbers them in each thread (``Node::sequence_nr`` in ``torch/csrc/autograd/function.h``), so two numbers
    tell how many lie between.
    """

    def __init__(self) -> None:
        self._thread, self._first = get_ident(), _number()
        self.costs: dict[str, float] | None = None

    def end(self) -> None:
        """Keep their ``count``, and what each costs at least, by phase; a second call does nothing.

        Another thread does not know them, nor does a torch that does not tell its numbers.
        """
        last = _number()
        if self.costs is None and last is not None and self._first is not None and get_ident() == self._thread:
            self.costs = {"count": last - self._first, **fixed_seconds()}


def fixed_seconds() -> dict[str, float]:
    """Seconds that an operation on one number takes, ``forward`` from Python and ``backward``, on the CPU."""
    with torch.inference_mode(False), torch.enable_grad():
        weight = torch.zeros(1, device="cpu", dtype=torch.float32, requires_grad=True)
        forward, backward = zip(*(_chain(weight) for _ in range(TRIES)), strict=True)
    return {"forward": min(forward) / CHAIN, "backward": min(backward) / CHAIN}


def _chain(weight: torch.Tensor) -> tuple[float, float]:
    began, value = time.perf_counter(), weight
    for _ in range(CHAIN):
        value = value + 1.0
    turned = time.perf_counter()
    inspect.unwrap(torch.autograd.backward)(value)  # not by way of what counts a script's own
    return turned - began, time.perf_counter() - turned


def _number() -> int | None:
    """The number of this thread's next differentiable operation; None if torch does not tell."""
    ask = getattr(torch.autograd, "_get_sequence_nr", None)
    return None if ask is None else int(ask())
