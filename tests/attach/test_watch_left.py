"""Loops over ``strobe.watch`` that the script leaves early, holds, resumes or nests: where their steps end."""

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

import strobe
from strobe.attach import loops
from support.fitting import Standstill, standstill
from support.foreign import SLOW, STEP
from support.watched import STEPS, Loop, alone, rows

__all__ = ["alone", "standstill"]
pytestmark = pytest.mark.usefixtures("alone")

SOME = 5  # steps of an epoch that is left early
LONG = 0.5  # seconds that follow it


def breaks(loop: Loop, watched: Any) -> None:
    for number, batch in enumerate(watched, 1):
        loop.step(batch)
        if number == SOME:
            break


def raises(loop: Loop, watched: Any) -> None:
    def train() -> None:
        for number, batch in enumerate(watched, 1):
            loop.step(batch)
            if number == SOME:
                raise ArithmeticError("the script's own")

    with pytest.raises(ArithmeticError):
        train()


def returns(loop: Loop, watched: Any) -> int:
    for number, batch in enumerate(watched, 1):
        loop.step(batch)
        if number == SOME:
            return number
    return 0


def slices(loop: Loop, watched: Any) -> None:
    loop.train(islice(watched, SOME))


def counts_first(loop: Loop, watched: Any) -> None:
    for _, batch in zip(range(SOME), watched, strict=False):
        loop.step(batch)


def counts_last(loop: Loop, watched: Any) -> None:
    for batch, _ in zip(watched, range(SOME), strict=False):
        loop.step(batch)


def generates(loop: Loop, watched: Any) -> None:
    def batches() -> Iterator[Any]:
        yield from watched

    breaks(loop, batches())


def told() -> list[tuple[int, float, float, float]]:
    return [
        (int(row["epoch"]), *(round(float(row[name]) / STEP, 3) for name in ("total", "between", "validation")))
        for row in rows()
    ]


@pytest.mark.parametrize("leave", [breaks, raises, returns, slices, counts_first, counts_last, generates])
def test_a_loop_is_over_where_the_script_leaves_it(leave: Callable[..., Any], standstill: Standstill) -> None:
    loop = Loop(standstill)
    watched = strobe.watch(loop.loader(), directory="here", report=False)
    for _ in range(2):
        leave(loop, watched)
        standstill.nap(LONG)
    loops.close()
    epoch = [(1, 0, 0)] * (SOME - 1)
    follows = told()[-1][2]  # what follows the last epoch is the record's end, or nothing
    assert told() == [(0, *step) for step in (*epoch, (1, LONG / STEP, 0))] + [
        (1, *step) for step in (*epoch, (1, follows, 0))
    ]


def test_of_a_loop_that_is_held_all_but_the_last_step_is_told(standstill: Standstill) -> None:
    loop, held = Loop(standstill), []
    watched = strobe.watch(loop.loader(), directory="here", report=False)
    for _ in range(2):
        held.append(iter(watched))
        for _ in range(SOME):
            loop.step(next(held[-1]))
        standstill.nap(LONG)  # within the step, or after it
    loops.close()
    epoch = [(1, 0, 0)] * (SOME - 2)
    assert told() == [(0, *step) for step in (*epoch, (1, (LONG + STEP) / STEP, 0))] + [
        (1, *step) for step in (*epoch, (1, 0, 0))
    ]


def test_another_training_after_a_loop_that_was_left_is_another_record(standstill: Standstill) -> None:
    loop = Loop(standstill)
    breaks(loop, strobe.watch(loop.loader(), directory="here", report=False))
    other = Loop(standstill, seed=8)
    other.train(strobe.watch(other.loader(), directory="here", report=False))
    loops.close()
    assert [len(rows(name)) for name in ("here", "here-2")] == [SOME, STEPS - 1]  # its first update shows it


@pytest.mark.parametrize("shared", [True, False], ids=["the same loader", "its own loader"])
def test_another_training_that_validates_after_its_first_step_is_another_record(
    shared: bool, standstill: Standstill
) -> None:
    loop, other = Loop(standstill), Loop(standstill, seed=8)
    loader = loop.loader()
    loop.train(strobe.watch(loader, directory="here", report=False))
    for number, batch in enumerate(strobe.watch(loader if shared else loop.loader(), directory="here", report=False)):
        other.step(batch)
        if number == 0:
            with torch.no_grad():
                for held_out in strobe.watch(loop.loader()):
                    other.loss(held_out)
    loops.close()
    assert [len(rows(name)) for name in ("here", "here-2")] == [STEPS, STEPS - 1]


