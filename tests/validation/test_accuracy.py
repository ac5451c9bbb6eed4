"""The ground-truth grid: its cells can run, and what it counts is what hand-made records say."""

import os
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hydra.utils import get_class
from omegaconf import OmegaConf

from strobe.app.config.checks import check
from strobe.bench.inputs import GENERATED_IMAGES
from strobe.errors import DataError
from strobe.overrides import applied
from strobe.validation import accuracy as grid
from strobe.validation import ledger, lines
from strobe.validation.accuracy_cells import GridCell, cells
from strobe.validation.ledger import Entry
from support.composing import composed_data, configured
from support.ledger_entries import entry

NAMES = {cell.name: cell for cell in cells(cores=2)}


@pytest.mark.parametrize("name", NAMES)
def test_a_cell_is_a_configuration_that_can_run(name: str) -> None:
    cfg = configured("config", *NAMES[name].overrides)
    check(cfg)
    nodes = [cfg.model, cfg.loader, cfg.logger, cfg.engine, *cfg.callbacks.values()]
    assert all(isinstance(get_class(OmegaConf.select(node, "_target_")), type) for node in nodes)


def test_there_are_enough_cells_and_what_is_too_much_depends_on_the_machine() -> None:
    few, many = ({cell.name: cell.given for cell in cells(cores)} for cores in (2, 16))
    every = cells(cores=2)
    assert len(few) == len(every) == len({(cell.given, cell.beside, cell.line) for cell in every})
    controls = [cell for cell in NAMES.values() if cell.cause is None]
    injected = [cell for cell in NAMES.values() if cell.cause is not None and cell.half == "held_out"]
    assert len(controls) == 22
    fresh = [cell for cell in NAMES.values() if cell.half == "fresh"]
    assert Counter(cell.strength for cell in fresh) == {"mild": 7, "strong": 11, "": 4}
    assert Counter(cell.size for cell in fresh if cell.cause) == {"small": 9, "resnet18": 9}
    unseen = [cell for cell in NAMES.values() if cell.half == "unseen"]
    assert Counter(cell.size for cell in unseen if cell.cause) == {"small": 12, "resnet18": 8}
    assert len(unseen) == 24
    assert len({cell.cause for cell in unseen if cell.cause}) == 17
    assert len(injected) >= 30
    assert len({cell.cause for cell in injected}) >= 15
    kinds = Counter((cell.strength, cell.size) for cell in injected)
    assert min(kinds[strength, size] for strength in ("mild", "strong") for size in ("small", "resnet18")) >= 6
    assert "engine.num_workers=8" in few["many-workers"]
    assert "threads=64" in many["too-many-threads"]


def test_what_undoes_a_fault_is_written_down_where_nobody_knew_the_rules() -> None:
    for cell in NAMES.values():
        assert bool(cell.remedy) == (cell.half == "unseen" and cell.cause is not None)
        assert (applied(cell.overrides, cell.remedy) == cell.overrides) != bool(cell.remedy)


@pytest.mark.parametrize(
    ("cause", "found", "right"),
    [
        ("loader", "loader", True),
        ("loader", "small_batch", False),
        ("loader", None, False),
        ("between", "loader", True),  # given as right too
        (None, "nothing", True),
        (None, "memory_layout", False),  # nobody has applied it
        (None, "loader", False),
        (None, None, False),
    ],
)
def test_the_first_finding_is_held_against_the_cell(cause: str | None, found: str | None, right: bool) -> None:
    assert entry(cause, found, also=["loader"] if cause == "between" else []).right is right


@pytest.mark.parametrize(
    ("title", "right"),
    [
        ("Nothing to fix", True),
        ("No certain gain", True),
        (None, True),  # an entry from before titles were kept
        ("No cause found", False),
        ("Not measurable here", False),
    ],
)
def test_a_control_in_which_no_cause_was_found_is_not_right(title: str | None, right: bool, tmp_path: Path) -> None:
    ledger.append(path := tmp_path / "ledger.jsonl", entry(None, "nothing", title=title))
    (kept,) = ledger.read(path)
    assert kept.right is right
    assert (f"{title} (wrong)" in "\n".join(ledger.table([kept]))) is not right


