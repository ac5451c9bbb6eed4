"""Ranks agree on a step after which they end, or requeue their job; here they are objects with one store."""

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
import torch.distributed as dist

from strobe.app.run import ending
from strobe.app.run.ending import Ending
from strobe.process.signals import AskedToEnd, Requests

STEPS = 40


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> list[Ending]:
    """Three ranks whose training has begun."""
    store = dist.HashStore()
    monkeypatch.setattr(ending, "common_store", lambda: store)
    found = []
    for rank in range(3):
        one = Ending(Requests())
        strategy = SimpleNamespace(launcher=None)
        trainer: Any = SimpleNamespace(callbacks=[], global_rank=rank, world_size=3, strategy=strategy)
        one.join(trainer)
        trainer.callbacks.append("another")
        one.setup(trainer, None, "fit")
        assert trainer.callbacks == ["another", one]
        found.append(one)
    return found


def trained(ranks: list[Ending], asked: dict[int, int]) -> Iterator[tuple[int, int]]:
    """Let each rank train by turns, and look after every second step; rank and step of each that ends."""
    going = dict(enumerate(ranks))
    for step in range(1, STEPS + 1):
        for rank, one in list(going.items()):
            if step % 2:
                number = one.look(asked.get(rank) if step > 4 else None)
                one._requests.number = one._requests.number or number
            try:
                one.on_train_batch_end()
            except AskedToEnd:
                del going[rank]
                yield rank, step


@pytest.mark.parametrize("asked", [0, 1, 2])
def test_all_end_after_the_same_step_whichever_was_asked(ranks: list[Ending], asked: int) -> None:
    ended = dict(trained(ranks, {asked: signal.SIGTERM}))
    assert sorted(ended) == [0, 1, 2]
    assert len(set(ended.values())) == 1
    assert max(ended.values()) < STEPS
    assert [one._requests.number for one in ranks] == [signal.SIGTERM] * 3


@pytest.mark.parametrize("asked", [0, 2])
def test_all_requeue_after_the_same_step_and_train_on(ranks: list[Ending], asked: int) -> None:
    done: list[tuple[int, int]] = []
    for rank, one in enumerate(ranks):
        one._lightnings = lambda number, _, rank=rank, one=one: done.append((rank, one._batches))
    for times in (1, 2):
        ranks[asked]._hear_slurm()
        assert not list(trained(ranks, {}))
        assert sorted(rank for rank, _ in done) == sorted([0, 1, 2] * times)
        assert len({step for _, step in done}) == times


def test_where_a_rank_hears_of_it_too_late_the_others_go_on_to_its_next_batch(ranks: list[Ending]) -> None:
    """As in a validation, in which no rank waits for another, but all do at its end."""

    def validated(one: Ending) -> int:
        with suppress(AskedToEnd):
            while True:
                one.on_validation_batch_end()
        return one._batches

    *others, late = ranks
    for _ in range(7):
        late.on_validation_batch_end()
    others[0].look(signal.SIGTERM)  # it proposes the second one
    with ThreadPoolExecutor() as pool:
        ended = [pool.submit(validated, one) for one in ranks]
        for one in ranks * 3:
            one.look(None)
        assert len({each.result() for each in ended}) == 1
