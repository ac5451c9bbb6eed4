"""In which order things are measured, so that a machine that becomes slower meanwhile slows all of them alike."""

import random
from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def shuffled(items: Sequence[T], number: int, seed: int) -> list[T]:
    """The items of round ``number`` in that round's own random order, always the same one for a seed."""
    order = list(items)
    random.Random(f"{seed} {number}").shuffle(order)
    return order


def rounds(items: Sequence[T], numbers: Sequence[int], seed: int) -> Iterator[tuple[int, T]]:
    """Round after round, (its number, item): each holds every item, in a random order of its own."""
    return ((number, item) for number in numbers for item in shuffled(items, number, seed))


def mirrored(pair: Sequence[T], number: int) -> list[T]:
    """Two sides, A B in even rounds and B A in odd ones: a steady drift that adds to one is taken from the next."""
    return list(pair if number % 2 == 0 else reversed(pair))
