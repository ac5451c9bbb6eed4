"""The record of a comparison: cells, baselines, verdicts, knees, regressions."""

from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from strobe.compare.gather import BLANK, Request, gather
from strobe.compare.operators import operators_between
from strobe.compare.page import render
from strobe.compare.table import print_comparison
from strobe.errors import ConfigError, DataError
from support.pages import Page, words_of
from support.run_folders import write_run, write_sweep

CELLS = [
    ("trainer=cpu loader=skimage data.batch_size=32", [100, 101, 99]),
    ("trainer=cpu loader=native data.batch_size=32", [200, 203, 198]),
    ("trainer=cpu loader=native data.batch_size=128", [205, 207, 206]),
    ("trainer=cpu loader=pil data.batch_size=32", ["no such loader", "no such loader"]),
    ("trainer=cpu loader=tifffile data.batch_size=32", [50, "memory ran out", 51]),
]


def compared(*given: Path, folder: Path | None = None, **asked: Any) -> dict[str, Any]:
    return gather(Request(given, folder or given[0], "strobe compare", **asked))


def by_name(record: dict[str, Any]) -> dict[str, dict[str, Any]]:
    names = {cell["name"]: cell for cell in record["cells"]}
    assert len(names) == len(record["cells"])
    return names


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    return write_sweep(tmp_path / "sweep", CELLS)


def test_a_sweep_side_by_side(sweep: Path) -> None:
    record = compared(sweep)
    assert record["keys"] == ["loader", "data.batch_size"]
    assert [(cell["name"], cell["status"], cell["verdict"], cell["best"]) for cell in record["cells"]] == [
        ("loader=native data.batch_size=128", "completed", "faster", True),
        ("loader=native data.batch_size=32", "completed", "faster", False),
        ("loader=skimage data.batch_size=32", "completed", "baseline", False),
        ("loader=tifffile data.batch_size=32", "mixed", "slower", False),
        ("loader=pil data.batch_size=32", "failed", "not measured", False),
    ]
    assert record["baseline"] == "loader=skimage data.batch_size=32"
    assert record["regression"] is None
    assert record["unlike"] == []
    native = record["cells"][1]
    assert native["overrides"] == {"loader": "native", "data.batch_size": "32"}
    assert native["values"]["batch_size"] == 32
    assert native["images_per_second"]["of"] == "runs"
    assert 190 < native["images_per_second"]["low"] < 200.3 < native["images_per_second"]["high"] < 210
    assert native["speedup"]["low"] < 2.003 < native["speedup"]["high"]
    assert native["runs"][1]["report"] == "1-cell.2/report.html"
    assert native["accuracy"] == {"test/accuracy": 0.5, "val/accuracy": 0.25}
    failed = record["cells"][-1]
    assert failed["error"] == "no such loader"
    assert failed["values"]["batch_size"] == 32
    assert failed["values"]["loader"] == "pil"
    assert failed["images_per_second"] is failed["step_seconds"] is failed["speedup"] is None


def test_images_of_a_step_follow_from_rate_and_time(tmp_path: Path) -> None:
    seconds = 0.041 + 0.012  # in the step, and between steps
    write_run(tmp_path / "a", ["data.batch_size=64"], rate=64 / seconds)
    [cell] = compared(tmp_path)["cells"]
    assert cell["images_per_step"] == pytest.approx(64)
    assert cell["between_seconds"] == pytest.approx(0.012)
    phases = {name: value for name, value in cell["step_seconds"].items() if name != "total"}
    assert phases.pop("prepare") is None  # which earlier records lack
    assert sum(phases.values()) == pytest.approx(cell["step_seconds"]["total"])


def test_of_single_runs_there_is_no_verdict_and_steps_make_the_interval(tmp_path: Path) -> None:
    write_run(tmp_path / "a", ["loader=pil"], 100)
    write_run(tmp_path / "b", ["loader=native"], 300, ceilings={"storage": {"rate": 320.0}})
    record = compared(tmp_path / "a", tmp_path / "b")
    best, baseline = record["cells"]
    assert (best["ceilings"]["storage"], baseline["ceilings"]["storage"]) == (320.0, None)
    assert best["images_per_second"] == pytest.approx({"median": 300, "low": 288, "high": 312, "of": "steps"})
    assert best["speedup"] == {"median": pytest.approx(3), "low": None, "high": None}
    assert (best["verdict"], baseline["verdict"]) == ("too few runs", "baseline")
    assert "train more often (a sweep with sweep.repeats=3)" in record["notes"][0]


