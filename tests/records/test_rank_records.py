"""Who is slow, how and why, told from rows with a known truth; and nobody where ranks differ by chance alone."""

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from strobe.records.joining import measure_ranks
from strobe.records.ranks import FEWEST
from support.straggling import BASE, Case, Rows, case, told

LENGTHS = np.random.default_rng(6).uniform(0.5, 2, (4, 400))


def constant(ranks: int, seed: int) -> Case:
    return case(lambda rank, step: BASE * (rank == 1), ranks=ranks, seed=seed)


def now_and_then(ranks: int, seed: int) -> Case:
    return case(lambda rank, step: 2 * BASE * (rank == 1 and step % 4 == 1), ranks=ranks, seed=seed)


def alternating(ranks: int, seed: int) -> Case:
    return case(lambda rank, step: BASE * (step % ranks == rank), phase="callbacks", ranks=ranks, seed=seed)


def growing(ranks: int, seed: int) -> Case:
    return case(lambda rank, step: BASE * step / 60 * (rank == 0), phase="forward", ranks=ranks, seed=seed)


def becoming(ranks: int, seed: int) -> Case:
    return case(lambda rank, step: BASE * (step >= 60) * (rank == 1), phase="forward", ranks=ranks, seed=seed)


def uneven_batches(ranks: int, seed: int) -> Case:
    return case(elements=lambda rank, step: float(LENGTHS[rank, step]), ranks=ranks, seed=seed)


def uneven_data(ranks: int, seed: int) -> Case:
    return case(elements=lambda rank, step: 1.6 if rank == 1 else 1.0, ranks=ranks, seed=seed)


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize(
    ("make", "truth"),
    [
        (constant, ("constant", 1, "data_wait", None)),
        (now_and_then, ("constant", 1, "data_wait", None)),
        (alternating, ("alternating", None, "callbacks", None)),
        (growing, ("growing", 0, "forward", None)),
        (becoming, ("growing", 1, "forward", None)),
        (uneven_batches, ("alternating", None, "backward", "batches")),
        (uneven_data, ("constant", 1, "backward", "batches")),
    ],
)
def test_rank_cause_and_pattern_are_right_and_so_are_slow_down_and_gain(
    make: Callable[[int, int], Case], truth: tuple[object, ...], ranks: int
) -> None:
    held, repeats = 0, 8
    for seed in range(repeats):
        made = make(ranks, seed)
        found = told(made.rows)
        slowest = found["slowest"] if found["pattern"] != "alternating" else None
        assert (found["pattern"], slowest, found["phase"], found["uneven"]) == truth, seed
        assert found["slowdown"]["median"] == pytest.approx(made.slowdown, rel=0.1)
        assert found["speedup"]["median"] == pytest.approx(made.without, rel=0.05)
        held += found["speedup"]["low"] <= made.without <= found["speedup"]["high"]
    assert held >= repeats - 2  # of 95% intervals


@pytest.mark.parametrize("stalled", [0, 1])
@pytest.mark.parametrize("seconds", [2 * BASE, 40 * BASE])
def test_a_stall_of_one_rank_hides_no_other_that_is_always_slow(seconds: float, stalled: int) -> None:
    made = case(
        lambda rank, step: BASE * (rank == 1) + seconds * (rank == stalled and step == 12), phase="forward", steps=24
    )
    found = told(made.rows)
    assert (found["pattern"], found["slow"], found["phase"]) == ("constant", [1], "forward")
    if stalled == 0:
        assert found["extra_seconds"] == pytest.approx(BASE, rel=0.2)


@pytest.mark.parametrize("noise", [0.1, 0.3])
@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_that_differ_by_chance_are_not_called_slow(ranks: int, noise: float) -> None:
    alarms = [told(case(ranks=ranks, noise=noise, seed=seed, steps=40 + 10 * seed).rows) for seed in range(40)]
    assert [found["pattern"] for found in alarms] == [None] * 40
    assert all(found["slowdown"]["median"] > 1 for found in alarms)  # chance costs what it costs


def test_the_start_of_growth_the_share_of_steps_and_the_callback_are_told() -> None:
    assert told(becoming(2, 0).rows)["since_step"] == pytest.approx(60, abs=6)
    assert told(becoming(2, 0).rows)["extra_seconds"] == pytest.approx(BASE, rel=0.1)
    assert told(now_and_then(2, 0).rows)["extra_seconds"] == pytest.approx(BASE / 2, rel=0.1)
    assert told(constant(2, 0).rows)["share"] == pytest.approx(1.0, abs=0.05)
    assert told(alternating(4, 0).rows)["share"] == pytest.approx(1.0, abs=0.05)
    assert told(alternating(4, 0).rows)["owner"] == "callbacks/Slow"
    assert told(alternating(4, 0).rows)["slow"] == [0, 1, 2, 3]


def test_of_two_slow_ranks_of_four_both_are_named() -> None:
    found = told(case(lambda rank, step: BASE * (rank in {2, 3}), ranks=4).rows)
    assert (found["pattern"], found["slow"]) == ("constant", [2, 3])
    assert found["speedup"]["median"] == pytest.approx(1.9, rel=0.1)


def test_where_gradients_are_accumulated_ranks_may_take_turns_within_an_update() -> None:
    made = case(lambda rank, step: BASE * (step % 2 == rank)).rows
    assert told(made)["pattern"] == "alternating"
    for found in made.values():
        for step, row in found.items():
            row["updates"] = step % 2
    even = told(made)
    assert (even["pattern"], even["slowdown"]["n"]) == (None, 59)
    assert even["own_seconds"]["0"] == pytest.approx(1.5 * BASE, rel=0.1)