@pytest.mark.parametrize(("measured", "right"), [(2.0, True), (2.19, True), (1.4, False), (3.0, False)])
def test_a_control_is_right_if_its_finding_gives_what_it_promises(measured: float, right: bool) -> None:
    assert entry(None, "memory_layout", measured=measured).right is right


def test_a_control_whose_finding_promises_no_gain_is_not_right_because_it_brought_none() -> None:
    doubtful = replace(entry(None, "optimizer"), predicted={"median": 1.11, "low": 0.89, "high": 1.38}, measured=0.976)
    assert doubtful.inside
    assert not doubtful.right
    told = ledger.figures([doubtful, entry(None, "optimizer", measured=2.0), entry(None, "optimizer", measured=3.0)])
    assert "2 measured within the predicted interval" in told[2]
    assert "of 2 that promise a gain (the interval lies above 1), 1 (50%, " in told[2]


def test_a_run_is_a_row_with_its_prediction_beside_what_was_measured() -> None:
    rows = ledger.table(
        [
            entry("loader", "loader", measured=2.5),
            entry(None, "nothing"),
            entry("loader", None, failure="no space"),
            entry("loader", "callback"),
        ]
    )
    assert rows[2:] == [
        "| slow | `loader`, strong | `loader` | `a=1` | 2.00 (1.80 to 2.20) | 2.50 | -20% |",
        "| slow | `loader`, strong | no space |  |  |  |  |",
        "| slow | `loader`, strong | `callback` (wrong) | `a=1` | 2.00 (1.80 to 2.20) |  |  |",
        "| slow | nothing | `nothing` |  |  |  |  |",
    ]


def test_everything_is_counted_and_the_halves_apart() -> None:
    entries = [
        entry("loader", "loader", measured=2.0),
        entry("loader", "loader", measured=2 / 1.1),
        entry("loader", "small_batch", measured=2 / 1.5),  # a wrong cause's prediction was made to the user too
        entry(None, "loader", measured=4.0, cell="control"),
        entry(None, "small_batch", measured=2 / 0.7, cell="other"),
        entry(None, "nothing", cell="third"),
        entry("loader", None, failure="no space"),
    ]
    assert ledger.figures(entries) == [
        "first finding right: 2 of 4 runs of 1 injected cells of 1 causes (50%; aim 95%)",
        "controls called loader-bound: 1 of 3 (aim 0); controls right: 1",
        "prediction error: median 30.0% (aim 10%), 90th percentile 50.0% (aim 20%), of 5 predictions; "
        "2 measured within the predicted interval (40%, 95% interval 5% to 85%; aim 85%); "
        "of 5 that promise a gain (the interval lies above 1), 2 (40%, 95% interval 5% to 85%; aim 85%)",
        "first cause differs from the usual one of its cell: 1 of 3 runs (aim 5%)",
        "runs that failed: 1",
    ]
    assert "0 of 0 runs of 0 injected cells of 0 causes (unknown; " in ledger.figures([])[0]
    both = ledger.markdown([*entries, replace(entries[0], half="held_out")])
    assert [line for line in both if line.startswith("**")] == ["**Developed**", "**Held out**"]
    assert sum(line.startswith("| slow") for line in both) == 5


def test_a_ledger_grows_and_bears_a_line_that_was_cut_off(tmp_path: Path) -> None:
    path, entries = tmp_path / "deep" / "ledger.jsonl", [entry("loader", "loader", measured=2.0), entry(None, None)]
    for one in entries:
        ledger.append(path, one)
    with path.open("a") as file:
        file.write('{"cell": "sl')
    assert ledger.read(path) == entries
    with path.open("a") as file:
        file.write("\n")
    with pytest.raises(DataError, match="line 3 is no entry"):
        ledger.read(path)


def test_cells_are_chosen_by_name_and_half_and_told_from_overrides() -> None:
    assert {cell.half for cell in grid.parse(["--half", "held_out"]).cells} == {"held_out"}
    options = grid.parse(["slow-disk", "threads=1", "--repeats", "2", "control-photos", "~callbacks.slow"])
    assert {cell.name for cell in options.cells} == {"slow-disk", "control-photos"}
    assert (options.overrides, options.repeats) == (["threads=1", "~callbacks.slow"], 2)


