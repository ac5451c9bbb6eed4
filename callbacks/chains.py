"""Products of thin matrices that are only multiplied by: in another order they need not be made."""

from collections import defaultdict
from collections.abc import Sequence

from .calls import PRODUCTS, Operation

THIN = 8  # times the numbers of its larger factor, which a product of thin matrices has at least

_KEEPING = {"add", "sub", "mul", "div", "neg", "clone", "_to_copy"}  # after which the order may still be another one


def avoidable(operations: Sequence[Operation]) -> dict[Operation, float]:
    """Of a step's operations, the share that another order saves: ``x @ (A @ B)`` is ``(x @ A) @ B``.

    These are the ones that make the product, scale it or add to it, and their gradients. If what is added does not
    learn, the gradient of the sum is saved, too; if nothing is added, also what multiplies by the product.
    """
    readers = defaultdict[Operation, list[Operation]](list)
    gradients = defaultdict[Operation, list[Operation]](list)
    for one in operations:
        if one.forward is not None:
            gradients[one.forward].append(one)
        for source in one.sources if not one.backward else ():
            readers[source.operation].append(one)
    saved = dict[Operation, float]()
    for made in operations:
        if made.name not in PRODUCTS or made.backward or made.size.makes < THIN * made.size.reads:
            continue
        chain, added = [made], list[Operation]()
        while len(using := readers[chain[-1]]) == 1 and _keeps(using[0], made):
            chain += using
            added += [one for one in using if one.size.full > 1]
        if not using or any(one.name not in PRODUCTS for one in using) or any(one.ends or one.lasts for one in chain):
            continue
        left = 2 * made.size.reads / made.size.makes  # of a product with the whole, which those with its factors take
        for one in chain:
            saved |= dict.fromkeys([one, *gradients[one]], 1.0)
        for product in using:
            whole = [one for one in gradients[product] if one.name in PRODUCTS and one.size.makes == made.size.makes]
            if not added:
                saved |= dict.fromkeys([product, *gradients[product]], 1 - left)
            elif not any(one.autograd.of_weights for one in added):
                saved |= dict.fromkeys(whole, 1 - left)
    return saved


def _keeps(one: Operation, made: Operation) -> bool:
    """Whether an operation only scales such a product, or adds to it, so that it can be multiplied factor by factor."""
    name = one.name.removesuffix("_")
    scales = name not in ("mul", "div") or one.size.full == 1
    return name in _KEEPING and one.size.makes == made.size.makes and scales and not one.backward
