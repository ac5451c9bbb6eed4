"""``strobe tune SCRIPT.py``: one real search of a script whose loader is slow; made-up machines for the rest."""

import io
import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from strobe.diagnose.rank import diagnose
from strobe.errors import ConfigError, DataError
from strobe.process.locks import alone_in
from strobe.records.files import write_summary
from strobe.records.places import TUNED
from strobe.records.run import Record
from strobe.tune import command
from strobe.tune.dimensions import ALL, OWN
from strobe.tune.page import render
from strobe.tune.proposals import advice
from strobe.tune.record import NAME, NOTHING, Tuning, begin
from strobe.tune.script import Script
from strobe.tune.search import BUDGET
from strobe.tune.session import begun
from strobe.tune.table import NO_LOSSES, OF_A_LOOP, ending, first_losses, print_tuning, total, warning
from support.landscape import Sided
from support.pages import Page, of_class, words_of
from support.processes import begin as started
from support.processes import ended
from support.recorded import example
from support.refusals import ended as refused

SCRIPT = """
import sys, time
import lightning.pytorch as lightning
import torch
from torch.utils.data import DataLoader, Dataset


class Slow(Dataset):
    def __len__(self):
        return 400

    def __getitem__(self, index):
        time.sleep(0.01)
        return torch.full((4,), index / 400)


class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, index):
        time.sleep(0.02)
        return self.layer(batch).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


if __name__ == "__main__":
    trainer = lightning.Trainer(max_epochs=int(sys.argv[1]), accelerator="cpu")
    trainer.fit(
        Net(),
        DataLoader(
            Slow(),
            batch_size=4,
        ),
    )
    open("written", "w").close()
"""
LINE = SCRIPT.splitlines().index("        DataLoader(") + 1


class Made(Sided):
    """A script on a made-up machine: more workers load faster."""

    def __init__(self, script: Script, folder: Path, **_: Any) -> None:
        super().__init__(folder, self.loads, lambda _: 400.0)
        self.script = script

    def __enter__(self) -> "Made":
        return self

    def __exit__(self, *_: object) -> None: ...

    def loads(self, chosen: Mapping[str, str]) -> float:
        return 100.0 * max(1.0, float(chosen.get("engine.num_workers", "0")))

    def trains(self, chosen: Mapping[str, str]) -> float:
        workers = chosen.get("engine.num_workers", "0") != "0"
        return min(self.loads(chosen), 400.0) if workers else super().trains(chosen)

    def record(self, overrides: Sequence[str]) -> Record:
        made = {"call": "DataLoader", "constructor": False, "given": ["batch_size", "dataset"]}
        place = {"file": str(Path("train.py").resolve()), "line": 3, "end_line": 3, "column": 9, "end_column": 41}
        engine = {"num_workers": 0, "persistent_workers": False}
        found = super().record(overrides).summary | {
            "script": self.script.line,
            "choices": {},
            "loaders": [],
            "unit": "samples",
        }
        return Record(found, {"engine": engine, "made": {"loader": [made | place]}})


def tuned(monkeypatch: pytest.MonkeyPatch, folder: Path, *options: str, machine: type[Made] = Made) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(command, "Scripts", machine)
    (folder / "train.py").write_text(TINY)
    command.main([*options, "--yes", "--patch", "found.diff", "train.py", "--lr", "0.1"])


TINY = "from torch.utils.data import DataLoader\n\nloader = DataLoader([1, 2], batch_size=2)\n"
FASTER = "DataLoader(..., num_workers=2, persistent_workers=True) at train.py:3"


def test_it_ends_with_what_to_write_and_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tuned(monkeypatch, tmp_path)
    said = capsys.readouterr()
    assert "This runs python train.py --lr 0.1 until its first training begins, many times" in said.err
    assert "num_workers=2, persistent_workers=True: 2.50 times (2.45 to 2.55), predicted" in said.out
    [record] = tmp_path.rglob("tune.json")
    why = json.loads(record.read_text())["trials"][0]["why"]
    assert why == "With this the loader alone reaches 200 samples/s, instead of 100 samples/s"
    assert "git apply found.diff" in said.out.splitlines()
    assert FASTER in said.out.splitlines()
    [page] = tmp_path.glob("strobe-tune/*/*-train/search.html")
    assert said.out.splitlines()[-1] == str(page.relative_to(tmp_path))
    text = Page(page.read_text()).text
    assert FASTER in text
    assert "engine." not in text
    assert (tmp_path / "train.py").read_text() == TINY
    subprocess.run(["git", "apply", "found.diff"], cwd=tmp_path, check=True)
    assert (
        "DataLoader([1, 2], batch_size=2, num_workers=2, persistent_workers=True)"
        in (tmp_path / "train.py").read_text()
    )