def test_each_round_has_its_order_by_the_seed_and_time_ends_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[str] = []
    clock = iter(range(0, 10_000, 30))

    def run_cell(cell: GridCell, *_: object) -> Entry:
        ran.append(cell.name)
        next(clock)
        return entry(cell.cause, cell.cause, cell=cell.name, half=cell.half)

    monkeypatch.setattr(grid, "run_cell", run_cell)
    monkeypatch.setattr(grid, "data_variables", lambda _: {})
    monkeypatch.setattr(grid.time, "monotonic", lambda: next(clock))
    path = tmp_path / "ledger.jsonl"
    names = ["slow-disk", "leak", "control-photos"]
    monkeypatch.setattr("sys.argv", ["grid", *names, "--repeats", "2", "--seed", "3", "--ledger", str(path)])
    grid.main()
    assert sorted(ran[:3]) == sorted(ran[3:]) == sorted(names)
    assert len(ledger.read(path)) == 6
    ran.clear()
    monkeypatch.setattr("sys.argv", ["grid", *names, "--minutes", "3", "--ledger", str(path)])
    capsys.readouterr()
    grid.main()
    assert 1 <= len(ran) < 3
    (left,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("Time is up; not run: "))
    assert {*left.removeprefix("Time is up; not run: ").split(", "), *ran} == set(names)
    assert len(ledger.read(path)) == 6 + len(ran)


def test_what_was_measured_before_ctrl_c_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = iter([entry("loader", "loader", cell="slow-disk")])

    def run_cell(*_: object) -> Entry:
        if (done := next(found, None)) is None:
            raise KeyboardInterrupt
        return done

    monkeypatch.setattr(grid, "run_cell", run_cell)
    monkeypatch.setattr(grid, "data_variables", lambda _: {})
    with pytest.raises(SystemExit) as ended:
        grid.main(["slow-disk", "leak", "--ledger", str(tmp_path / "ledger.jsonl")])
    assert ended.value.code == 130
    assert "first finding right: 1 of 1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["slow-moon"], "'slow-moon' is not a cell; choose from"), (["--repeats", "0"], "must be at least 1")],
)
def test_a_wrong_argument_is_refused(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        grid.parse(arguments)
    assert said in capsys.readouterr().err


def test_a_run_that_cannot_start_is_a_failure_in_one_line(tmp_path: Path) -> None:
    found = grid.run_cell(GridCell("broken", None, ("data.batch_size=0",)), ["threads=1"], tmp_path / "it's", {})
    assert (found.failure or "").startswith("data.batch_size=0 is out of range")
    assert "\n" not in (found.failure or "")
    assert (found.found, found.measured, found.right) == (None, None, False)


def test_processes_beside_a_run_compute_until_it_has_ended() -> None:
    def children() -> set[str]:
        found = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        return {pid for pid in found if b"getppid" in Path(f"/proc/{pid}/cmdline").read_bytes()}

    with grid.beside(2):
        while len(children()) < 2:  # until they have become what they are to be
            time.sleep(0.01)
    assert not children()


def test_generated_photos_are_read_as_cifar10(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STROBE_DATA", str(tmp_path / "none"))
    variables = grid.data_variables(tmp_path)
    monkeypatch.setenv("STROBE_DATA", variables["STROBE_DATA"])
    assert grid.data_variables(tmp_path / "elsewhere") == variables
    data = composed_data("data=cifar10", "data.verify=false")
    data.setup()
    assert data.datasets["train"][0][0].shape == (3, 32, 32)
    assert len(data.datasets["test"]) == GENERATED_IMAGES


@pytest.mark.slow
def test_a_cell_from_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    short = ["trainer.max_time={seconds:4}", "ceilings_seconds=1", "data.batch_size=32"]
    path = str(tmp_path / "ledger.jsonl")
    monkeypatch.setattr("sys.argv", ["grid", "slow-callback", *short, "--keep", str(tmp_path), "--ledger", path])
    grid.main()
    assert "slow-callback: first finding callback, right" in capsys.readouterr().out
    assert (tmp_path / "slow-callback-0" / "changed" / "summary.json").is_file()


@pytest.mark.slow
def test_a_cell_reads_its_tiles_from_storage_over_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "TILES", 10)
    found = grid.run_cell(NAMES["narrow-5-far"], ["trainer.max_time={seconds:4}"], tmp_path / "cell", {})
    assert (found.failure, found.found, found.half) == (None, "storage_bandwidth", "stored")
