"""One directory for all ranks, whichever of them fails."""

from datetime import timedelta
from itertools import count
from pathlib import Path

import pytest
import torch.distributed

from strobe.attach import loops, place, ranks, training
from strobe.attach.ranks import shared_directory
from strobe.attach.settings import Asked


@pytest.fixture(autouse=True)
def _store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two ranks take turns in this process: each number is given twice."""
    store = torch.distributed.HashStore()
    monkeypatch.setattr(ranks, "common_store", lambda: store)
    monkeypatch.setattr(ranks, "_fits", (number // 2 for number in count()))
    monkeypatch.setattr(ranks, "PATIENCE", timedelta(milliseconds=20))


def none() -> Path:
    raise AssertionError("rank 1 names no directory")


def test_rank_0_names_it_for_each_training() -> None:
    for name in ("first", "second"):
        assert shared_directory(0, 2, lambda name=name: Path(name)) == Path(name)  # type: ignore[misc]
        assert shared_directory(1, 2, none) == Path(name)


def test_where_rank_0_fails_or_is_silent_the_other_records_nothing_and_goes_on() -> None:
    def full() -> Path:
        raise OSError("No space left on device")

    with pytest.raises(OSError, match="No space"):
        shared_directory(0, 2, full)
    assert shared_directory(1, 2, none) is None
    assert shared_directory(1, 2, none) is None


def test_a_rank_without_a_directory_waits_for_one_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "_stopped", False)
    monkeypatch.setattr(training, "rank", lambda: 1)
    monkeypatch.setattr(training, "ranks", lambda: 2)
    for _ in range(3):
        assert loops.batches_of(Asked([], None, None, None, report=False)) is None
    assert [next(ranks._fits) for _ in range(2)] == [0, 1]  # it asked for one directory


def test_what_a_rank_keeps_to_itself_stops_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "_stopped", False)
    place.tell(ArithmeticError("Strobe's own"), None, rank=1)
    assert place.has_stopped()
