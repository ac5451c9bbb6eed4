"""What the weights of a training tell: their type, how many are embeddings, and which get gradients for nothing."""

import gc
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.nn import Module, Parameter
from torch.nn.parameter import UninitializedParameter


def told_by_weights(parts: Iterable[Module], optimizers: Iterable[Any]) -> dict[str, Any]:
    """Keys of ``summary.json`` on the weights of these parts of a model; None where there are none."""
    parts = list(parts)
    return {
        "weights": weights_of(parts),
        "embedded": embedded(parts),
        "unused_gradients": unused_gradients(parts, optimizers),
    }


def parts_with(optimizers: Iterable[Any]) -> list[Module]:
    """The parts of models, of all that there are in this process, that have weights of these optimizers."""
    trained = set(_trained(optimizers))
    return [part for part in _living(Module) if any(id(one) in trained for one in part._parameters.values())]


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


def _own(part: Module) -> Iterator[Parameter]:
    known = (one for one in part.parameters(recurse=False) if not isinstance(one, UninitializedParameter))
    return (one for one in known if one.requires_grad)


def _trained(optimizers: Iterable[Any]) -> Iterator[int]:
    return (id(one) for each in optimizers for group in each.param_groups for one in group["params"])


def _living(kind: type) -> list[Any]:
    """Objects of this kind. They are asked for their type: a lazy one may import what it stands for."""
    return [one for one in gc.get_objects() if issubclass(type(one), kind)]