def test_a_run_that_is_faster_than_its_ceiling_has_no_share_of_it(tmp_path: Path) -> None:
    runs = [{"rate": 100, "ceilings": {"loader": ceiling}, "efficiency": 100 / ceiling} for ceiling in (125, 32.6)]
    cells = by_name(compared(write_sweep(tmp_path, [("loader=pil", runs[:1]), ("loader=native", runs[1:])])))
    assert [cells[f"loader={name}"]["efficiency"] for name in ("pil", "native")] == [pytest.approx(0.8), None]


def test_runs_on_a_busy_machine_are_named(tmp_path: Path) -> None:
    busy, quiet = ({"machine": {"others": share}} for share in (0.42, 0.01))
    native = ("loader=native", [{"rate": 200} | quiet] * 2)
    folder = write_sweep(tmp_path / "sweep", [("loader=pil", [{"rate": 100} | busy, {"rate": 100} | quiet]), native])
    told = "Other programs used up to 42% of the cores during loader=pil (1 of 2 runs): their rates may be too low"
    (note,) = [note for note in compared(folder)["notes"] if note.startswith(told)]
    assert note in Page(render(compared(folder))).text
    again = write_sweep(tmp_path / "quiet", [native])
    assert compared(again)["notes"] == []
    assert f"during loader=pil in {folder} (1 of 2 runs)" in compared(again, baseline=str(folder))["notes"][0]


def test_runs_of_other_seeds_are_repeats(tmp_path: Path) -> None:
    for seed in range(3):
        write_run(tmp_path / str(seed), ["loader=pil", f"seed={seed}", f"hydra.run.dir={seed}"], 100 + seed)
    [cell] = compared(*(tmp_path / str(seed) for seed in range(3)))["cells"]
    assert [run["images_per_second"] for run in cell["runs"]] == [100, 101, 102]
    assert (cell["name"], cell["verdict"]) == ("loader=pil", "baseline")


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("loader=native data.batch_size=32", "loader=native data.batch_size=32"),
        ("data.batch_size=32 loader=native", "loader=native data.batch_size=32"),
        ("data.batch_size=128", "loader=native data.batch_size=128"),
        ("tiff", "loader=tifffile data.batch_size=32"),
        ("1-cell.2", "loader=native data.batch_size=32"),
    ],
)
def test_a_cell_is_chosen_as_baseline(sweep: Path, asked: str, name: str) -> None:
    record = compared(sweep, baseline=str(sweep / asked) if "cell" in asked else asked)
    assert record["baseline"] == name
    assert [cell["name"] for cell in record["cells"] if cell["verdict"] == "baseline"] == [name]
    assert len(record["cells"]) == len(CELLS)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("native", "fits 2 cells (loader=native data.batch_size=32, loader=native data.batch_size=128); name one"),
        ("rasterio", "neither a directory nor a cell; the cells are: loader=native data.batch_size=128, "),
        ("loader=pil", "--baseline loader=pil has no completed run"),
    ],
)
def test_what_is_no_baseline_is_refused(sweep: Path, asked: str, said: str) -> None:
    with pytest.raises((ConfigError, DataError)) as refused:
        compared(sweep, baseline=asked)
    assert said in str(refused.value)


def test_a_sweep_is_compared_with_an_earlier_one_cell_by_cell(tmp_path: Path, sweep: Path) -> None:
    earlier = write_sweep(
        tmp_path / "earlier",
        [
            ("trainer=cpu data.batch_size=32 loader=skimage", [150, 151, 149]),
            ("trainer=cpu loader=native data.batch_size=32", [201, 199, 200]),
            ("trainer=cpu loader=pil data.batch_size=32", [10, 11]),
            ("trainer=cpu loader=spdl data.batch_size=32", [10, 11]),
        ],
    )
    record = compared(sweep, baseline=str(earlier), limit=0.05)
    cells = by_name(record)
    assert cells["loader=skimage data.batch_size=32"]["verdict"] == "slower"
    assert cells["loader=skimage data.batch_size=32"]["speedup"]["median"] == pytest.approx(100 / 150, rel=0.01)
    assert cells["loader=native data.batch_size=32"]["verdict"] == "no difference"
    assert cells["loader=native data.batch_size=128"]["verdict"] == "no counterpart"
    assert (record["baseline"], record["against"]) == (None, str(earlier))
    assert record["regression"]["cells"] == ["loader=skimage data.batch_size=32", "loader=pil data.batch_size=32"]
    assert any(
        note.endswith(f"loader=tifffile data.batch_size=32: not measured in {earlier}") for note in record["notes"]
    )
    assert f"loader=spdl data.batch_size=32: only in {earlier}" in record["notes"]
    assert (record["regression"]["code"], len(record["regression"]["unjudged"])) == (3, 3)
    assert compared(sweep, earlier, baseline=str(earlier), limit=0.05)["regression"] == record["regression"]
    cells = by_name(compared(sweep, baseline=str(write_sweep(tmp_path / "one", CELLS[:1]))))  # a sweep of one cell
    assert cells["loader=skimage data.batch_size=32"]["verdict"] == "no difference"
    assert cells["loader=native data.batch_size=32"]["verdict"] == "no counterpart"


