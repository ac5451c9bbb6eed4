"""``sweep.json`` and the directory around it."""

import json
from pathlib import Path
from typing import Any

import pytest

from strobe.app.sweep.campaign import completed, make_empty, require_unused
from strobe.errors import ConfigError
from strobe.process.locks import alone_in
from strobe.records.sweep import NAME, Run, Sweep, SweepCell, read_sweep
from support.files import plant
from support.refusals import refusal

SWEEP = Sweep(
    command="python train.py -m seed=1,2",
    overrides=["seed=1,2"],
    repeats=2,
    seed=3,
    began="2026-11-20T12:00:00+0000",
    status="interrupted",
    seconds=12.5,
    cells=[
        SweepCell(
            0, ["seed=1"], [Run(1, "0-seed-1", "completed", None, 5.0), Run(2, "0-seed-1.2", "failed", "no", 0.5)]
        ),
        SweepCell(1, ["seed=2"]),
    ],
)


def changed(**values: Any) -> str:
    return json.dumps({"schema": 1, **vars(SWEEP), "cells": [], **values})


def holding(run: Run) -> str:
    return changed(cells=[{"number": 0, "overrides": [], "runs": [vars(run)]}])


def test_it_is_read_as_it_was_written(tmp_path: Path) -> None:
    SWEEP.save(tmp_path)
    assert read_sweep(tmp_path) == SWEEP
    assert [path.name for path in tmp_path.iterdir()] == [NAME]
    assert read_sweep(tmp_path / "elsewhere") is None


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "Expecting value"),
        ("[]", "list indices"),
        ("{}", "no 'schema'"),
        (changed(schema=2), "schema 2 is not 1"),
        (changed(cells=[{"number": 0}]), "no 'overrides'"),
        (holding(Run(1, "../precious", "failed", None, 1)), "'../precious' is not below it"),
        (holding(Run(1, "/", "failed", None, 1)), "'/' is not below it"),
        (holding(Run(1, "a", "lost", None, 1)), "'lost' is unknown"),  # type: ignore[arg-type]
    ],
)
def test_another_file_is_refused(tmp_path: Path, content: str, reason: str) -> None:
    (tmp_path / NAME).write_text(content)
    said = refusal(lambda: read_sweep(tmp_path))
    assert said.startswith(f"hydra.sweep.dir={tmp_path} has a damaged sweep.json (")
    assert reason in said


@pytest.mark.parametrize("left", ["0-seed-1/summary.json", "0-seed-1/.hydra/config.yaml"])
def test_runs_that_nobody_knows_are_not_written_over(tmp_path: Path, left: str) -> None:
    require_unused(tmp_path)
    plant(tmp_path, {left: b"{}"})
    assert "holds runs but no sweep.json" in refusal(lambda: require_unused(tmp_path), ConfigError)


def test_a_sweep_is_alone_in_its_directory(tmp_path: Path) -> None:
    def again() -> None:
        with alone_in(tmp_path, "hydra.sweep.dir"):
            pass

    with alone_in(tmp_path, "hydra.sweep.dir"):
        assert "another process is writing into it" in refusal(again, ConfigError)
    again()
    assert not list(tmp_path.iterdir())


def test_a_completed_run_is_not_removed(tmp_path: Path) -> None:
    kept, again = tmp_path / "kept", tmp_path / "again"
    plant(kept, {"summary.json": b'{"status": "completed"}'})
    plant(again, {"summary.json": b'{"status": "fai', "checkpoints/last.ckpt": b"half"})
    make_empty(again)
    make_empty(tmp_path / "nothing")
    with pytest.raises(AssertionError):
        make_empty(kept)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert completed(kept)
