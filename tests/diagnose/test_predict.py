"""The model of a step: against a simulated queue, by hand, and by what must hold of any prediction."""

import math
import random
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from strobe.diagnose.predict import Step, after, step_of, with_both, with_loader, with_model, without, without_waiting
from strobe.records.run import Figure, Record
from support.recorded import CAUSES, example

MILLI = 1e-3


def about(rate: float, noise: float = 0.0) -> Figure:
    return Figure(rate, rate * (1 - noise), rate * (1 + noise))


SERIAL = Step(
    images=32,
    wait=3 * MILLI,
    compute=2 * MILLI,
    per_step=0.2 * MILLI,
    between=0.0,
    busy=0.0,
    noise=0.0,
    drift=0.0,
    workers=0,
    loader=about(1 / (3 * MILLI)),
    model=about(1 / (1.8 * MILLI)),
    cores=None,
    loader_cpu=3 * MILLI,
    model_cpu=3.6 * MILLI,
)


@pytest.mark.parametrize("workers", [0, 2])
def test_loading_and_computing_that_change_together_are_predicted_together(workers: int) -> None:
    step = replace(SERIAL, workers=workers, wait=(1 if workers else 3) * MILLI)
    both = with_both(
        step, about(2 / (3 * MILLI)), about(2 / (1.8 * MILLI)), workers=workers, images=32, cpus=(None, None)
    )
    # In turn 1.5 ms and 0.9 ms with 0.2 ms of callbacks; beside workers the slower of them.
    assert both.median == pytest.approx(step.length / ((1.5 if workers else 2.6) * MILLI))
    assert both.low <= both.median <= both.high
    later = after(step, about(2 / (1.8 * MILLI)), images=64)
    assert later.compute == pytest.approx((0.1 + 0.9) * MILLI)  # the callback is paid once for twice as many images
    assert step.total / later.total == pytest.approx(with_model(step, about(2 / (1.8 * MILLI)), images=64).median)


def simulated(
    loading: float, compute: float, workers: int, *, prefetch: int = 2, steps: int = 400, epoch: int = 400
) -> tuple[float, float]:
    """Mean seconds of a step, and of its waiting, by playing the queue of a DataLoader through, batch by batch.

    Of a whole number of epochs: each begins with an empty queue.
    """
    if not workers:
        return loading + compute, loading
    now = waited = 0.0
    for batch in (number % epoch for number in range(steps)):
        if batch == 0:
            asked, free, ready = [now] * (workers * prefetch), [now] * workers, list[float]()
        worker = batch % workers
        free[worker] = max(free[worker], asked[batch]) + loading
        ready.append(free[worker])
        waited += max(0.0, ready[batch] - now)
        now = max(now, ready[batch])
        asked.append(now)  # the next one is asked for when a batch is taken
        now += compute
    return now / steps, waited / steps


def run_of(loading: float, compute: float, workers: int) -> Step:
    """The step that a run with this loader would have recorded, in steps of one image."""
    _, wait = simulated(loading, compute, workers)
    alone = about(max(1, workers) / loading)
    model = about(1 / compute)
    return replace(
        SERIAL, images=1, wait=wait, compute=compute, per_step=0.0, workers=workers, loader=alone, model=model
    )


@pytest.mark.parametrize("before", [(3.0, 0), (3.0, 1), (6.0, 2), (1.5, 0), (0.4, 1)])
@pytest.mark.parametrize("after", [(3.0, 1), (3.0, 4), (1.0, 0), (0.5, 0), (0.5, 2), (8.0, 2)])
def test_another_loader_is_predicted_as_the_queue_behaves(before: tuple[float, int], after: tuple[float, int]) -> None:
    compute = 2.0
    now = run_of(before[0], compute, before[1])
    measured = simulated(before[0], compute, before[1])[0] / simulated(after[0], compute, after[1])[0]
    rate = about(max(1, after[1]) / after[0])
    assert with_loader(now, rate, workers=after[1]).median == pytest.approx(measured, rel=0.02)


