"""The search over made-up machines: what it keeps, when it ends, and how it goes on after an interruption."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from strobe.present.terminal import ProgressDisplay
from strobe.tune.record import NAME, NOTHING, Outcome, Tuning, begin, resumed
from strobe.tune.search import BUDGET, SHORT, Search
from support.landscape import Made, Sided, finding, settings

OFFERS = (("loader=native", 1.5), ("data.batch_size=128", 1.3), ("model.channels_last=true", 1.2))


def rate(chosen: Mapping[str, str]) -> float:
    """Native is faster, larger batches up to 128 are, the other layout is slower."""
    size = int(chosen["data.batch_size"])
    factors = {"native": 1.4, "skimage": 1.0}[chosen["loader"]] * (1.3 if size >= 128 else 1.0)
    return 100 * factors * (0.8 if chosen["model.channels_last"] == "true" else 1.0)


def fresh(folder: Path, *given: str, budget: float = 1000.0) -> Tuning:
    return begin(folder, given, None, command="strobe tune", budget=budget)


def searched(machine: Made, tuning: Tuning) -> Tuning:
    Search(tuning, machine, ProgressDisplay(Console(quiet=True)), clock=machine.clock).run()
    return tuning


def test_it_keeps_what_is_faster_than_the_best_so_far_and_probes_again_only_then(tmp_path: Path) -> None:
    machine = Made(tmp_path, rate, OFFERS)
    tuning = searched(machine, fresh(tmp_path, "data=eurosat"))
    assert settings(tuning.best) == settings(["data=eurosat", "loader=native", "data.batch_size=128"])
    assert tuning.ended == NOTHING
    assert tuning.proof is not None
    assert tuning.proof["ratio"]["median"] == pytest.approx(1.4 * 1.3)
    assert machine.compared[-1] == (["data=eurosat"], tuning.best)  # the proof
    assert [trial["kept"] for trial in tuning.trials] == [True, True, True, False]
    assert [trial.get("left_out", False) for trial in tuning.trials] == [False, False, True, False]
    one, two = ["data=eurosat", "loader=native"], ["data=eurosat", "loader=native", "data.batch_size=128"]
    assert machine.compared[:2] == [(["data=eurosat"], one), (one, two)]
    assert machine.probes == [["data=eurosat"], one, tuning.best]


def test_nothing_helps(tmp_path: Path) -> None:
    tuning = searched(Made(tmp_path, lambda _: 100.0, OFFERS), fresh(tmp_path, "loader=skimage"))
    assert tuning.best == ["loader=skimage"]
    assert (tuning.changes, tuning.proof, tuning.ended) == ([], None, NOTHING)
    assert len(tuning.trials) == len(OFFERS)


def test_the_budget_ends_it_and_leaves_time_for_the_proof(tmp_path: Path) -> None:
    machine = Made(tmp_path, rate, OFFERS)
    tuning = searched(machine, fresh(tmp_path, budget=50.0))
    assert tuning.ended == BUDGET
    assert tuning.changes == ["loader=native"]
    assert tuning.proof is not None
    assert machine.now <= 50


def test_what_had_no_time_to_be_measured_is_not_said_to_be_nothing(tmp_path: Path) -> None:
    assert searched(Made(tmp_path, rate, []), fresh(tmp_path, budget=0.5)).ended == BUDGET


def test_memory_that_runs_out_is_a_bound(tmp_path: Path) -> None:
    def limited(chosen: Mapping[str, str]) -> float:
        return 0.0 if int(chosen["data.batch_size"]) >= 128 else rate(chosen)

    offers = (("data.batch_size=128", 1.5), ("data.batch_size=256", 1.4), ("data.batch_size=64", 1.2), OFFERS[0])
    machine = Made(tmp_path, limited, offers)
    tuning = searched(machine, fresh(tmp_path))
    tried = [" ".join(trial["overrides"]) for trial in tuning.trials]
    again = "data.batch_size=64"  # which the next probe run prescribes anew; 256 is beyond the bound
    assert tried == ["data.batch_size=128", "data.batch_size=64", "loader=native", again]
    assert tuning.trials[0]["verdict"] == "out of memory"
    assert tuning.best == ["loader=native"]


def test_memory_that_another_proposal_runs_out_of_is_no_bound_of_batches(tmp_path: Path) -> None:
    def limited(chosen: Mapping[str, str]) -> float:
        return 0.0 if chosen.get("engine") == "resident" else rate(chosen)

    machine = Made(tmp_path, limited, (("engine=resident", 1.5), ("data.batch_size=128", 1.3)))
    tuning = searched(machine, fresh(tmp_path, "data.batch_size=64"))
    assert tuning.best == ["data.batch_size=128"]
    assert len([trial for trial in tuning.trials if trial["overrides"] == ["engine=resident"]]) == 1  # and not again


@pytest.mark.parametrize("proved", [True, False])
def test_what_came_nearest_gets_a_proof_if_nothing_was_certain(tmp_path: Path, proved: bool) -> None:
    machine = Made(tmp_path, rate, OFFERS[:2])
    certain = machine.compare

    def unsure(before: Sequence[str], after: Sequence[str], *, among: int = 1, proof: bool = False) -> Outcome:
        found = certain(before, after)
        return found if proof and proved else replace(found, verdict="no difference")

    machine.compare = unsure
    tuning = searched(machine, fresh(tmp_path, "data=eurosat"))
    ratios = {tuple(one["overrides"]): one["measured"]["median"] for one in tuning.trials}
    best = max(ratios, key=lambda overrides: ratios[overrides])
    assert ratios[best] > 1.03
    assert tuning.recommended == ["data=eurosat", *(best if proved else ())]
    assert [one["overrides"] for one in tuning.trials if one["kept"]] == ([list(best)] if proved else [])


def test_a_start_that_cannot_be_measured_is_a_failure(tmp_path: Path) -> None:
    machine = Made(tmp_path, rate, OFFERS)
    machine.probe = lambda overrides: (None, "looks/1")
    machine.failure = "data.root=nowhere holds no tiles"
    tuning = searched(machine, fresh(tmp_path))
    assert (tuning.status, tuning.ended) == ("failed", machine.failure)
    assert resumed(fresh(tmp_path), tmp_path / NAME) is not None


def loading(chosen: Mapping[str, str]) -> float:
    return {"native": 3000.0, "skimage": 500.0}[chosen["loader"]]


def computing(chosen: Mapping[str, str]) -> float:
    """Larger batches to 256, and bfloat16, which needs the other layout; that alone is slower."""
    short, last = chosen["trainer.precision"] == "bf16-mixed", chosen["model.channels_last"] == "true"
    factor = {(True, True): 2.0, (False, False): 1.0}.get((short, last), 0.8)
    return 100 * factor * min(256, int(chosen["data.batch_size"])) ** 0.5


FOUND = {"loader": "native", "data.batch_size": "256", "model.channels_last": "true", "trainer.precision": "bf16-mixed"}


def test_it_goes_to_the_best_combination_at_once(tmp_path: Path) -> None:
    machine = Sided(tmp_path, loading, computing)
    tuning = searched(machine, fresh(tmp_path))
    assert machine.compared[0] == ([], tuning.best)
    assert settings(tuning.best) == settings(()) | FOUND | {"model.lr_scaling": "linear", "model.lr_batch_size": "32"}
    assert tuning.trials[0]["predicted"]["median"] == pytest.approx(tuning.proof["ratio"]["median"], rel=0.02)
    assert tuning.trials[0]["images"] == (32, 256)
    assert machine.trainings < 15
    assert len(machine.asked) < 40


def test_what_drifts_meanwhile_does_not_count_as_a_choice(tmp_path: Path) -> None:
    machine = Sided(tmp_path, loading, computing)
    steady = machine.alone

    def slower(*asked: Any) -> dict[str, Any] | None:
        found = steady(*asked)
        return found and found | {"rate": found["rate"] * 0.99 ** len(machine.asked)}

    machine.alone = slower
    tuning = searched(machine, fresh(tmp_path))
    assert {key: settings(tuning.best)[key] for key in FOUND} == FOUND


def test_each_change_is_left_out_once_and_stays_out_if_it_brings_nothing(tmp_path: Path) -> None:
    def indifferent(chosen: Mapping[str, str]) -> float:
        return computing(chosen | {"model.channels_last": str(chosen["trainer.precision"] == "bf16-mixed").lower()})

    machine = Sided(tmp_path, loading, computing)
    machine.rate = lambda chosen: 1 / (1 / loading(chosen) + 1 / indifferent(chosen))
    tuning = searched(machine, fresh(tmp_path))
    pruned = [trial for trial in tuning.trials if trial.get("left_out")]
    assert len(pruned) == 4
    assert [trial["overrides"] for trial in pruned if not trial["kept"]] == [["model.channels_last=true"]]
    wanted = settings(()) | FOUND | {"model.channels_last": "false"}
    assert {key: settings(tuning.best)[key] for key in wanted} == wanted
    assert machine.compared[-1] == ([], tuning.best)


def test_the_best_one_that_loads_otherwise_takes_turns_with_what_was_kept(tmp_path: Path) -> None:
    def rivals(chosen: Mapping[str, str]) -> float:
        return {"native": 1000.0, "tifffile": 970.0, "skimage": 500.0}[chosen["loader"]]

    machine = Sided(tmp_path, rivals, lambda _: 1000.0, loaders=("native", "skimage", "tifffile"))
    machine.rate = lambda chosen: machine.trains(chosen) * (1.2 if chosen["loader"] == "tifffile" else 1.0)
    tuning = searched(machine, fresh(tmp_path))
    assert machine.compared[:2] == [([], ["loader=native"]), (["loader=native"], ["loader=tifffile"])]
    assert tuning.recommended == ["loader=tifffile"]
    assert tuning.trials[1]["predicted"]["median"] == pytest.approx(0.985, abs=0.01)  # of what it is compared with


def test_a_batch_whose_callback_is_paid_less_often_says_so(tmp_path: Path) -> None:
    machine = Sided(tmp_path, lambda _: 1e6, lambda _: 1000.0, callback=0.1)
    tuning = searched(machine, fresh(tmp_path))
    assert tuning.changes[0].startswith("data.batch_size=")
    assert tuning.trials[0]["why"] == "Slow takes 100 ms a step, which larger batches pay less often"
    assert (
        "the loader alone"
        in searched(Sided(tmp_path / "b", loading, lambda _: 1e5), fresh(tmp_path / "b")).trials[0]["why"]
    )


def test_a_combination_that_runs_out_of_memory_leaves_its_sides(tmp_path: Path) -> None:
    machine = Sided(tmp_path, loading, computing)
    machine.rate = lambda chosen: 0.0 if int(chosen["data.batch_size"]) > 64 else machine.trains(chosen)
    tuning = searched(machine, fresh(tmp_path))
    assert tuning.trials[0]["verdict"] == "out of memory"
    assert settings(tuning.best)["loader"] == "native"
    assert tuning.recommended == tuning.best


def test_of_sides_that_take_long_only_as_many_are_measured_as_there_is_time_for(tmp_path: Path) -> None:
    machine = Sided(tmp_path, loading, computing)
    quick = machine.alone

    def slow(*asked: Any) -> dict[str, Any] | None:
        machine.now += 29
        return quick(*asked)

    machine.alone = slow
    tuning = searched(machine, fresh(tmp_path, budget=600.0))
    assert [side for side, _ in machine.asked].count("model") == 4  # of 30 s each: 90 s, as it waits much
    assert [side for side, _ in machine.asked].count("loader") == 6  # 180 s
    assert tuning.proof is not None
    assert tuning.ended == SHORT
    assert machine.now < 600


@pytest.mark.parametrize("broken", [-3, -12, 0, 1, 2, 4])
def test_after_ctrl_c_the_same_command_goes_on(tmp_path: Path, broken: int) -> None:
    whole = Sided(tmp_path / "whole", loading, computing)
    wanted = searched(whole, fresh(tmp_path / "whole"))
    machine, tuning = Sided(tmp_path, loading, computing), fresh(tmp_path)
    machine.breaks = broken
    with pytest.raises(KeyboardInterrupt):
        searched(machine, tuning)
    assert (tuning.status, tuning.seconds) == ("interrupted", machine.now)
    machine.breaks, machine.trainings = None, 0  # in a process of its own
    found = resumed(fresh(tmp_path), tmp_path / NAME)
    assert found is not None
    searched(machine, found)
    assert (found.best, found.proof) == (wanted.best, wanted.proof)
    assert (machine.asked, machine.compared, machine.probes) == (whole.asked, whole.compared, whole.probes)
    assert found.trainings == len(machine.compared) + len(machine.probes) + (broken > 0)  # a trial was broken off


def test_without_a_proof_what_was_given_is_recommended(tmp_path: Path) -> None:
    machine = Made(tmp_path, rate, OFFERS[:1])
    trial = machine.compare
    machine.compare = lambda *sides, among=1, proof=False: (
        Outcome("failed", error="it was killed") if proof else trial(*sides)
    )
    tuning = searched(machine, fresh(tmp_path, "data=eurosat"))
    assert (tuning.changes, tuning.recommended) == (["loader=native"], ["data=eurosat"])


@pytest.mark.parametrize("change_of", [("given",), ("over",), ("completed",), ("source",)])
def test_another_search_is_not_gone_on_with(tmp_path: Path, change_of: Sequence[str]) -> None:
    earlier = fresh(tmp_path, "loader=skimage")
    earlier.status = "completed" if change_of == ("completed",) else "interrupted"
    earlier.save()
    given = ["loader=pil"] if change_of == ("given",) else ["loader=skimage"]
    over = ["loader"] if change_of == ("over",) else None
    source = "the script's, edited" if change_of == ("source",) else None
    later = begin(tmp_path, given, over, command="", budget=10.0, source=source)
    assert resumed(later, tmp_path / NAME) is None


def test_only_what_is_asked_for_is_changed(tmp_path: Path) -> None:
    machine = Made(tmp_path, rate, OFFERS)
    tuning = begin(tmp_path, [], ["loader"], command="", budget=1000.0)
    searched(machine, tuning)
    assert tuning.best == ["loader=native"]
    assert len(tuning.trials) == 1


def test_what_cannot_be_searched_is_told(tmp_path: Path) -> None:
    machine = Made(tmp_path, rate, [("~callbacks.slow", 2.0)])
    tuning = searched(machine, fresh(tmp_path))
    assert tuning.trials == []
    assert tuning.advice == [f"{finding('~callbacks.slow', 2.0)['title']} (2.0x (1.8 to 2.2)). Take it."]
