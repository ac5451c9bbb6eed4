"""The schedule against torch.profiler's own, and what it says beyond that."""

import itertools

import pytest
import torch
from torch.profiler import ProfilerAction

from strobe.callbacks.schedule import ACTIVE, Schedule

SOME = list(itertools.product((0, 2), (0, 1), (0, 1, 3), (0, 1, 2), (1, 3), (0, 1, 2)))


@pytest.mark.filterwarnings("ignore:Profiler won't be using warmup")
@pytest.mark.parametrize("values", SOME)
def test_does_what_torch_does(values: tuple[int, ...]) -> None:
    skip_first, skip_first_wait, wait, warmup, active, repeat = values
    theirs = torch.profiler.schedule(
        wait=wait,
        warmup=warmup,
        active=active,
        repeat=repeat,
        skip_first=skip_first,
        skip_first_wait=skip_first_wait,
    )
    ours = Schedule(*values)
    assert [ours.action(step) for step in range(40)] == [theirs(step) for step in range(40)]


def test_fewer_active_steps_leave_the_cycle_as_long_as_it_was() -> None:
    actions = [Schedule(wait=1, warmup=1, active=4, repeat=2).action(step, active=2) for step in range(13)]
    none, warmup = ProfilerAction.NONE, ProfilerAction.WARMUP
    cycle = [none, warmup, *ACTIVE, none, none]
    assert actions == [*cycle, *cycle, none]


@pytest.mark.parametrize("values", SOME)
@pytest.mark.parametrize("ahead", [0, 1, 3])
def test_tells_in_time_that_steps_will_be_recorded(values: tuple[int, ...], ahead: int) -> None:
    schedule = Schedule(*values)
    for step in range(20):
        expected = any(schedule.action(step + n) in ACTIVE for n in range(ahead + 1))
        assert schedule.records_within(step, ahead) == expected


@pytest.mark.parametrize("name", ["skip_first", "skip_first_wait", "wait", "warmup", "active", "repeat"])
def test_bad_numbers_are_named(name: str) -> None:
    bad = 0 if name == "active" else -1
    with pytest.raises(ValueError, match=f"{name}={bad} "):
        Schedule(**{name: bad})


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "wait 1, warm up 1, record 3 steps; 1 times"),
        (
            {"skip_first": 4, "repeat": 0, "skip_first_wait": 1},
            "skip 4 steps, then wait 1, warm up 1, record 3 steps; until training ends, "
            "the first time without the wait",
        ),
    ],
)
def test_describes_itself(values: dict[str, int], words: str) -> None:
    assert Schedule(**values).describe() == words