@pytest.mark.parametrize("pattern", ["alternating", "growing"])
@pytest.mark.parametrize("stall", [4, 20])
def test_a_step_in_which_all_ranks_stall_hides_no_pattern(stall: int, pattern: str) -> None:
    """As on a machine of which something else takes the cores for a moment."""

    def extra(rank: int, step: int) -> float:
        return BASE * (step % 2 == rank if pattern == "alternating" else step / 24 * (rank == 1))

    made = case(extra, phase="forward", steps=48, noise=0.3).rows
    for rank, phase, seconds in ((0, "forward", stall * BASE), (1, "backward", (stall - 1) * BASE)):
        for name in (phase, "total"):
            made[rank][18][name] += seconds
    assert (told(made)["pattern"], told(made)["phase"]) == (pattern, "forward")


def test_waiting_is_in_no_phase_of_own_work() -> None:
    made = constant(2, 0).rows
    found = told(made)
    for rank in ("0", "1"):
        assert sum(found["phases"][rank].values()) == pytest.approx(found["own_seconds"][rank])
    assert found["phases"]["0"]["backward"] == pytest.approx(found["phases"]["1"]["backward"], rel=0.1)
    assert found["first"]["waits"]["backward"] == pytest.approx(found["waits"]["0"])
    assert found["first"]["exchange"] == pytest.approx(1e-3)
    assert found["first"]["extra"] == {}
    assert told(growing(2, 0).rows)["first"]["extra"]["forward"] == pytest.approx(BASE, rel=0.1)


def test_each_rank_and_part_of_the_run_has_a_place_in_the_heat_map() -> None:
    heat = told(becoming(4, 0).rows)["heat"]
    assert [len(row) for row in heat["ranks"]] == [len(heat["steps"])] * 4
    assert len(heat["steps"]) == 60  # of 117 steps
    assert heat["ranks"][1][0] == pytest.approx(1, abs=0.15)
    assert heat["ranks"][1][-1] == pytest.approx(2 / 1.25, rel=0.1)


def test_of_few_steps_nothing_is_concluded() -> None:
    assert told(case(lambda rank, step: BASE * rank, steps=FEWEST + 2).rows)["pattern"] is None
    assert told(case(lambda rank, step: BASE * rank, steps=2).rows)["slowdown"] is None


def test_on_gpus_the_devices_tell_who_waits_and_their_idling_what_for() -> None:
    rows = constant(2, 0).rows
    for row in (row for found in rows.values() for row in found.values()):
        row |= {f"device_{name}": row[name] for name in ("total", "transfer", "forward", "backward", "optimizer")}
        row["device_idle"] = row["data_wait"] + row["callbacks"] + row["other"]
        row["device_exposed_wait"] = row["exposed_wait"]
        row |= {"other": row["other"] + row["backward"], "backward": 0.0}  # the host asks for a result between steps
        row |= {"exposed_wait": 0.0, "wait_backward": 0.0}
    found = told(rows)
    assert (found["pattern"], found["slowest"], found["phase"]) == ("constant", 1, "data_wait")
    assert found["slowdown"]["median"] == pytest.approx(4 / 3, rel=0.1)


def write(rows: Rows, folder: Path) -> None:
    (folder / "ranks").mkdir(exist_ok=True)
    for rank, found in rows.items():
        with (folder / (f"ranks/{rank}.csv" if rank else "steps.csv")).open("w", newline="") as file:
            lines = csv.DictWriter(file, next(iter(found.values())))
            lines.writeheader()
            lines.writerows(found.values())


def test_of_a_long_run_the_last_steps_are_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strobe.records.joining.MOST_ROWS", 160)
    monkeypatch.setattr("strobe.records.joining.FEWEST_JOINED", 10)
    monkeypatch.setattr("strobe.records.step_table.LONGEST_ROW", 320)
    write(becoming(2, 0).rows, tmp_path)
    found = measure_ranks(tmp_path, 2) or {}
    assert (found["steps"], found["coverage"], found["heat"]["steps"][0]) == (77, 1.0, 43)


def test_the_files_of_all_ranks_are_joined_by_step_and_missing_ones_told(tmp_path: Path) -> None:
    rows = constant(2, 0).rows
    rows[1] = dict(list(rows[1].items())[:63])  # a rank that was killed
    write(rows, tmp_path)
    found = measure_ranks(tmp_path, 2) or {}
    assert found["coverage"] == pytest.approx(60 / 117)
    assert found["slowdown"]["n"] == 60
    assert (found["ranks"], found["slowest"]) == ([0, 1], 1)
    assert measure_ranks(tmp_path, 1) is None
    (tmp_path / "ranks" / "1.csv").write_text("step,total\nnonsense\n")
    alone = measure_ranks(tmp_path, 2) or {}
    assert (alone["ranks"], alone["coverage"], alone["slowdown"], alone["pattern"]) == ([0], 0.0, None, None)
    assert alone["waits"]["0"] == pytest.approx(BASE, rel=0.1)
    old = {0: {step: {key: row[key] for key in row if key != "exposed_wait"} for step, row in rows[0].items()}}
    write(old, tmp_path)
    assert (measure_ranks(tmp_path, 2) or {})["waits"] is None
    (tmp_path / "steps.csv").unlink()
    assert measure_ranks(tmp_path, 2) is None