@pytest.mark.parametrize("epoch", [5, 10, 40])
@pytest.mark.parametrize("after", [(3.0, 1), (3.0, 4), (8.0, 2), (20.0, 4)])
def test_the_first_batch_of_an_epoch_is_waited_for_whoever_makes_it(after: tuple[float, int], epoch: int) -> None:
    now = replace(run_of(after[0], 2.0, 0), epoch=epoch)
    measured = simulated(after[0], 2.0, 0)[0] / simulated(after[0], 2.0, after[1], epoch=epoch)[0]
    predicted = with_loader(now, about(after[1] / after[0]), workers=after[1])
    assert predicted.median == pytest.approx(measured, rel=0.1)


@pytest.mark.parametrize(("loading", "workers"), [(3.0, 0), (3.0, 1), (6.0, 2), (0.5, 0), (4.0, 4), (9.0, 3)])
@pytest.mark.parametrize("compute", [0.5, 1.0, 1.5, 4.0])
def test_other_computing_is_predicted_as_the_queue_behaves(loading: float, workers: int, compute: float) -> None:
    now = run_of(loading, 2.0, workers)
    measured = simulated(loading, 2.0, workers)[0] / simulated(loading, compute, workers)[0]
    assert with_model(now, about(1 / compute)).median == pytest.approx(measured, rel=0.02)
    if compute < 2.0:
        assert without(now, compute=2.0 - compute).median == pytest.approx(measured, rel=0.02)


def test_a_loader_in_the_training_process_is_waited_for_whole() -> None:
    twice = with_loader(SERIAL, about(2 / (3 * MILLI)), workers=0)
    assert twice.low == pytest.approx(5 / 3.5) == twice.high


def test_cold_files_leave_open_how_much_a_faster_loader_gains() -> None:
    cold = replace(SERIAL, loader=about(1 / MILLI))  # alone, a second time, it loads in a third of the time
    predicted = with_loader(cold, about(2 / MILLI), workers=0)
    assert predicted.high == pytest.approx(5 / 2.5)  # the new one reaches its ceiling
    assert predicted.low == pytest.approx(5 / 4.5)  # or is held up for as long as the old one was
    assert predicted.median == pytest.approx(5 / 4)  # or as much slower as the old one was: between them


def test_on_shared_cores_workers_gain_only_what_was_idle() -> None:
    full = replace(SERIAL, cores=2.0, model_cpu=4 * MILLI)  # two cores, and the model computes on both
    predicted = with_loader(full, about(2 / (3 * MILLI)), workers=2, cpu=3 * MILLI)
    assert predicted.high == pytest.approx(5 / ((3 + 4) / 2))  # all work, on both cores, without a pause
    assert predicted.low == pytest.approx(1.0)  # the model stands still while a worker has its core
    idle = replace(full, cores=8.0)
    assert with_loader(idle, about(2 / (3 * MILLI)), workers=2, cpu=3 * MILLI).high == pytest.approx(5 / 2)
    assert with_loader(idle, about(2 / (3 * MILLI)), workers=2, cpu=3 * MILLI).low > 0.8 * 5 / 2  # not always all


def crowded(alone: float, cpu: float, workers: int, *, cores: int = 2, steps: int = 60) -> float:
    """Mean seconds of a step of 20 operations on all cores, beside workers that each make a batch in turn.

    Played slot by slot: a core that has a worker gives it half of a slot, and an operation ends with its last part.
    """
    chance, slot = random.Random(1), alone / 200
    left, places = [0.0] * workers, [0] * workers
    begins: list[tuple[float, int]] = []
    now = 0.0
    for _ in range(steps):
        begins += [(now + chance.random() * alone, worker) for worker in range(workers)]
        for _ in range(20):
            parts = [alone / 20] * cores
            while max(parts) > 1e-9 or sum(left) > 2 * cpu:
                for begin in [one for one in begins if one[0] <= now]:
                    begins.remove(begin)
                    if not left[begin[1]]:
                        free = set(range(cores)) - {place for place, some in zip(places, left, strict=True) if some}
                        places[begin[1]] = chance.choice(sorted(free or range(cores)))
                    left[begin[1]] += cpu / workers
                for core in range(cores):
                    here = [worker for worker in range(workers) if left[worker] and places[worker] == core]
                    computing = parts[core] > 0
                    share = slot / (len(here) + computing) if here or computing else 0.0
                    parts[core] = max(0.0, parts[core] - share * computing)
                    for worker in here:
                        left[worker] = max(0.0, left[worker] - share)
                now += slot
    return now / steps


