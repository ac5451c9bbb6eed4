"""What the weights of a training tell: their type, how many are embeddings, and which get gradients for nothing.

And what else Lightning writes into checkpoints beside them.
"""

import gc
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch.nn import Module, Parameter
from torch.nn.parameter import UninitializedParameter
from torch.utils._pytree import tree_leaves

LARGE = 1_000_000  # bytes of a hyperparameter, at least


def told_by_weights(parts: Iterable[Module], optimizers: Iterable[Any]) -> dict[str, Any]:
    """Keys of ``summary.json`` on the weights of these parts of a model; None where there are none."""
    parts = list(parts)
    return {
        "weights": weights_of(parts),
        "embedded": embedded(parts),
        "unused_gradients": unused_gradients(parts, optimizers),
    }


class Looks:
    """What the weights of a loop tell, at the ends of two of its steps: what a script has made may be gone at its end.

    Attributes:
        told: as ``told_by_weights`` has it. Which weights get gradients for nothing shows the second look: those of any
            model in this process that no optimizer has, and whose gradients have changed.
    """

    def __init__(self) -> None:
        self.told: dict[str, Any] = dict.fromkeys(("weights", "embedded", "unused_gradients"))
        self._before: list[tuple[Parameter, Any, int]] | None = None
        self._trained = 0
        self.over = False

    def look(self, optimizers: Iterable[Any]) -> None:
        """Look at those of these optimizers, and at all others."""
        if self._before is None:
            mine, models = set(_trained(optimizers)), _living(Module)
            parts = [part for part in models if any(id(one) in mine for one in part._parameters.values())]
            self.told |= {"weights": weights_of(parts), "embedded": embedded(parts)}
            given = {id(one): one for part in models for one in _own(part) if one.grad is not None}
            theirs = set(_trained(_living(torch.optim.Optimizer)))
            grads = ((one, grad) for key, one in given.items() if key not in theirs and (grad := one.grad) is not None)
            self._before = [(one, grad, grad._version) for one, grad in grads]
            self._trained = sum(one.numel() for key, one in given.items() if key in mine)
            return
        now = ((one.numel(), one.grad, grad, version) for one, grad, version in self._before)
        unused = sum(n for n, new, old, then in now if new is not None and (new is not old or new._version != then))
        if self._trained:
            self.told["unused_gradients"] = unused / (unused + self._trained)
        self._before, self.over = [], True


def weights_of(parts: Iterable[Module]) -> str | None:
    """The floating-point type that most weights to train have, such as ``float32``."""
    counts = Counter[str]()
    for one in {id(one): one for part in parts for one in _own(part)}.values():
        counts[str(one.dtype).removeprefix("torch.")] += one.numel()
    return max(counts, key=lambda name: counts[name], default=None)


def embedded(parts: Iterable[Module]) -> float | None:
    """The share of the weights to train that are rows of embeddings, with dense gradients."""
    sizes, others = dict[int, int](), set[int]()
    for part in parts:
        dense = isinstance(part, torch.nn.Embedding | torch.nn.EmbeddingBag) and not part.sparse
        for one in _own(part):
            sizes[id(one)] = one.numel()
            if not dense:
                others.add(id(one))  # such as a last layer that has the embedding's weights
    total = sum(sizes.values())
    return 1 - sum(sizes[one] for one in others) / total if total else None


def unused_gradients(parts: Iterable[Module], optimizers: Iterable[Any]) -> float | None:
    """Of the weights that have gradients, the share that no optimizer has; the script may have others than these."""
    given, trained = {id(one): one for part in parts for one in _own(part) if one.grad is not None}, set[int]()
    for known in (optimizers, _living(torch.optim.Optimizer)):
        trained.update(_trained(known))
        if trained.issuperset(given):
            break
    total = sum(one.numel() for one in given.values())
    unused = sum(one.numel() for key, one in given.items() if key not in trained)
    return unused / total if total and unused < total else None


def large_hyperparameters(*parts: object) -> dict[str, int]:
    """Names and bytes of the tensors, arrays and networks that ``save_hyperparameters()`` puts into each checkpoint.

    Args:
        parts: the LightningModule, and the LightningDataModule or None.
    """
    kept = [getattr(part, "_hparams", None) or {} for part in parts]
    sizes = {str(name): sum(map(_bytes, tree_leaves(value))) for each in kept for name, value in each.items()}
    return {name: size for name, size in sizes.items() if size >= LARGE}


def _bytes(value: Any) -> int:
    if isinstance(value, Module):
        return sum(_bytes(one) for one in value.state_dict().values())
    known = isinstance(value, np.ndarray) or (isinstance(value, torch.Tensor) and value.layout == torch.strided)
    return int(value.nbytes) if known else 0


def _own(part: Module) -> Iterator[Parameter]:
    """Not by ``parameters``, in whose place a network may have a method of its own."""
    known = (one for one in part._parameters.values() if not isinstance(one, UninitializedParameter | None))
    return (one for one in known if one.requires_grad)


def _trained(optimizers: Iterable[Any]) -> Iterator[int]:
    return (id(one) for each in optimizers for group in each.param_groups for one in group["params"])


def _living(kind: type) -> list[Any]:
    """Objects of this kind. They are asked for their type: a lazy one may import what it stands for."""
    return [one for one in gc.get_objects() if issubclass(type(one), kind)]
