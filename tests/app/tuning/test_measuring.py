"""Which trainings are begun for a comparison, by made-up trainings; sides that are measured alone."""

import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from strobe.app.config.schema import TuneConfig
from strobe.app.tuning import measuring
from strobe.app.tuning.measuring import Measuring
from strobe.measure.timing import Block
from strobe.process.fork import Failure, members

SLOW, QUICK, EVEN, HUGE = (["loader=slow"], ["loader=quick"], ["loader=even"], ["loader=huge"])
RATES = {"loader=slow": 100.0, "loader=quick": 200.0, "loader=even": 199.0, "loader=huge": 300.0}
OUT = Failure("CUDA out of memory", memory=True)


class Trains:
    """A training that has a rate by its overrides; a huge one has no room beside another one."""

    alive: ClassVar[list["Trains"]] = []
    begun: ClassVar[list[str]] = []

    def __init__(self, overrides: Sequence[str], folder: Path, *, timeout: float) -> None:
        self.name = overrides[-1]
        self.session: int | None = None
        self.turns = 0

    def start(self) -> Block | Failure:
        self.begun.append(self.name)
        if self.name == "loader=huge" and self.alive:
            return OUT
        self.alive.append(self)
        self.session = 1
        return Block(10, 0.1, 1)

    def turn(self, seconds: float) -> Block | Failure:
        self.turns += 1
        wobble = 1 + 0.001 * math.sin(self.turns * len(self.name))
        return Block(round(1e4 * RATES[self.name] * wobble), 1e4, 10)

    def close(self) -> None:
        self.session = None
        if self in self.alive:
            self.alive.remove(self)

    def __enter__(self) -> "Trains":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Measuring]:
    monkeypatch.setattr(measuring, "Trainee", Trains)
    monkeypatch.setattr(Trains, "alive", [])
    monkeypatch.setattr(Trains, "begun", [])
    with Measuring(tmp_path, TuneConfig(), deadline=time.monotonic() + 1000) as found:
        yield found
    assert Trains.alive == []


def names() -> list[str]:
    return sorted(one.name for one in Trains.alive)


def test_the_better_one_stays_ready_for_the_next_comparison(machine: Measuring) -> None:
    assert machine.compare(SLOW, QUICK, among=10).verdict == "faster"
    assert names() == QUICK
    assert machine.compare(QUICK, SLOW, among=10).verdict in ("slower", "no difference")
    assert names() == QUICK
    assert machine.compare(SLOW, QUICK).is_needed  # what is needed stands on the other side
    assert names() == QUICK
    assert not machine.compare(QUICK, EVEN).is_needed
    assert names() == QUICK
    assert Trains.begun == ["loader=slow", "loader=quick", "loader=slow", "loader=slow", "loader=even"]
    assert machine.trainings == len(Trains.begun)


def test_a_proof_begins_both_anew_and_leaves_none(machine: Measuring) -> None:
    machine.compare(SLOW, QUICK, among=10)
    assert machine.compare(SLOW, QUICK, proof=True).verdict == "faster"
    assert Trains.begun == 2 * ["loader=slow", "loader=quick"]
    assert names() == []


def test_what_has_no_room_beside_the_other_is_measured_alone(machine: Measuring) -> None:
    outcome = machine.compare(QUICK, HUGE, among=10)
    assert (outcome.verdict, outcome.error) == ("faster", None)
    assert outcome.ratio is not None
    assert outcome.ratio["median"] == pytest.approx(1.5, rel=0.01)
    assert names() == []


def test_a_training_that_has_ended_is_begun_anew_once(machine: Measuring, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.compare(SLOW, QUICK, among=10)
    honest = Trains.turn

    def dies(self: Trains, seconds: float) -> Block | Failure:
        if self.name == "loader=quick" and len(Trains.begun) == 3:
            self.close()
            return Failure("its process was ended by SIGTERM")
        return honest(self, seconds)

    monkeypatch.setattr(Trains, "turn", dies)
    assert machine.compare(QUICK, EVEN, among=10).error is None
    assert Trains.begun == ["loader=slow", "loader=quick", "loader=even", "loader=quick"]


SMALL = "model._target_=strobe.validation.injected_faults.SmallClassifier"


def test_sides_are_measured_one_after_the_other_and_what_fails_is_none(tmp_path: Path, sample_root: Path) -> None:
    given = ["data=sample", "data.tiles_per_class=10", f"data.root={sample_root}", "trainer=cpu", "threads=1", SMALL]
    expected = {
        ("model", ""): 8,
        ("model", "data.batch_size=16"): 16,
        ("model", "data.batch_size=4096"): None,  # more than there are
        ("loader", "loader=tifffile engine.num_workers=1"): 8,
    }
    with Measuring(tmp_path, TuneConfig(ceilings_seconds=0.2), deadline=time.monotonic() + 1000) as machine:
        given.append("data.batch_size=8")
        found = {(side, text): machine.alone(given, side, text.split()) for side, text in expected}
        assert machine._alone is not None
        session = machine._alone.pid
    assert {asked: entry and entry["images_per_step"] for asked, entry in found.items()} == expected
    assert all(entry["rate"] > 0 for entry in found.values() if entry)
    assert not members(session)


def test_a_configuration_that_cannot_be_built_has_no_sides(tmp_path: Path) -> None:
    with Measuring(tmp_path, TuneConfig(), deadline=time.monotonic() + 1000) as machine:
        assert machine.alone(["data=sample", "data.batch_size=0"], "model", []) is None
    assert "data.batch_size=0 is out of range" in (tmp_path / "alone" / "output.txt").read_text()
