"""A configuration compared with itself: how made-up runs are dealt and counted, and one real comparison."""

import os
import random
import re
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from strobe.measure.statistics import Estimate
from strobe.records.files import write_summary
from strobe.records.run import SCHEMA
from strobe.validation import aa_test as same
from strobe.validation.aa_test import DEALINGS, SIDES, SLOWDOWNS, count, deal
from support.places import ROOT

RUNS = 24


def rates(runs: int = RUNS, noise: float = 0.02, seed: int = 0) -> list[float]:
    chance = random.Random(seed)
    return [100 * (1 + chance.gauss(0, noise)) for _ in range(runs)]


def record(folder: Path, ended: int, **changes: Any) -> None:
    folder.mkdir(parents=True)
    summary = {
        "schema": SCHEMA,
        "status": "completed",
        "overrides": ["loader=native", f"seed={ended}", "hydra.verbose=false"],
        "overall_images_per_second": 100.0 + ended % 3,
        "environment": {"host": "here", "cpu": "a processor", "usable_cores": 2, "gpu": None, "versions": {}},
    }
    write_summary(folder / "summary.json", summary | changes)
    os.utime(folder / "summary.json", (ended, ended))


def ended_with(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[object, str]:
    """The exit code, or the sentence in its place, and what was printed, as one line."""
    with pytest.raises(SystemExit) as caught:
        same.main([str(argument) for argument in arguments])
    return caught.value.code, " ".join("".join(capsys.readouterr()).split())


@pytest.mark.parametrize("side", SIDES)
def test_runs_are_dealt_as_an_interleaved_sweep_would(side: int) -> None:
    dealings = deal(RUNS, side)
    for ours, theirs in dealings:
        assert len(ours) == len(theirs) == side
        first = min(ours + theirs)
        assert sorted(ours + theirs) == list(range(first, first + 2 * side))  # consecutive, and none on both sides
        # in each round, which is a pair of neighbours, both sides have one run
        assert [(run - first) // 2 for run in ours] == [(run - first) // 2 for run in theirs] == list(range(side))
    assert len({frozenset(dealing) for dealing in dealings}) == len(dealings)
    assert {min(ours + theirs) for ours, theirs in dealings} == set(range(RUNS - 2 * side + 1))
    assert len(dealings) == (RUNS - 2 * side + 1) * min(DEALINGS, 2 ** (side - 1))


def test_the_dealing_is_random_and_comes_back_by_its_seed() -> None:
    assert deal(RUNS, 5, seed=1) == deal(RUNS, 5, seed=1) != deal(RUNS, 5, seed=2)
    firsts = [min(ours) < min(theirs) for ours, theirs in deal(RUNS, 5)]
    assert 0.25 < sum(firsts) / len(firsts) < 0.75  # the earlier run of a pair goes to either side


def test_few_runs_give_few_comparisons() -> None:
    assert deal(3, 2) == []
    assert len(deal(4, 2)) == 2
    assert [one.side for one in count(rates(6))] == [2, 3]
    assert sum(len(one.ratios) for one in count(rates())) >= 100


def test_verdicts_are_counted_for_each_number_of_runs() -> None:
    asked = []

    def compare(ours: Sequence[float], theirs: Sequence[float]) -> Estimate:
        asked.append((list(ours), list(theirs)))
        ratio = (sum(ours) / len(ours)) / (sum(theirs) / len(theirs))
        return Estimate(ratio, ratio * 0.9, ratio * (1 + len(ours) / 20), 0.97, len(ours))

    two, three = count([100.0] * 3 + [150.0] + [100.0] * 2, compare=compare)  # one run stands out
    assert (two.side, two.windows, len(two.ratios)) == (2, 1, 6)
    assert (three.side, three.windows, len(three.ratios)) == (3, 1, 4)
    assert len(asked) == 10
    assert {ratio.verdict for ratio in two.ratios} <= {"faster", "slower"}  # that run is in each window: no tie
    assert two.same == 0
    even_two, even_three = count([100.0] * 6, compare=compare)
    assert (even_two.same, even_three.same) == (6, 4)
    assert (statistics.median(even_two.widths), statistics.median(even_three.widths)) == pytest.approx((0.2, 0.25))
    # 1 x (0.9 to 1.1), and 1 x (0.9 to 1.15): what is 10% or 20% slower
    assert [even_two.found(slowdown) for slowdown in SLOWDOWNS] == [0, 6, 6]
    assert [even_three.found(slowdown) for slowdown in SLOWDOWNS] == [0, 0, 4]


def test_a_comparison_without_an_interval_is_none_of_no_difference() -> None:
    (two,) = count([1.0] * 4, compare=lambda ours, theirs: Estimate(1.0, None, None, 0.97, 1))
    assert (len(two.ratios), two.same, two.widths, two.found(0.2)) == (2, 0, [], 0)


@pytest.mark.parametrize("drift", [0.0, 0.01], ids=["steady", "drifting"])
def test_runs_that_differ_by_chance_show_no_difference(drift: float) -> None:
    same_of = comparisons = 0
    for seed in range(3):
        made = [rate * (1 - drift * place) for place, rate in enumerate(rates(seed=seed))]
        counts = count(made)
        same_of += sum(one.same for one in counts)
        comparisons += sum(len(one.ratios) for one in counts)
    assert same_of >= 0.95 * comparisons


def test_slower_runs_are_found_the_more_runs_the_better() -> None:
    counts = count(rates(noise=0.02))
    five = counts[-1]
    assert five.found(0.2) == len(five.ratios)  # 20% is ten times what runs differ by
    assert all(one.found(0.05) <= one.found(0.1) <= one.found(0.2) for one in counts)
    widths = [statistics.median(one.widths) for one in counts]
    assert widths == sorted(widths, reverse=True)


def test_runs_that_lie_in_a_folder_are_taken_in_order_of_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for ended in range(RUNS):
        record(tmp_path / f"run{RUNS - ended}", ended)
    record(tmp_path / "failed", 99, status="failed", overall_images_per_second=None)
    assert [one.items("overrides")[1] for one in same.read(tmp_path)] == [f"seed={ended}" for ended in range(RUNS)]
    code, said = ended_with(capsys, "--from", tmp_path)
    comparisons = sum(len(one.ratios) for one in count([100.0 + ended % 3 for ended in range(RUNS)]))
    assert re.search(rf"aim: no difference in at least 95%: reached; 1?\d\d% \(\d+ of {comparisons}\)", said)
    assert "24 runs, 100.0 to 102.0 images/s" in said
    assert code == 0
    monkeypatch.setattr(same, "AIM", 1.01)  # beyond what any runs reach
    code, said = ended_with(capsys, "--from", tmp_path)
    assert "missed; " in said
    assert code == 1


def test_few_comparisons_do_not_reach_the_aim(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for ended in range(4):
        record(tmp_path / str(ended), ended)
    code, said = ended_with(capsys, "--from", tmp_path)
    assert "not told by fewer than 100 comparisons, give a larger --runs; " in said
    assert "of 2)" in said
    assert code == 1


@pytest.mark.parametrize(
    ("runs", "change", "said"),
    [
        (4, {"overrides": ["loader=pil"]}, "holds runs of different overrides: loader=native, and loader=pil; give"),
        (4, {"environment": {"host": "there"}}, "holds runs of different host: here, and there; give"),
        (3, {}, "3 runs have told a rate, and 4 are needed at least"),
        (0, {}, "holds no completed run; train some with"),
    ],
)
def test_runs_that_cannot_be_compared_are_refused(
    runs: int, change: dict[str, Any], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for ended in range(runs):
        record(tmp_path / "runs" / str(ended), ended, **(change if ended == 3 else {}))
    text, _ = ended_with(capsys, "--from", tmp_path / "runs")
    assert said in str(text)
    assert "\n" not in str(text)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--runs", "3"], "--runs 3 is out of range; it must be at least 4"),
        (["native"], "'native' is not an override; give KEY=VALUE"),
        (["loader=native", "--from", "x"], "--from trains nothing; leave KEY=VALUE, --duels and --keep out"),
        (["--keep", str(ROOT)], "is not an empty folder"),
    ],
)
def test_a_wrong_command_line_is_a_usage_error(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, printed = ended_with(capsys, *arguments)
    assert code == 2
    assert said in printed


def test_a_configuration_that_cannot_train_ends_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    said, _ = ended_with(capsys, "data.batch_size=0", "--keep", tmp_path / "kept")
    assert re.match(r"The first run has told no rate: .*data\.batch_size=0[^\n]*$", str(said))
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["000"]


@pytest.mark.slow
def test_real_runs_are_trained_and_compared(sample_root: Path, tmp_path: Path) -> None:
    tiny = ("data=sample", f"data.root={sample_root}", "data.tiles_per_class=10", "data.batch_size=4")
    few = ("trainer.max_time=null", "trainer.max_steps=8", "trainer.accelerator=cpu", "threads=1")
    command = [sys.executable, "-m", "strobe.validation.aa_test", *tiny, *few, "--runs", "4", "--keep"]
    ended = subprocess.run(
        [*command, tmp_path / "kept"], capture_output=True, text=True, cwd=ROOT, timeout=300, check=False
    )
    assert ended.returncode == 1  # one window of four runs proves nothing
    assert not ended.stderr
    said = ended.stdout.splitlines()
    assert [line.partition("]")[0] for line in said[:4]] == [f"[{number}/4" for number in range(1, 5)]
    assert all(line.endswith(" images/s") for line in said[:4])
    assert any("aim: no difference in at least 95%: " in line for line in said)
    records = same.read(tmp_path / "kept")
    assert len(records) == 4
    assert all(one.number("steps", "measured") == 5 for one in records)
