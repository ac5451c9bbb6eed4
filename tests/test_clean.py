"""``strobe clean``: what it lists, and that it removes nothing else."""

import json
import os
import time
from pathlib import Path

import pytest
from filelock import FileLock

from strobe.clean import main

DAY = 86400.0
RECORDS = {  # as far as they tell what a folder is
    "summary.json": '{"schema": 1, "status": "completed", "verdict": null}',
    "sweep.json": '{"schema": 1, "cells": [], "repeats": 3}',
    "tune.json": '{"schema": 1, "budget": 60.0, "trials": []}',
    "comparison.json": '{"schema": 2, "baseline": null, "cells": []}',
    "config.yaml": "seed: 42\nceilings_seconds: 5.0\n",
}


def planted(root: Path, name: str, *files: str, days: float) -> Path:
    """A folder with these files, none of which has changed for so many days."""
    folder = root / name
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(RECORDS.get(Path(file).name, "1" * 1000))
    then = time.time() - days * DAY
    for path in [*folder.rglob("*"), folder]:
        os.utime(path, (then, then))
    return folder


@pytest.fixture
def outputs(tmp_path: Path) -> dict[str, Path]:
    root, record = tmp_path / "outputs", (".hydra/config.yaml", "summary.json")
    made = {
        "old": planted(root, "runs/one day/old", *record, "checkpoints/best.ckpt", days=9),
        "new": planted(root, "runs/today/new", *record, days=0.1),
        "killed": planted(root, "runs/one day/killed", ".hydra/config.yaml", "steps.csv", days=9),
        "running": planted(root, "runs/today/running", ".hydra/config.yaml", "steps.csv", days=0.5),
        "sweep": planted(root, "sweeps/one day/it", "sweep.json", "0/.hydra/config.yaml", "0/summary.json", days=9),
        "measured": planted(root, "tune/one day/it", "tune.json", ".lock", days=9),
        "compared": planted(root, "comparisons/one day/it", "comparison.json", "comparison.csv", days=9),
        "again": planted(root, "runs/today/again", *record, days=0.5),
        "own": planted(root, "notes", "thoughts.txt", "results.json", ".hydra/overrides.yaml", days=99),
        "elsewhere": planted(tmp_path, "elsewhere", *record, days=99),
    }
    os.utime(made["again"] / ".hydra" / "config.yaml")  # resumed in its own folder
    (root / "runs" / "link").symlink_to(made["elsewhere"])
    return made


def test_it_lists_and_removes_nothing(outputs: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    root = str(outputs["own"].parent)
    main([root])
    lines = capsys.readouterr().out.splitlines()
    assert {line.split("  ")[-1].partition(",")[0].strip() for line in lines[:-1]} == {
        str(outputs[name]) for name in ("old", "new", "killed", "running", "again", "sweep", "measured", "compared")
    }
    assert lines[-1].startswith("8 folders, ")
    stay = [line for line in lines if "may be in progress" in line]
    assert [str(outputs[name]) in "".join(stay) for name in ("running", "again")] == [True, True]
    assert len(stay) == 2
    linked = outputs["elsewhere"].with_name("linked")
    linked.symlink_to(root)
    main([str(linked), "--older-than", "7d"])
    assert "5 folders" in capsys.readouterr().out
    assert all(path.exists() for path in outputs.values())


def test_it_removes_what_has_ended_and_is_old_enough(outputs: dict[str, Path]) -> None:
    root = str(outputs["own"].parent)
    with FileLock(outputs["measured"] / ".lock"):
        main([root, "--older-than", "7d", "--remove"])
        assert {name for name, path in outputs.items() if not path.exists()} == {"old", "killed", "sweep", "compared"}
        main([root, "--older-than", "0h", "--remove"])
        assert {name for name, path in outputs.items() if path.exists()} == {
            *("running", "again", "measured", "own", "elsewhere")
        }
    main([root, "--older-than", "0h", "--remove"])
    assert not outputs["measured"].exists()


def test_a_project_that_a_run_was_told_to_write_into_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = ("code.py", ".hydra/config.yaml", "summary.json", "outputs/old/summary.json")
    project = planted(tmp_path, "project", *files, days=9)
    planted(tmp_path, "project/compared", "comparison.json", "mine.txt", "old/comparison.json", days=9)
    monkeypatch.chdir(project)
    main([".", "--older-than", "7d", "--remove"])
    assert {path.name for path in project.rglob("*.*")} >= {"code.py", "config.yaml", "summary.json", "mine.txt"}
    assert not (project / "outputs" / "old").exists()
    assert not (project / "compared" / "old").exists()


@pytest.mark.parametrize("given", [["--remove"], ["nowhere"], ["--older-than", "7"]])
def test_what_cannot_be(given: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        main(given)
    assert stopped.value.code == 2


def test_without_a_folder_it_looks_where_trainings_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    main([])
    assert capsys.readouterr().out == "0 folders, 0 B\n"
    planted(tmp_path, "strobe-runs/one day/mine", "summary.json", days=9)
    planted(tmp_path, "strobe-tune/one day/mine", "tune.json", days=9)
    main([])
    found = capsys.readouterr().out
    assert "strobe-runs/one day/mine" in found
    assert "strobe-tune/one day/mine" in found


def of_a_script(root: Path, name: str, record: dict[str, object], *files: str) -> Path:
    """An old folder that a command for scripts wrote into."""
    folder = planted(root, name, *files, days=9)
    kind = "tune.json" if "trials" in record else "summary.json"
    (folder / kind).write_text(json.dumps(record | {"schema": 1, "script": "python train.py"}))
    os.utime(folder / kind, (time.time() - 9 * DAY,) * 2)
    return folder


def test_of_a_scripts_records_it_removes_only_folders_that_hold_nothing_else(tmp_path: Path) -> None:
    search: dict[str, object] = {"budget": 60.0, "trials": []}
    run: dict[str, object] = {"status": "completed", "verdict": None, "ceilings": None}
    probe = run | {"ceilings": {"loader": 1.0}}
    measured = ("looks/1/output.txt", "alone/2/output.txt", "turns/3/losses.txt", "search.html")
    gone = [
        of_a_script(tmp_path, "search", search, *measured),
        of_a_script(tmp_path, "killed", search, "looks/1/output.txt", ".lock"),
        of_a_script(tmp_path, "probe", probe, "output.txt", "steps.csv", "report.html"),
        of_a_script(tmp_path, "run", run, "steps.csv", "report.html", "ranks/1.csv"),
    ]
    stays = [
        of_a_script(tmp_path, "with notes", search, *measured, "notes.txt"),
        of_a_script(tmp_path, "with looks", search, "looks/summer/dress.png"),
        of_a_script(tmp_path, "with output", run, "steps.csv", "output.txt"),
        planted(tmp_path, "strobe-tune", "looks/1/output.txt", "search.html", "tune.json.bak", days=9),
    ]
    main([str(tmp_path), "--older-than", "7d", "--remove"])
    assert [path.exists() for path in gone] == [False] * 4
    assert all(len(list(path.rglob("*.*"))) > 1 for path in stays)
