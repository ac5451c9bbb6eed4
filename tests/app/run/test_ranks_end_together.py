"""Ranks agree on a batch after which they end, or requeue their job; here they are objects with one store."""

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
import torch.distributed as dist

from strobe.app.run.ending import Ending
from strobe.attach import ending
from strobe.process.signals import AskedToEnd, Requests

STEPS = 40


@pytest.fixture
def requeued() -> list[tuple[int, int]]:
    """Which rank requeued its job, and when."""
    return []


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch, requeued: list[tuple[int, int]]) -> list[Ending]:
    """Three ranks whose training has begun."""
    store = dist.HashStore()
    monkeypatch.setattr(ending, "common_store", lambda: store)
    found = []
    for rank in range(3):
        one = Ending(Requests())
        connector = SimpleNamespace(
            _slurm_sigusr_handler_fn=lambda _, __, rank=rank, one=one: requeued.append((rank, one._place[0]))
        )
        trainer: Any = SimpleNamespace(callbacks=[], global_rank=rank, world_size=3, _signal_connector=connector)
        trainer._accelerator_connector = SimpleNamespace(cluster_environment=None)
        trainer.strategy = SimpleNamespace(launcher=None)
        one.join(trainer)
        trainer.callbacks.append("another")
        one.setup(trainer, None, "fit")
        assert trainer.callbacks == ["another", one]
        assert connector._slurm_sigusr_handler_fn == one._hear_slurm
        found.append(one)
    return found


def trained(ranks: list[Ending], asked: dict[int, int]) -> Iterator[tuple[int, int]]:
    """Let each rank train by turns, and look within every second step; rank and step of each that ends."""
    going = dict(enumerate(ranks))
    for step in range(1, STEPS + 1):
        for told in (asked if step > 4 else {}, {}, {}) if step % 2 else ():  # in the end all have heard of all
            for rank, one in going.items():
                one.look(told.get(rank))
        for rank, one in list(going.items()):
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
def test_all_requeue_after_the_same_step_and_train_on(
    ranks: list[Ending], asked: int, requeued: list[tuple[int, int]]
) -> None:
    for times in (1, 2):
        ranks[asked]._hear_slurm()
        assert not list(trained(ranks, {}))
        assert sorted(rank for rank, _ in requeued) == sorted([0, 1, 2] * times)
        assert len({step for _, step in requeued}) == times


def test_where_a_rank_hears_of_it_too_late_the_others_go_on_to_its_next_batch(ranks: list[Ending]) -> None:
    """As in a validation, in which no rank waits for another, but all do at its end."""

    def validated(one: Ending) -> ending.Place:
        with suppress(AskedToEnd):
            while True:
                one.on_validation_batch_end()
        return one._place

    *others, late = ranks
    others[0].look(signal.SIGTERM)
    others[1].look(None)
    for _ in range(7):
        late.on_validation_batch_end()
    late.look(None)
    with ThreadPoolExecutor() as pool:
        ended = [pool.submit(validated, one) for one in ranks]
        for one in ranks * 2:
            one.look(None)
        assert {each.result() for each in ended} == {(0, 8)}


def test_a_rank_waits_for_no_answer_for_ever(ranks: list[Ending], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "LONGEST", 0.1)
    ranks[0]._hear_slurm()
    ranks[0].look(None)
    with pytest.raises(TimeoutError, match="it has died or hangs"):
        ranks[0].on_train_batch_end()


def test_no_rank_waits_for_one_whose_training_is_over(ranks: list[Ending]) -> None:
    gone = ranks.pop()
    for agreement in (gone._end, gone._requeue):
        assert agreement is not None
        agreement.leave()
    assert not list(trained(ranks, {0: signal.SIGTERM}))
    assert [one._end and one._end.number for one in ranks] == [signal.SIGTERM] * 2


def test_no_rank_waits_where_the_store_has_gone(ranks: list[Ending], monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: Any) -> bool:
        raise dist.DistNetworkError("Broken pipe")

    one = ranks[1]
    one.look(signal.SIGTERM)
    assert one._end is not None
    monkeypatch.setattr(one._end, "_store", SimpleNamespace(check=lost))
    one.look(signal.SIGTERM)
    with pytest.raises(AskedToEnd):
        one.on_train_batch_end()