@pytest.mark.parametrize(
    ("cpu", "workers", "cores"),
    [(0.25, 1, 2), (0.5, 1, 2), (0.3, 2, 2), (1.0, 2, 2), (3.0, 2, 2), (1.0, 4, 4), (2.0, 2, 4)],
)
def test_computing_is_held_up_as_cores_that_are_shared_in_halves_do(cpu: float, workers: int, cores: int) -> None:
    serial = replace(SERIAL, images=1, wait=cpu, compute=1.0, per_step=0.0, loader=about(1 / cpu), model=about(1.0))
    step = replace(serial, cores=float(cores), model_cpu=float(cores), loader_cpu=cpu)
    predicted = with_loader(step, about(workers / cpu), workers=workers, cpu=cpu)
    assert (1 + cpu) / predicted.median == pytest.approx(crowded(1.0, cpu, workers, cores=cores), rel=0.06)


def test_a_loader_that_waits_takes_no_cores() -> None:
    slow_disk = replace(SERIAL, cores=2.0, model_cpu=4 * MILLI, loader_cpu=0.1 * MILLI)
    assert with_loader(slow_disk, about(2 / (3 * MILLI)), workers=2, cpu=0.1 * MILLI).low > 2.3


def test_workers_that_hurt_are_predicted_to() -> None:
    alone = 2 * MILLI
    crowded = replace(
        SERIAL, workers=4, cores=2.0, wait=0.1 * MILLI, compute=3 * MILLI, model=about(1 / (alone - 0.2 * MILLI))
    )
    assert with_loader(crowded, about(1 / (0.1 * MILLI)), workers=0, cpu=0.1 * MILLI).median > 1.15


def test_a_step_is_no_shorter_than_the_gpu_is_busy() -> None:
    busy = replace(SERIAL, busy=4 * MILLI)
    assert busy.waiting == pytest.approx(1 / 5)
    for predicted in (with_loader(busy, about(1e9), workers=8), without(busy, compute=1.9 * MILLI * 32)):
        assert predicted.high <= 5 / 4 + 1e-9


def test_per_step_costs_are_shared_by_more_images() -> None:
    same = about(1 / (1.8 * MILLI))
    assert with_model(SERIAL, same, images=32).median == pytest.approx(1.0)
    assert with_model(SERIAL, same, images=64).median == pytest.approx(5 / 4.9)


def test_a_loader_is_no_slower_than_the_run_shows() -> None:
    hindered = replace(SERIAL, workers=2, wait=0.1 * MILLI, loader=about(1 / (9 * MILLI)))  # its ceiling was
    assert with_model(hindered, about(1 / (0.1 * MILLI))).median >= 1
    assert without(hindered, compute=MILLI * 32).median >= 1


@pytest.mark.parametrize(("accelerator", "cores"), [("cpu", 16), ("cuda", None)])  # of two hosts
def test_on_a_cpu_cores_are_shared_by_the_ranks_of_a_host(accelerator: str, cores: float | None) -> None:
    ranks = {"devices": 2, "world_size": 4, "environment": {"usable_cores": 8}, "batch_size": 8}
    step = step_of(Record({**ranks, "accelerator": accelerator, "step_seconds": {"total": 0.2, "data_wait": 0.05}}))
    assert step is not None
    assert step.cores == cores


def test_what_lies_between_steps_stays_unless_it_is_taken_away() -> None:
    step = replace(SERIAL, between=5 * MILLI)
    assert with_loader(step, about(1e12), workers=0).high == pytest.approx(10 / 7)
    assert without(step, between=5 * MILLI * 32).median == pytest.approx(2.0)
    assert without(step, between=99.0).median == pytest.approx(2.0)


STEPS = [
    replace(
        SERIAL,
        wait=chance.uniform(0, 4) * MILLI,
        compute=chance.uniform(0.5, 4) * MILLI,
        between=chance.uniform(0, 1) * MILLI,
        noise=chance.uniform(0, 0.1),
        drift=chance.uniform(0, 0.1),
        workers=chance.choice((0, 1, 4)),
        cores=chance.choice((None, 2.0, 16.0)),
        loader=chance.choice((None, about(chance.uniform(200, 4000), 0.03))),
        model=chance.choice((None, about(chance.uniform(200, 4000), 0.03))),
        loader_cpu=chance.choice((None, chance.uniform(0, 4) * MILLI)),
        model_cpu=chance.choice((None, chance.uniform(0, 9) * MILLI)),
    )
    for chance in [random.Random(7)]
    for _ in range(30)
]
PREDICTIONS: dict[str, Callable[[Step, float, float], Figure]] = {
    "loader without workers": lambda step, rate, noise: with_loader(step, about(rate, noise), workers=0),
    "loader with workers": lambda step, rate, noise: with_loader(step, about(rate, noise), workers=2),
    "loader that waits": lambda step, rate, noise: with_loader(step, about(rate, noise), workers=2, cpu=1e-5),
    "model": lambda step, rate, noise: with_model(step, about(rate, noise)),
    "model, larger steps": lambda step, rate, noise: with_model(step, about(rate, noise), images=128),
}