def test_where_nothing_is_faster_there_is_nothing_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Even(Made):
        def trains(self, chosen: Mapping[str, str]) -> float:
            return 80.0

    tuned(monkeypatch, tmp_path, machine=Even)
    said = capsys.readouterr().out
    assert "Nothing that was tried is measurably faster." in said
    assert not (tmp_path / "found.diff").exists()
    assert "DataLoader(..." not in said


@pytest.mark.slow
def test_a_slow_loader_gets_workers_by_a_patch_that_git_applies(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    options = ("--budget", "20m", "--over", "workers", "--seconds", "0.5", "--turn-seconds", "0.3")
    asked = ("-m", "strobe.tune", *options, "--yes", "--patch", "found.diff", "--out", "search", "train.py", "2")
    said = ended(started(*asked, cwd=tmp_path))
    record = json.loads((tmp_path / "search" / NAME).read_text())
    assert record["proof"]["verdict"] == "faster", said
    assert record["script"] == "python train.py 2"
    [workers] = [text for text in record["recommended"] if text.startswith("engine.num_workers=")]
    line = next(line for line in said.splitlines() if line.startswith("DataLoader("))
    found = f"num_workers={workers.partition('=')[2]}, persistent_workers=True"
    assert line == f"DataLoader(..., {found}) at train.py:{LINE}"
    assert script.read_text() == SCRIPT  # nothing is edited unasked
    assert sorted(path.name for path in tmp_path.iterdir()) == ["found.diff", "search", "train.py"]
    subprocess.run(["git", "apply", "found.diff"], cwd=tmp_path, check=True)
    assert f"            {found},\n            batch_size=4,\n" in script.read_text()
    assert f"train.py:{LINE}" in (tmp_path / "search" / "search.html").read_text()


def tuning_of(folder: Path, *changes: str, losses: Any = None) -> Tuning:
    found = begin(folder, [], None, command="strobe tune train.py", budget=60.0, script="python train.py")
    found.best = list(changes)
    found.proof = {"ratio": {"median": 2.0, "low": 1.9, "high": 2.1}, "verdict": "faster", "error": None}
    found.proof |= {"losses": losses} if losses else {}
    found.trials = [{"kept": True, "images": (32, 64)}]
    return found


def test_what_alters_results_says_so_with_the_losses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    losses = {"before": [2.0, 1.5, 1.0], "after": [2.0, 1.53, 1.0, 0.9]}
    tuning = tuning_of(tmp_path, "trainer.precision=bf16-mixed", losses=losses)
    assert warning(tuning) == (
        'precision="bf16-mixed" computes in another precision: compare the accuracy before you rely on it.'
    )
    assert first_losses(tuning) == (
        "From the same seed the loss goes from 2 to 1 as it is, from 2 to 1 with the changes (3 steps; "
        "0.0% apart in the median, 2.0% at most)."
    )
    assert first_losses(tuning_of(tmp_path, "engine.num_workers=2", losses=losses)) == ""
    seldom = tuning_of(tmp_path, "trainer.check_val_every_n_epoch=5")
    assert warning(seldom).startswith("check_val_every_n_epoch=5 shows less of a training: its curves have fewer")
    larger = tuning_of(tmp_path, "data.batch_size=64")
    assert warning(larger).startswith("Each update sees 64 samples instead of 32")
    assert first_losses(larger) == NO_LOSSES  # as with manual optimization
    monkeypatch.setattr("strobe.tune.table.first_probe", lambda _: Record({}, {"loop": "seen"}))
    assert first_losses(larger) == OF_A_LOOP


def test_without_a_proof_nothing_is_to_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tuning = tuning_of(tmp_path, "engine.num_workers=2")
    assert tuning.proof is not None
    tuning.proof["verdict"], tuning.trials = "no difference", []
    print_tuning(Console(), tuning)
    assert "DataLoader" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing.py"], "there is no file nothing.py; give the script that trains"),
        (["-m", "torch.distributed.run", "x.py"], "torch.distributed.run starts a script in several"),
        ([], "strobe tune needs a script, as in: strobe tune train.py --epochs 3"),
        (["--bugdet", "3m", "train.py"], "--bugdet is not an option of strobe tune; did you mean --budget?"),
        (["train.py"], "There is no terminal to ask in; add --yes to go on."),
        (
            ["--over", "loader,workers", "train.py"],
            "--over loader cannot be searched in a script; choose from workers",
        ),
        (["--patch", "no/found.diff", "train.py"], "--patch no/found.diff is not a file in a folder that exists"),
        (["--budget", "10s", "train.py"], "--budget 10s is too little: one probe and one comparison take about"),
        (["--budget", "soon", "train.py"], "--budget soon is not a length of time; give one such as --budget 120s"),
    ],
)
def test_mistakes_are_told_in_a_sentence(
    arguments: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    (tmp_path / "train.py").touch()
    code, printed = refused(lambda: command.main(arguments), capsys)
    assert code == 2
    assert printed.splitlines()[-1].startswith(said)
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


def test_where_nothing_was_measured_no_folder_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.py").write_text("raise SystemExit('no such data')")
    monkeypatch.chdir(tmp_path)
    code, said = refused(lambda: command.main(["--yes", "train.py"]), capsys)
    assert code == 1
    assert "The script printed last:\n  no such data\n" in said
    assert "output.txt" not in said
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


def test_a_completed_search_is_not_written_over(tmp_path: Path) -> None:
    done = tuning_of(tmp_path)
    done.status = "completed"
    done.save()
    with pytest.raises(ConfigError, match="holds a search that is completed, or another one; give another folder"):
        begun(tuning_of(tmp_path), TUNED, "--out ", Console())


def test_a_full_disk_is_told_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()  # as unwritable, and quicker to have
    with pytest.raises(DataError, match=r"tune\.json cannot be written \(.+\); make room"):
        tuning_of(tmp_path / "file").save()


@pytest.mark.parametrize(
    ("over", "why", "said"),
    [
        (None, NOTHING, "There was nothing to try."),
        (["workers"], NOTHING, "Nothing in --over workers promises to help here."),
        (["workers"], BUDGET, "Nothing was tried."),
    ],
)
def test_where_nothing_was_tried_it_says_why(over: list[str] | None, why: str, said: str, tmp_path: Path) -> None:
    tuning = tuning_of(tmp_path)
    tuning.trials, tuning.ended, tuning.header["over"] = [], why, over
    assert total(tuning) == said


def test_a_busy_machine_is_said_to_be_the_reason(tmp_path: Path) -> None:
    record = example("shared_machine")
    record.summary["findings"] = [one.as_dict() for one in diagnose(record)]
    (tmp_path / "looks").mkdir()
    write_summary(tmp_path / "looks" / "summary.json", record.summary)
    tuning = tuning_of(tmp_path)
    unknown = {"median": 0.9, "low": 0.01, "high": 90.0}
    tuning.best, tuning.ended, tuning.seconds = [], BUDGET, 7.5 * 60
    trial = {"number": 1, "overrides": ["engine.num_workers=1"], "why": "", "predicted": None, "error": None}
    tuning.trials = [trial | {"measured": unknown, "verdict": "no difference", "kept": False}]
    assert total(tuning) == "Too noisy to tell whether anything is faster."
    assert (
        ending(tuning)
        == "The time is up after 7.5 min instead of 60 s, because a comparison that has begun is finished."
    )
    tuning.probes = [{"directory": "looks", "alternatives": 4}]
    tuning.sides = [{"side": "model", "overrides": changes} for changes in ([], ["threads=1"], [], ["threads=1"])]
    assert tuning.settings == 5
    assert re.search(r"finished\. Other processes took \d+% of the cores meanwhile: search again", ending(tuning))
    assert advice(record) == []
    assert words_of(of_class(Page(render(tuning, record)).tree, "badge")[0]) == "too noisy to tell"


def test_a_search_that_another_process_is_at_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = Path("strobe-tune", "day", "time-train")
    folder.mkdir(parents=True)
    tuning_of(folder).save()
    assert begun(tuning_of(tmp_path), TUNED, None, Console()).folder == folder
    with alone_in(folder, "--out"):
        assert begun(tuning_of(tmp_path), TUNED, None, Console()).folder == tmp_path


def test_workers_of_an_iterable_data_set_come_with_a_warning(tmp_path: Path) -> None:
    found = {"engine": {"num_workers": 0, "iterable": True}}
    (tmp_path / "looks").mkdir()
    write_summary(tmp_path / "looks" / "summary.json", {"schema": 1, "script": "train.py", "settings": found})
    tuning = tuning_of(tmp_path, "engine.num_workers=2")
    tuning.probes = [{"directory": "looks"}]
    assert "must then share its samples among the workers" in warning(tuning)
    tuning.best = ["engine.num_workers=1"]
    assert warning(tuning) == ""


def test_what_only_the_application_has_is_not_searched() -> None:
    assert set(command.SEARCHED) == set(ALL) - set(OWN)