def test_runs_of_different_days_are_judged_by_their_days(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A machine is another one from day to day: many runs of one day say nothing about the next."""

    def of_days(name: str, *days: tuple[int, list[float]]) -> Path:
        runs = [{"rate": rate, "date": f"2026-11-{day:02d}T12:00:00+0000"} for day, rates in days for rate in rates]
        return write_sweep(tmp_path / name, [("loader=pil", runs)])

    def judged(now: Path, then: Path) -> tuple[str, int]:
        record = compared(now, baseline=str(then), limit=0.05)
        [cell] = record["cells"]
        return cell["verdict"], record["regression"]["code"]

    today = of_days("today", (9, [100, 101, 99, 100, 100]))
    last_week = of_days("last_week", (2, [80, 81, 79, 80, 80]))
    assert judged(today, of_days("also", (9, [80, 81, 79, 80, 80]))) == ("faster", 0)
    assert judged(today, last_week) == judged(last_week, today) == ("not known", 4)
    record = compared(today, baseline=str(last_week), limit=0.05)
    assert record["cells"][0]["speedup"] == {"median": pytest.approx(1.25, rel=1e-3), "low": None, "high": None}
    said = "not known: runs of different days; it takes 3 days a side to judge, or strobe duel"
    assert [note for note in record["notes"] if said in note] == record["notes"]
    assert "cannot tell: defaults: runs of different days" in record["regression"]["text"]
    print_comparison(Console(width=200), record)
    assert said in " ".join(capsys.readouterr().out.split())
    page = Page(render(record))
    assert said in page.text
    assert "more often" not in page.text
    # Of the same days, but not equally often on each.
    uneven = (1, [100] * 5), (2, [80])
    assert judged(of_days("fast", *uneven), of_days("slow", (1, [100]), (2, [80] * 5))) == ("not known", 4)
    assert judged(of_days("as fast", *uneven), of_days("as often", *uneven))[0] == "no difference"

    def of_a_night(name: str, rate: float) -> Path:
        times = [f"2026-11-{day}+0000" for day in ("08T23:40:00", "08T23:50:00", "09T00:05:00")]
        return write_sweep(tmp_path / name, [("loader=pil", [{"rate": rate, "date": time} for time in times])])

    assert judged(of_a_night("late", 100), of_days("evening", (8, [100, 101, 99])))[0] == "no difference"
    # Three days a side tell what lies beyond the difference between days, however many runs a day has.
    three = of_days("three", (4, [100, 101]), (5, [110, 109]), (6, [90, 91]))
    assert judged(three, last_week) == ("not known", 4)
    assert judged(three, of_days("near", (1, [95]), (2, [105] * 9), (3, [86]))) == ("no difference", 4)
    assert judged(three, of_days("far", (1, [15]), (2, [16] * 9), (3, [14]))) == ("faster", 0)


def test_a_run_of_the_same_overrides_is_a_baseline_of_its_own(tmp_path: Path) -> None:
    for name, rate in (("now", 90), ("now2", 91), ("then", 100)):
        write_run(tmp_path / name, ["loader=pil"], rate)
    given = [tmp_path / name for name in ("then", "now", "now2")]
    for some in (given, given[1:]):
        record = compared(*some, baseline=str(tmp_path / "then"))
        assert [(cell["name"], len(cell["runs"])) for cell in record["cells"]] == [
            (f"defaults ({tmp_path / 'then'})", 1),
            ("defaults", 2),
        ]
        assert record["cells"][1]["speedup"]["median"] == pytest.approx(0.905, abs=0.001)
        assert record["cells"][1]["verdict"] == "too few runs"


def test_a_sweep_is_no_baseline_of_itself_nor_of_other_overrides(tmp_path: Path, sweep: Path) -> None:
    with pytest.raises(ConfigError, match="holds all runs that would be compared with it; name one run or cell"):
        compared(sweep, baseline=str(sweep))
    other = write_sweep(tmp_path / "earlier", [(f"{cell} data.root=x", [1, 2]) for cell, _ in CELLS[:2]])
    with pytest.raises(ConfigError, match=r"no cell of the same overrides as any .* they differ in data\.root; give"):
        compared(sweep, baseline=str(other), limit=0.05)


def test_what_only_one_side_has_or_nobody_can_read_keeps_the_gate_closed(tmp_path: Path) -> None:
    """The other cells are the same: the gate would open."""
    same = ("loader=skimage", [100, 101, 99, 100])
    also = ("loader=native", [200, 201, 199, 200])
    here = write_sweep(tmp_path / "here", [same, also])
    both = write_sweep(tmp_path / "both", [same, also])
    less = write_sweep(tmp_path / "less", [same])
    assert compared(here, baseline=str(both), limit=0.05)["regression"]["code"] == 0
    for now, then in ((here, less), (less, here)):
        gate = compared(now, baseline=str(then), limit=0.05)["regression"]
        assert (gate["code"], gate["cells"]) == (4, [])
        assert "baseline has" in gate["text"]
    (both / "sweep.json").write_text("{")
    assert any("sweep.json cannot be read, so cells that left no" in note for note in compared(both)["notes"])
    gate = compared(here, baseline=str(both), limit=0.05)["regression"]
    assert (gate["code"], gate["cells"]) == (4, [])
    assert "sweep.json cannot be read" in gate["text"]
    for number in range(4):
        (here / ("0-cell" + f".{number + 1}" * (number > 0)) / "summary.json").write_text("{")
    gate = compared(here, baseline=str(write_sweep(tmp_path / "then", [same, also])), limit=0.05)["regression"]
    assert (gate["code"], gate["unjudged"]) == (4, ["loader=skimage"])  # damaged: whether it failed, nobody knows


def test_knees_are_the_smallest_batch_near_the_best(tmp_path: Path) -> None:
    rates = {8: 50, 32: 96, 128: 100, 512: 99}
    cells = [
        (f"loader={loader} data.batch_size={size}", [rate])
        for loader in ("pil", "native")
        for size, rate in rates.items()
    ]
    record = compared(write_sweep(tmp_path / "knees", [*cells, ("loader=spdl data.batch_size=8", [70])]))
    unknown = {"low": None, "high": None}  # of single runs
    assert record["knees"] == [
        {"where": f"loader={loader}", "batch_size": 32, "images_per_second": 96, "best_batch_size": 128} | unknown
        for loader in ("pil", "native")
    ]
    # A learning rate that follows the batch hides no knee.
    cells = [(f"data.batch_size={size} model.lr={size / 1e3}", [rate]) for size, rate in ((32, 98), (64, 100))]
    assert [knee["batch_size"] for knee in compared(write_sweep(tmp_path / "lr", cells))["knees"]] == [32]


@pytest.mark.parametrize(
    ("noise", "found", "said"),
    [(0.002, (32, 32), "does: 32)"), (0.03, (32, 512), "does: 32 to 512)"), (0.4, (None, None), "does: not known")],
)
def test_a_knee_is_as_certain_as_its_runs_allow(
    noise: float, found: tuple[int | None, int | None], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    away = [[1, -1, 0, 1], [-1, 1, 1, 0], [0, -1, 1, -1], [1, 0, -1, 1]]
    rates = zip((8, 32, 128, 512), (50, 98, 100, 99), away, strict=True)
    cells = [(f"data.batch_size={size}", [rate * (1 + noise * one) for one in each]) for size, rate, each in rates]
    record = compared(write_sweep(tmp_path, cells))
    [knee] = record["knees"]
    assert (knee["low"], knee["high"]) == found
    print_comparison(Console(width=200), record)
    assert said in capsys.readouterr().out
    page = Page(render(record))
    drawn = "batch" in page.sections and words_of(page.section("batch"))
    assert f" {said.strip(')').removeprefix('does: ')}" in drawn if drawn else noise > 0.1  # too wide to draw


def test_repeats_are_compared_with_each_other(tmp_path: Path) -> None:
    """The second repeat was twice as slow for all; one run of one cell failed."""
    cells = [("loader=pil", [100, 50, 101, 99]), ("loader=skimage", [120, 61, 120, "it broke"])]
    record = compared(write_sweep(tmp_path / "sweep", cells))
    ours = record["cells"][0]
    assert (ours["name"], ours["verdict"], ours["paired"]) == ("loader=skimage", "faster", True)
    assert 1.1 < ours["speedup"]["low"] < 1.2 < ours["speedup"]["high"] < 1.31
    # The same runs without a record of their repeats, which are those of seeds.
    (tmp_path / "sweep" / "sweep.json").unlink()
    ours = compared(tmp_path / "sweep")["cells"][0]
    assert (ours["verdict"], ours["paired"]) == ("no difference", False)


def test_cells_that_are_not_shown_to_be_slower_are_tied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cells = [("loader=pil", [100, 102, 99]), ("loader=skimage", [101, 100, 102]), ("loader=native", [52, 50, 51])]
    cells.append(("loader=tifffile", [70]))
    record = compared(write_sweep(tmp_path, cells))
    told = {name: cell["fastest"] for name, cell in by_name(record).items()}
    assert told == {"loader=pil": True, "loader=skimage": True, "loader=native": False, "loader=tifffile": None}
    assert sum(cell["best"] for cell in record["cells"]) == 1
    print_comparison(Console(width=200), record)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[0] for line in lines if line[1:2] == ["tied"]] == ["skimage", "pil"]
    assert "; one other setting may be as fast." in Page(render(record | {"baseline": None})).text


def test_the_only_cell_that_was_measured_is_not_called_the_highest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = compared(write_sweep(tmp_path, [("loader=pil", ["it broke"]), ("loader=native", [100])]))
    print_comparison(Console(width=200), record)
    said = capsys.readouterr().out
    assert "Only one cell, native, was measured, so there is nothing to compare it with" in said
    assert "highest" not in said


def test_what_is_best_has_completed_in_all_its_runs(tmp_path: Path) -> None:
    cells = [
        ("data.batch_size=32", [100, 101]),
        ("data.batch_size=64", [102, 103]),
        ("data.batch_size=512", [200, "memory ran out"]),
    ]
    record = compared(write_sweep(tmp_path, cells))
    assert [cell["best"] for cell in record["cells"]] == [False, True, False]
    assert "data.batch_size=512 has the highest rate, but not all of its runs completed" in record["notes"]
    assert record["knees"][0]["best_batch_size"] == 64
    assert operators_between(record)[1] == "data.batch_size=64"


def test_sweeps_that_are_taken_together_are_told(tmp_path: Path, sweep: Path) -> None:
    again = write_sweep(tmp_path / "again", CELLS)
    said = "runs of 2 directories are taken as repeats of the same cells"
    assert any(note.startswith(said) for note in compared(sweep, again)["notes"])
    for alone in (
        compared(sweep),
        compared(sweep, baseline=str(again)),
        compared(sweep / "0-cell", again / "0-cell.2"),
    ):
        assert not any(note.startswith("runs of") for note in alone["notes"])


def test_cells_that_measured_no_step_say_so(tmp_path: Path) -> None:
    nothing = {"overall_images_per_second": None, "images_per_second": None}
    record = compared(write_sweep(tmp_path, [("loader=pil", [1])], **nothing))
    assert record["notes"] == [f"loader=pil: {BLANK}; train longer, or with profiler=none"]
    page = render(record).replace("&nbsp;", " ").replace("\u00a0", " ")
    assert "Nothing was measured: 1 cell completed without a measured step" in page
    assert "completed, but no step was measured" in page


def test_operators_are_those_of_the_baseline_and_the_best(sweep: Path) -> None:
    (sweep / "2-cell.2" / "tables").mkdir()
    record = compared(sweep)
    names, runs = operators_between(record)[:2], operators_between(record)[2:]
    assert names == ("loader=skimage data.batch_size=32", "loader=native data.batch_size=128")
    assert [run.name for run in runs] == ["0-cell", "2-cell.2"]
    fastest = compared(sweep, baseline="data.batch_size=128")
    assert operators_between(fastest) is None  # the slowest has one run, which does not show that it is slower
    slowest = next(cell for cell in reversed(fastest["cells"]) if cell["images_per_second"])
    slowest["fastest"] = False
    assert operators_between(fastest)[0] == "loader=tifffile data.batch_size=32"


def test_all_failed_is_a_comparison_too(tmp_path: Path) -> None:
    record = compared(write_sweep(tmp_path, [("loader=pil", ["no"]), ("loader=spdl", ["no"])]))
    assert [cell["verdict"] for cell in record["cells"]] == ["not measured"] * 2
    assert record["baseline"] is None
    assert operators_between(record) is None