@pytest.mark.parametrize("predict", PREDICTIONS.values(), ids=PREDICTIONS)
def test_what_holds_of_any_prediction(predict: Callable[[Step, float, float], Figure]) -> None:
    rates = [50.0 * 1.5**power for power in range(16)]
    for step in STEPS:
        predicted = [predict(step, rate, 0.02) for rate in rates]
        assert all(faster.median >= slower.median - 1e-12 for slower, faster in pairwise(predicted)), step
        for rate, one in zip(rates, predicted, strict=True):
            assert 0 < one.low <= one.median <= one.high < math.inf, step
            noisier = [
                predict(step, rate, 0.2),
                predict(replace(step, noise=step.noise + 0.1), rate, 0.02),
                predict(replace(step, drift=step.drift + 0.1), rate, 0.02),
            ]
            assert all(other.low <= one.low and one.high <= other.high for other in noisier), step
            assert noisier[1].high / noisier[1].low > one.high / one.low, step
        assert not step.between or predicted[-1].median <= step.total / step.between, step


def test_what_holds_of_any_removal() -> None:
    for step in STEPS:
        assert without(step).median == pytest.approx(1.0)
        savings = [without(step, compute=share * step.compute * step.images) for share in (0.0, 0.1, 0.5, 0.9, 2.0)]
        assert all(less.median <= more.median + 1e-12 for less, more in pairwise(savings)), step
        assert all(one.low <= one.median <= one.high for one in [*savings, without_waiting(step)]), step
        assert without_waiting(step).median >= 1, step


@pytest.mark.parametrize("cause", CAUSES)
def test_a_step_adds_up_to_the_record(cause: str) -> None:
    record = example(cause)
    step = step_of(record)
    assert step is not None
    assert step.length * step.images == pytest.approx(record.summary["step_seconds"]["total"])
    assert 1 / step.total == pytest.approx(record.summary["overall_images_per_second"], rel=1e-4)


def test_an_old_record_has_a_step_too() -> None:
    seconds = {"total": 0.2, "data_wait": 0.05}
    step = step_of(Record({"batch_size": 32, "world_size": 2, "step_seconds": seconds}))
    assert step is not None
    assert step.images == 64
    assert step.noise > 0.1  # unknown is not zero


def test_an_interval_without_bounds_ends_in_no_error() -> None:
    """Two steps of different length have one that reaches over many powers of ten."""
    rates = {"median": 40.0, "low": 1e-3, "high": 1.6e6}
    seconds = {"total": 0.2, "data_wait": 0.05}
    step = step_of(Record({"batch_size": 8, "step_seconds": seconds, "images_per_second": rates}))
    assert step is not None
    found = without(step, compute=0.01)
    assert 0 < found.low < found.median < found.high < math.inf


@pytest.mark.parametrize(
    "seconds", [None, {}, {"total": None}, {"total": 0.0}, {"total": 0.1, "data_wait": 0.1}, "0.1"]
)
def test_without_a_measured_step_there_is_none(seconds: object) -> None:
    assert step_of(Record({"batch_size": 32, "step_seconds": seconds})) is None


def test_a_ratio_by_turns_is_known_better_than_the_two_rates() -> None:
    rates = replace(SERIAL, model=about(1 / (1.8 * MILLI), 0.2), drift=0.3, noise=0.01)
    new = about(2 / (1.8 * MILLI), 0.2)
    apart, turns = with_model(rates, new), with_model(rates, new, ratio=about(2.0, 0.02))
    assert turns.median == pytest.approx(apart.median)
    assert turns.high / turns.low < 1.1
    assert apart.high / apart.low > 1.5