def test_another_training_whose_batches_each_come_from_an_iterator_of_its_own_is_one_record(
    standstill: Standstill,
) -> None:
    loop, other = Loop(standstill), Loop(standstill, seed=8)
    watched = strobe.watch(loop.loader(), directory="here", report=False)
    loop.train(watched)
    for _ in range(STEPS):
        other.step(next(iter(watched)))
    loops.close()
    assert [len(rows(name)) for name in ("here", "here-2")] == [STEPS, STEPS - 1]
    assert {path.name for path in Path().iterdir()} == {"here", "here-2"}


@pytest.mark.parametrize("where", ["before the step", "after it"])
@pytest.mark.parametrize("ends", ["with its loader", "by break", "while it is held"])
def test_a_validation_within_a_training_loop_is_in_no_step(where: str, ends: str, standstill: Standstill) -> None:
    loop, held = Loop(standstill), []
    held_out = strobe.watch(loop.loader())

    @torch.no_grad()
    def validate() -> None:
        batches = iter(held_out)
        for number, batch in enumerate(batches, 1):
            loop.loss(batch)
            if ends != "with its loader" and number == SOME:
                break
        if ends == "while it is held":
            held.append(batches)

    for number, batch in enumerate(strobe.watch(loop.loader(), directory="here", report=False)):
        if number == 6 and where == "before the step":
            validate()
        loop.step(batch)
        if number == 5 and where == "after it":
            validate()
            standstill.nap(LONG)  # such as the end of the loader's workers
    loops.close()
    lasts, rest = STEPS if ends == "with its loader" else SOME, LONG / STEP if where == "after it" else 0
    expected = [(0, 1, 0, 0)] * STEPS
    expected[5] = (0, 1, rest, lasts)
    if ends == "while it is held":  # it lasts until the script asks for the next batch to train on
        expected[5 : 6 if rest else 7] = [(0, 1, 0, lasts + (rest or 1))]
    assert told() == expected


@pytest.mark.parametrize("before", [0, 1], ids=["the first epoch", "a later one"])
def test_a_validation_may_precede_the_first_update(before: int, standstill: Standstill) -> None:
    loop = Loop(standstill)
    held_out = strobe.watch(loop.loader())
    loop.train(strobe.watch(loop.loader(), directory="here", report=False), epochs=before)
    for number, batch in enumerate(strobe.watch(loop.loader(), directory="here", report=False)):
        if number == 0:
            with torch.no_grad():
                for unseen in held_out:
                    loop.loss(unseen)
        loop.step(batch)
    loops.close()
    # The first two updates of a loader that was not known show that it is trained on, the second one after the
    # validation.
    assert [row[:2] for row in told()] == [(0, 1)] * STEPS + [(1, 1)] * (STEPS - 2) * before
    if before:
        assert told()[STEPS - 1][3] == STEPS


def test_a_loop_goes_on_after_another_one_over_the_same_loader(standstill: Standstill) -> None:
    loop = Loop(standstill)
    watched = strobe.watch(loop.loader(), directory="here", report=False)
    for number, batch in enumerate(watched):
        loop.step(batch)
        if number == SOME:
            slices(loop, watched)
    loops.close()
    epochs = [row[0] for row in told()]
    # The step in which the other loop begins is not told, nor the one that shows that the first loop goes on.
    assert epochs == [0] * SOME + [1] * SOME + [2] * (STEPS - SOME - 2)


def test_a_look_at_the_first_batch_is_no_epoch(standstill: Standstill) -> None:
    loop = Loop(standstill)
    watched = strobe.watch(loop.loader(), directory="here", report=False)
    assert len(next(iter(watched))) == 4
    loop.train(watched)
    loops.close()
    assert told() == [(0, 1, 0, 0)] * STEPS


def test_each_batch_may_come_from_an_iterator_of_its_own(standstill: Standstill) -> None:
    loop = Loop(standstill, "data")
    watched = strobe.watch(loop.loader(), directory="here", report=False)
    for number in range(STEPS):
        batch = next(iter(watched))
        if number != 5:  # a look
            loop.step(batch)
    loops.close()
    assert [row[:2] for row in told()] == [(epoch, 1 + SLOW / STEP) for epoch in range(STEPS - 1)]
    assert [float(row["data_wait"]) for row in rows()] == pytest.approx([SLOW] * (STEPS - 1))
