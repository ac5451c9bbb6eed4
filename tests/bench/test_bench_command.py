"""``strobe bench`` as a user types it, mostly in this process; and the quick mode of every suite."""

import json
import os
import pickle
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from strobe.app.config.register import register
from strobe.bench import command
from strobe.bench.command import names, show
from strobe.bench.harness.declare import Cell
from strobe.bench.harness.schedule import Campaign
from strobe.errors import ConfigError, StrobeError
from support.processes import begin, ended, is_running, wait_for
from support.refusals import refusal
from support.runs import run_here
from support.suite_parts import NETWORK, measured_here
from support.tiny_cells import here

LOADING = ("suite=loading", "quick=true", "data.tiles_per_class=10", "suite.batch_sizes=[2]", "suite.batches=2")
LOADING += ("suite.tables=[load]", "suite.loaders=[skimage,native]", "turn_seconds=0.01", "budget_seconds=600")
MODULE = ("-m", "strobe.bench")
FEW = (*LOADING, "suite.cold_batch_size=null")


@pytest.fixture(scope="module")
def loading(unread_root: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A result of ``suite=loading``, which is not to be changed, and what was printed."""
    folder = tmp_path_factory.mktemp("bench") / "loading"
    code, said = measured_here(folder, *LOADING, f"data.root={unread_root}", "rounds=2")
    assert code == 0
    return folder, said


def test_a_result_is_complete(loading: tuple[Path, str]) -> None:
    folder, said = loading
    record = json.loads((folder / "results.json").read_text())
    assert record["status"] == "completed"
    assert [cell["status"] for cell in record["cells"]] == ["measured"] * 4
    assert {cell["cache"] for cell in record["cells"]} == {"warm", "cold"}
    assert all(len(cell["visits"]) == 2 for cell in record["cells"])
    assert record["environment"]["versions"]["imagecodecs"]
    assert record["environment"]["page_cache"] == "warm and cold"
    assert len(pickle.loads((folder / "measurements.pkl").read_bytes())) == 4
    assert {path.name for path in folder.iterdir()} >= {"results.csv", "report.html", "pictures"}
    for words in ("Loading 2 batches", "2 trials a cell", str(folder / "report.html")):
        assert words in said
    told = said.count("times as fast") + said.count("differ too much")  # a column, and a conclusion
    assert told == 2


def test_a_finished_result_is_judged_again_without_measuring(
    loading: tuple[Path, str], unread_root: Path, tmp_path: Path
) -> None:
    shutil.copytree(loading[0], tmp_path / "run")
    before = json.loads((tmp_path / "run" / "results.json").read_text())
    faster = json.loads(json.dumps(before))
    for cell in faster["cells"]:
        for trial in cell["visits"]:
            trial["seconds"] = [seconds / 1e9 for seconds in trial["seconds"]]  # beyond any noise of two trials
    faster["cells"].append({**faster["cells"][0], "name": "load, 2, moon", "column": "moon"})
    (tmp_path / "then.json").write_text(json.dumps(faster))
    given = (*LOADING, f"data.root={unread_root}", f"baseline={tmp_path}/then.json", "rounds=2")
    code, said = measured_here(tmp_path / "run", *given, "fail_if_slower=5%")
    assert code == 3
    assert "Continuing " in said
    assert json.loads((tmp_path / "run" / "results.json").read_text())["cells"] == before["cells"]
    for words in ("slower", "only before", "fail_if_slower=5%: regression: load"):  # before: the moon
        assert words in said
    assert "then.json" in (tmp_path / "run" / "report.html").read_text()
    code, said = measured_here(tmp_path / "run", *given)
    assert code == 0
    assert "slower" in said


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A temporary folder whose path leaves room for the name of a socket."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


def interrupted(process: "subprocess.Popen[str]", number: signal.Signals, scratch: Path) -> str:
    """What the command says when the signal ends it, and all that it started with it."""
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # as a terminal does
    else:
        process.send_signal(number)
    said, _ = process.communicate(timeout=600)
    assert process.returncode == 128 + number, said
    assert "Traceback" not in said
    assert wait_for(lambda: not is_running(process.pid))
    assert not [path for path in scratch.iterdir() if path.name.startswith("strobe-bench-")]
    return said


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, *(pytest.param(one, marks=pytest.mark.slow) for one in (signal.SIGINT, signal.SIGHUP))]
)
def test_an_interrupted_measurement_is_gone_on_with(
    number: signal.Signals, sample_root: Path, tmp_path: Path, scratch: Path
) -> None:
    folder = tmp_path / "run"
    given = (*FEW, f"data.root={sample_root}")
    process = begin(*MODULE, *given, "rounds=500", f"hydra.run.dir={folder}", TMPDIR=str(scratch))
    assert wait_for((folder / "results.json").is_file)
    refused = refusal(lambda: measured_here(folder, *given, "rounds=2"), StrobeError)
    assert "another process is writing into it" in refused
    said = interrupted(process, number, scratch)
    assert f"hydra.run.dir={folder}" in said.partition("Continue with: ")[2]
    assert not (folder / ".lock").exists()
    halfway = json.loads((folder / "results.json").read_text())
    assert halfway["status"] == "interrupted"
    done = {cell["name"]: cell["visits"] for cell in halfway["cells"]}
    wanted = max(map(len, done.values())) + 1
    assert 1 < wanted < 500

    assert measured_here(folder, *given, f"rounds={wanted}")[0] == 0
    record = json.loads((folder / "results.json").read_text())
    assert record["status"] == "completed"
    for cell in record["cells"]:
        assert len(cell["visits"]) == wanted
        assert cell["visits"][: len(done[cell["name"]])] == done[cell["name"]]


def test_ctrl_c_while_the_server_imports_its_libraries_ends_all(sample_root: Path, scratch: Path) -> None:
    process = begin(
        "-m", "strobe.bench", *FEW, f"data.root={sample_root}", f"hydra.run.dir={scratch}/run", TMPDIR=str(scratch)
    )

    def has_server() -> bool:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        with suppress(FileNotFoundError):  # a short one has ended meanwhile
            return any("forkserver" in Path(f"/proc/{child}/cmdline").read_text() for child in children)
        return False

    assert wait_for(has_server)
    interrupted(process, signal.SIGINT, scratch)


def said_by(*arguments: str) -> str:
    """What ``strobe bench`` says, in this process, where it cannot do all that it is asked for."""
    code, said = run_here("src/strobe/bench/__main__.py", *arguments)
    assert code == 2, said
    assert "Traceback" not in said
    return said


def test_a_sweep_measures_each_that_can_be_measured(sample_root: Path, tmp_path: Path) -> None:
    given = [override for override in FEW if "loaders" not in override]
    given += [f"data.root={sample_root}", "suite.loaders=[moon],[native]", "rounds=1"]
    assert "moon" in said_by("-m", *given, f"hydra.sweep.dir={tmp_path}/sweep")
    (path,) = (tmp_path / "sweep").glob("*/results.json")
    assert [cell["column"] for cell in json.loads(path.read_text())["cells"]] == ["native"]


def shown(capsys: pytest.CaptureFixture[str], *overrides: str) -> str:
    register()
    show(overrides)
    return capsys.readouterr().out


def test_the_list_tells_suites_and_cells(capsys: pytest.CaptureFixture[str]) -> None:
    said = shown(capsys).split("\n\n")[0].splitlines()
    assert [line.partition(":")[0] for line in said] == [f"suite={name}" for name in names()]
    assert "load, 1024, skimage scale=torch, 4 threads, warm" in shown(capsys, "suite=loading")
    said = shown(capsys, "suite=loading", "suite.threads=[2]", "suite.tables=[load]")
    assert said.count("2 threads, warm") == 24
    assert "suite=crop: " in shown(capsys, "suite=crop,loading")


def test_a_suite_must_be_there_unless_help_is_wanted() -> None:
    assert said_by("--list", "suite=moon").startswith("suite=moon is not there; give one of convolution, crop")
    choose = f"give suite=NAME; choose one of {', '.join(names())}\n"
    assert said_by() == said_by("-m", "seed=1,2") == f"G{choose[1:]}"
    assert said_by("lr=0.1", "suite.tables=[load]") == f"lr is not a key; did you mean model.lr? Also {choose}"
    code, said = run_here("src/strobe/bench/__main__.py", "--help")
    assert code == 0
    assert "strobe bench --list" in said
    assert "fail_if_slower" in said


def in_a_deep_folder(patch: pytest.MonkeyPatch, folder: Path) -> tuple[str, ...]:
    deep = folder / ("d" * 100)
    deep.mkdir()
    patch.setattr(tempfile, "tempdir", str(deep))
    return ("suite=loading",)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (lambda *_: ("suite=loading", "data=eurosat", "data.root=nowhere"), "data.root=nowhere"),
        (in_a_deep_folder, "which is too long for a socket; set TMPDIR to a shorter path"),
    ],
)
def test_a_mistake_is_told_before_anything_is_measured(
    given: Callable[..., tuple[str, ...]], words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    overrides = given(monkeypatch, tmp_path)
    with pytest.raises((ConfigError, StrobeError), match=words):
        measured_here(tmp_path / "run", *overrides, "quick=true")
    assert not (tmp_path / "run" / "results.json").exists()


TILES = ("data.root={tiles}", "data.tiles_per_class=10", "data.batch_size=4", NETWORK)
SMALL = {  # a few cells of each suite
    "convolution": ("suite.sizes=[8]", 'suite.implementations=["four loops",native]'),
    "crop": ("suite.decoders=[pil,native]", "suite.batch_size=4"),
    "engines": ("suite.workers=[0]", "suite.batch_sizes=[2]", "suite.tables=[engines,buffers]", *TILES),
    "loading": ("suite.loaders=[skimage,native]", "suite.batch_sizes=[2]", "suite.tables=[load]", *TILES[:2]),
    "overhead": ("data.batch_size=4", NETWORK),
    "profiling": ("suite.tables=[spans]", *TILES),
    "storage": ("suite.ways=[raw]", "suite.latencies=[0]", "suite.photos=16", "data.batch_size=1"),
    "training": ("suite.batch_size=4", "suite.large_batch=8", "suite.workers=1", NETWORK),
    "workers": ("suite.stages=[normalise]", "suite.workers=[1]", "suite.pipelines=[torch,strobe]"),
}


def measure(suite: str, folder: Path, *overrides: str) -> None:
    given = (f"suite={suite}", "quick=true", "budget_seconds=0", "turn_seconds=0.05")
    code, said = measured_here(folder, *given, *overrides)
    assert code == 0, said
    complete(folder, said)


def complete(folder: Path, said: str) -> None:
    record = json.loads((folder / "results.json").read_text())
    assert {cell["status"] for cell in record["cells"]} == {"measured"}, said
    assert record["input"]["generated"]
    assert record["conclusions"]
    tables = {cell["table"] for cell in record["cells"]}
    assert len(list((folder / "pictures").glob("*.svg"))) == len(tables)
    assert (folder / "report.html").read_text().count("<svg") >= len(tables)


@pytest.mark.parametrize("suite", names())
def test_a_suite_measures_and_concludes(
    suite: str, tmp_path: Path, unread_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process, but with cells as another one gets them."""

    def run(cell: Cell, *given: Any, **options: Any) -> Any:
        return here(pickle.loads(pickle.dumps(cell)), *given, **options)

    def find(_: Any, search: Any, request: Any, scratch: Path, **__: Any) -> Any:
        return search(request, scratch), {"versions": {}, "host": "here"}

    monkeypatch.delenv("STROBE_DATA", raising=False)
    monkeypatch.setattr("strobe.bench.inputs.GENERATED_PHOTOS", 4)
    monkeypatch.setattr("strobe.bench.suites.overhead.MOST", 4)
    monkeypatch.setattr("strobe.bench.steady.profile", lambda *_, **__: None)
    monkeypatch.setattr(command, "Campaign", partial(Campaign, run=run))
    monkeypatch.setattr(command, "in_fresh_process", find)
    measure(suite, tmp_path / "run", "rounds=1", *(given.format(tiles=unread_root) for given in SMALL.get(suite, ())))


@pytest.mark.slow  # as `make bench` does
@pytest.mark.parametrize("suite", names())
def test_a_suites_quick_mode_measures_every_cell(suite: str, tmp_path: Path) -> None:
    given = (f"suite={suite}", "quick=true", "budget_seconds=0", "turn_seconds=0.05")
    complete(tmp_path / "run", ended(begin(*MODULE, *given, f"hydra.run.dir={tmp_path / 'run'}")))
