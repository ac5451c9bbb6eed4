"""Trainings that train when they are told to, stand still in between, and leave nothing behind."""

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import Pipe
from pathlib import Path

import pytest
import torch

from strobe.app.engines.resident import require_memory
from strobe.app.engines.torch import lost_batch
from strobe.app.tuning.trainee import Trainee, failure_of, train
from strobe.duel import training
from strobe.measure.timing import Block
from strobe.process.fork import Failure, FreshProcess, members
from strobe.records.places import OUTPUT
from support import faults_of_training
from support.interruptions import interrupt_once
from support.processes import wait_for

BATCH = 8
SMALL = "model._target_=strobe.validation.injected_faults.SmallClassifier"


def given(root: Path, *overrides: str) -> list[str]:
    common = ("data=sample", "data.tiles_per_class=10", f"data.root={root}", "trainer=cpu", "threads=1", SMALL)
    return [*common, f"data.batch_size={BATCH}", "trainer.enable_progress_bar=false", *overrides]


@pytest.fixture(scope="module")
def loading(sample_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Trainee, Block | Failure]]:
    """A training with a worker, which has been started; what it is asked to end or keep, it must not."""
    ending = ("trainer.max_epochs=1", "trainer.limit_train_batches=2", "profiler.active=3", "model.scheduler=one_cycle")
    overrides = given(sample_root, "engine.num_workers=1", "engine.persistent_workers=true", *ending)
    with Trainee(overrides, tmp_path_factory.mktemp("loading"), timeout=100) as trainee:
        yield trainee, trainee.start()


def fault(how: str) -> tuple[str, str]:
    """A callback with which a training goes wrong."""
    return f"+callbacks.fault._target_={faults_of_training.__name__}.Fault", f"+callbacks.fault.how={how}"


def states(session: int) -> list[str]:
    """proc(5): T for what is stopped."""
    return [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] for pid in members(session)]


def cpu_seconds(pids: list[int]) -> float:
    stats = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(int(stat[11]) + int(stat[12]) for stat in stats) / os.sysconf("SC_CLK_TCK")


def failed(call: Callable[[], object]) -> Failure:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - which one it is, is what is looked at
        call()
    return failure_of(caught.value)


def test_it_is_warm_and_takes_turns_without_an_end(loading: tuple[Trainee, Block | Failure]) -> None:
    trainee, ready = loading
    assert isinstance(ready, Block), ready
    assert (ready.images, ready.steps) == (BATCH, 1)
    for seconds in (0.1, 0.5):  # 50 images are trained on, or so: an epoch is 7 steps
        turn = trainee.turn(seconds)
        assert isinstance(turn, Block), turn
        assert turn.seconds >= seconds
        assert turn.steps >= 2
        assert 0 < turn.images <= BATCH * turn.steps
    shortest = trainee.turn(1e-6)
    assert isinstance(shortest, Block), shortest
    assert shortest.steps == 2


def test_it_stands_still_between_turns(loading: tuple[Trainee, Block | Failure]) -> None:
    trainee, _ = loading
    trainee.turn(0.1)
    found = trainee.session
    assert found is not None
    session = members(found)
    assert len(session) == 2  # training and its worker
    assert wait_for(lambda: states(found) == ["T", "T"], 60)  # a process without a core stops once it has one
    before = cpu_seconds(session)
    time.sleep(0.5)
    assert cpu_seconds(session) == before > 0
    assert states(found) == ["T", "T"]


@pytest.mark.parametrize(
    ("override", "reason"),
    [
        ("loader=nix", "Could not find 'loader/nix'"),
        ("data.batch_size=0", "data.batch_size=0 is out of range; it must be at least 1"),
        ("trainer.devices=2", "trainer.devices=2: trainings take turns on one device only"),
        ("trainer.precision=bf17", "trainer.precision=bf17 is not a choice"),
    ],
)
def test_a_users_mistake_is_told_in_its_own_words(
    sample_root: Path, tmp_path: Path, *, override: str, reason: str
) -> None:
    ours, _ = Pipe()
    failure = failed(lambda: train(ours, given(sample_root, override), tmp_path))
    assert reason in failure.reason
    assert not failure.memory
    assert "\n" not in failure.reason
    assert "Error:" not in failure.reason


@pytest.mark.parametrize(
    ("how", "failure"),
    [
        ("mistake", Failure("ValueError: a mistake of ours")),
        ("killed", Failure("its process was ended by SIGKILL, for example because memory ran out", memory=True)),
        ("ends", Failure("its training ended by itself after 2 steps; remove what ends it")),
    ],
)
def test_what_goes_wrong_is_a_failure(sample_root: Path, tmp_path: Path, *, how: str, failure: Failure) -> None:
    with Trainee(given(sample_root, *fault(how)), tmp_path, timeout=100) as trainee:
        assert trainee.start() == failure
        assert trainee.session is None
    assert "about to go wrong" in (tmp_path / OUTPUT).read_text()


def test_a_turn_that_hangs_is_a_failure(sample_root: Path, tmp_path: Path) -> None:
    with Trainee(given(sample_root, *fault("hangs")), tmp_path, timeout=100) as trainee:
        ready = trainee.start()
        assert isinstance(ready, Block), ready
        trainee.timeout = 0.9
        assert trainee.turn(0.1) == Failure("it took more than 1 s")
        assert trainee.session is None


def test_ctrl_c_ends_a_turn_and_closing_all_the_rest(sample_root: Path, tmp_path: Path) -> None:
    with Trainee(given(sample_root, "engine.num_workers=1"), tmp_path, timeout=100) as trainee:
        ready = trainee.start()
        session = trainee.session
        assert session is not None, ready
        with ThreadPoolExecutor(1) as pool:
            pool.submit(interrupt_once, lambda: "T" not in states(session))
            with pytest.raises(KeyboardInterrupt):
                trainee.turn(60)
        assert len(members(session)) == 2
    assert not members(session)
    trainee.close()
    assert trainee.session is None
    assert trainee.turn(0.1) == Failure("its training has ended")


def test_it_ends_with_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A guard, which tests of processes try out, sees to that."""
    started: list[dict[str, object]] = []

    class Fake(FreshProcess):
        def __init__(self, *_: object, **options: object) -> None:
            started.append(options)
            raise InterruptedError

    monkeypatch.setattr(training, "FreshProcess", Fake)
    with pytest.raises(InterruptedError), Trainee([], tmp_path, timeout=1) as trainee:
        trainee.start()
    assert [options["guarded"] for options in started] == [True]


def no_room() -> None:
    raise lost_batch(RuntimeError("unable to write to file </torch_1>: No space left on device (28)")) or AssertionError


def killed_worker() -> None:
    raise RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed. ")


def out_of_memory() -> None:
    raise MemoryError


@pytest.mark.parametrize(
    "call",
    [
        lambda: torch.empty(2**50),
        lambda: require_memory({"train": 2**60}, 1, torch.device("cpu")),
        no_room,
        killed_worker,
        out_of_memory,
    ],
)
def test_running_out_of_memory_is_told_from_other_errors(call: Callable[[], object]) -> None:
    failure = failed(call)
    assert failure.memory, failure
    assert "\n" not in failure.reason
    assert not failed(lambda: torch.zeros(2) @ torch.zeros(3)).memory
