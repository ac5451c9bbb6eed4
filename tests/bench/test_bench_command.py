"""``python -m strobe.bench`` as a user types it."""

import json
import os
import pickle
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from strobe.bench.command import names
from support.processes import is_running, wait_for
from support.suite_parts import bench, start

LOADING = ("suite=loading", "quick=true", "data.tiles_per_class=10", "suite.batch_sizes=[2]", "suite.batches=2")


@pytest.fixture(scope="module")
def loading(sample_root: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A result of ``suite=loading``, and what was printed."""
    folder = tmp_path_factory.mktemp("bench") / "loading"
    given = (*LOADING, f"data.root={sample_root}", "suite.loaders=[skimage,native]", f"hydra.run.dir={folder}")
    return folder, bench(*given, "rounds=4")


def test_a_result_is_complete(loading: tuple[Path, str]) -> None:
    folder, said = loading
    record = json.loads((folder / "results.json").read_text())
    assert record["status"] == "completed"
    assert [cell["status"] for cell in record["cells"]] == ["measured"] * 4
    assert {cell["cache"] for cell in record["cells"]} == {"warm", "cold"}
    assert all(len(cell["visits"]) == 4 for cell in record["cells"])
    assert record["environment"]["versions"]["imagecodecs"]
    assert record["environment"]["page_cache"] == "warm and cold"
    assert len(pickle.loads((folder / "measurements.pkl").read_bytes())) == 4
    assert {path.name for path in folder.iterdir()} >= {"results.csv", "report.html", "pictures", ".hydra"}
    for words in ("loading: load", "Loading 2 batches", "4 trials a cell", str(folder / "report.html")):
        assert words in said
    assert said.count("times as fast") == 1


def test_a_finished_result_is_shown_again_without_measuring(loading: tuple[Path, str], sample_root: Path) -> None:
    folder, _ = loading
    before = json.loads((folder / "results.json").read_text())
    given = (*LOADING, f"data.root={sample_root}", "suite.loaders=[skimage,native]", f"hydra.run.dir={folder}")
    said = bench(*given, "rounds=4")
    assert "Going on with" in said
    assert json.loads((folder / "results.json").read_text())["cells"] == before["cells"]


def test_a_regression_has_an_exit_code(loading: tuple[Path, str], sample_root: Path, tmp_path: Path) -> None:
    folder, _ = loading
    faster = json.loads((folder / "results.json").read_text())
    for cell in faster["cells"]:
        for trial in cell["visits"]:
            trial["seconds"] = [seconds / 1000 for seconds in trial["seconds"]]
    faster["cells"].append({**faster["cells"][0], "name": "load, 2, moon", "column": "moon"})
    (tmp_path / "then.json").write_text(json.dumps(faster))
    shutil.copytree(folder, tmp_path / "run")  # nothing is measured again
    given = (*LOADING, f"data.root={sample_root}", "suite.loaders=[skimage,native]")
    given += (f"hydra.run.dir={tmp_path}/run", f"baseline={tmp_path}/then.json", "rounds=4")
    said = bench(*given, "fail_if_slower=5%", code=3)
    assert "slower" in said
    assert "only before" in said  # the moon
    assert "fail_if_slower=5%: regression: load, 2, skimage" in said
    assert "then.json" in (tmp_path / "run" / "report.html").read_text()
    said = bench(*given)
    assert "slower" in said


def test_ctrl_c_and_going_on(sample_root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    given = (*LOADING, f"data.root={sample_root}", "suite.cold_batch_size=null", f"hydra.run.dir={folder}", "rounds=3")
    given += ("suite.loaders=[skimage,native]",)
    process = start(*given)
    assert wait_for((folder / "results.json").is_file)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    said, _ = process.communicate(timeout=60)
    assert wait_for(lambda: not is_running(process.pid))
    assert process.returncode == 130, said
    assert "Traceback" not in said
    assert f"hydra.run.dir={folder}" in said.partition("Go on with: ")[2]
    halfway = json.loads((folder / "results.json").read_text())
    assert halfway["status"] == "interrupted"
    done = {cell["name"]: cell["visits"] for cell in halfway["cells"]}
    assert 0 < sum(map(len, done.values())) < 6

    bench(*given)
    record = json.loads((folder / "results.json").read_text())
    assert record["status"] == "completed"
    for cell in record["cells"]:
        assert len(cell["visits"]) == 3
        assert cell["visits"][: len(done[cell["name"]])] == done[cell["name"]]


def server_of(pid: int) -> bool:
    """Whether the command has begun the server of fresh processes."""
    return any(
        "forkserver" in Path(f"/proc/{child}/cmdline").read_text()
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    )


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A temporary folder whose path leaves room for the name of a socket."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


def test_a_temporary_folder_too_deep_for_sockets_is_said(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    said = bench("suite=loading", "quick=true", f"hydra.run.dir={tmp_path}/run", code=1, TMPDIR=str(deep))
    assert f"TMPDIR={deep}" in said
    assert "shorter" in said


@pytest.mark.parametrize(
    ("number", "code", "begun"),
    [
        (signal.SIGINT, 130, False),
        (signal.SIGTERM, 143, True),
        pytest.param(signal.SIGHUP, 129, True, marks=pytest.mark.slow),  # is caught where SIGTERM is
    ],
)
def test_a_signal_ends_all(number: signal.Signals, code: int, begun: bool, sample_root: Path, scratch: Path) -> None:
    """Before the first trial, while the server imports its libraries; and later."""
    folder = scratch / "run"
    given = (*LOADING, f"data.root={sample_root}", "suite.cold_batch_size=null", f"hydra.run.dir={folder}", "rounds=9")
    process = start(*given, TMPDIR=str(scratch))
    assert wait_for((folder / "results.json").is_file if begun else lambda: server_of(process.pid))
    if begun:
        process.send_signal(number)
    else:
        os.killpg(process.pid, number)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == code, said
    assert "Traceback" not in said
    assert wait_for(lambda: not is_running(process.pid))
    assert not [path for path in scratch.iterdir() if path.name.startswith("strobe-bench-")]
    if begun:
        assert json.loads((folder / "results.json").read_text())["status"] == "interrupted"


def test_a_sweep_measures_each_that_can_be_measured(sample_root: Path, tmp_path: Path) -> None:
    given = ("suite=loading", "quick=true", f"data.root={sample_root}", "data.tiles_per_class=10", "suite.batches=1")
    given += ("suite.loaders=[moon],[native]", "suite.cold_batch_size=null", "suite.batch_sizes=[2],[4]", "rounds=1")
    said = bench("-m", *given, f"hydra.sweep.dir={tmp_path}/sweep", code=1)
    assert "moon" in said
    records = [json.loads(path.read_text()) for path in sorted((tmp_path / "sweep").glob("*/results.json"))]
    assert [record["cells"][0]["row"] for record in records] == ["2", "4"]


def test_the_list_tells_suites_and_cells() -> None:
    said = bench("--list")
    for name in names():
        assert f"suite={name}: " in said
    assert "load, 1024, skimage scale=torch, 4 threads, warm" in said
    assert bench("--list", "suite=loading", "suite.threads=[2]").count("threads, warm") == 24
    assert "suite=crop: " in bench("--list", "suite=crop,loading")


def test_a_list_of_what_is_not_there_is_refused_in_a_sentence() -> None:
    said = bench("--list", "suite=moon", code=1)
    assert "suite=moon is not there; give one of convolution, crop" in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([], ["You must specify 'suite'"]),
        (["suite=loading", "rounds=0"], ["rounds=0 is out of range"]),
        (["suite=loading", "data=eurosat", "data.root=nowhere"], ["data.root=nowhere"]),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, list) else None,
)
def test_a_mistake_is_told_before_anything_is_measured(given: list[str], words: list[str], tmp_path: Path) -> None:
    said = bench(*given, f"hydra.run.dir={tmp_path}/run", code=1)
    for word in words:
        assert word in said
    assert not (tmp_path / "run" / "results.json").exists()


def test_help_needs_no_suite() -> None:
    said = bench("--help")
    assert "python -m strobe.bench --list" in said
    assert "fail_if_slower" in said


def test_one_process_measures_into_a_folder(sample_root: Path, scratch: Path) -> None:
    given = (*LOADING, f"data.root={sample_root}", "suite.loaders=[native]", f"hydra.run.dir={scratch}/run")
    process = start(*given, "rounds=50", "precision=0")
    assert wait_for((scratch / "run" / "results.json").is_file)
    said = bench(*given, code=1)
    assert "another process measures into it" in said
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=60)
    assert not (scratch / "run" / ".lock").exists()
