"""Which runs lie at a path, how each of them ended, and what was not the same in them."""

import json
from pathlib import Path
from typing import Any

import pytest

from strobe.compare.cells import environment_differences
from strobe.compare.runs import find_runs
from strobe.errors import ConfigError
from support.run_folders import ENVIRONMENT, write_run, write_sweep

COMMIT = str(ENVIRONMENT["git_commit"])


def test_a_sweep_tells_of_runs_that_left_nothing(tmp_path: Path) -> None:
    write_sweep(tmp_path / "s", [("loader=native", [100, 101]), ("data.batch_size=9999", ["memory ran out"])])
    runs = find_runs([tmp_path / "s"])
    assert [(run.folder.name, run.status, run.rate, run.error) for run in runs] == [
        ("0-cell", "completed", 100, None),
        ("0-cell.2", "completed", 101, None),
        ("1-cell", "failed", None, "memory ran out"),
    ]
    assert [run.overrides for run in runs] == [{"loader": "native"}] * 2 + [{"data.batch_size": "9999"}]
    assert runs[0].seconds == 2.5
    assert {run.origin for run in runs} == {tmp_path / "s"}


def test_the_order_is_that_of_cells_and_repeats(tmp_path: Path) -> None:
    write_sweep(tmp_path, [(f"data.batch_size={size}", [1, 1]) for size in range(1, 13)])
    names = [run.folder.name for run in find_runs([tmp_path])]
    assert names == [f"{number}-cell{repeat}" for number in range(12) for repeat in ("", ".2")]
    [run] = find_runs([tmp_path / "0-cell.2"])  # one run of a sweep is only itself
    assert run.order == (0, 2)


def test_a_folder_of_runs_and_sweeps_gives_each_once(tmp_path: Path) -> None:
    sweep = write_sweep(tmp_path / "sweeps" / "a", [("loader=native", [100])])
    lone = write_run(tmp_path / "runs" / "b", ["loader=pil"])
    killed = tmp_path / "runs" / "killed"
    (killed / "tensorboard").mkdir(parents=True)
    (killed / ".hydra").mkdir()
    (killed / ".hydra" / "overrides.yaml").write_text("- loader=rasterio\n- seed=3\n")
    runs = find_runs([tmp_path, sweep, lone, tmp_path])
    assert [run.folder for run in runs] == [sweep / "0-cell", lone, killed]
    assert runs[2].status == "failed"
    assert runs[2].overrides == {"loader": "rasterio"}
    assert "the run goes on, or was killed" in (runs[2].error or "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is damaged"),
        ('{"schema": 1, "status": "baked"}', "status 'baked', which is unknown"),
        ('{"schema": 1}', "status None"),
        ('{"schema": 1, "status": "failed", "error": {"type": "OSError", "message": "the disk is gone"}}', "disk is"),
        ('{"schema": 1, "status": "interrupted", "error": null, "overrides": {"a": 1}}', None),
    ],
)
def test_a_damaged_record_is_a_run_with_its_error(tmp_path: Path, text: str, said: str | None) -> None:
    (tmp_path / "summary.json").write_text(text)
    [run] = find_runs([tmp_path])
    assert run.status == ("failed" if said else "interrupted")
    assert run.rate is None
    assert (said in (run.error or "")) if said else run.error is None


def test_without_a_readable_sweep_record_the_runs_tell_themselves(tmp_path: Path) -> None:
    sweep = write_sweep(tmp_path / "s", [("loader=native", [100]), ("loader=pil", [101, "lost"])])
    (sweep / "sweep.json").write_text(json.dumps({"schema": 1, "cells": 3}))
    assert [run.overrides for run in find_runs([sweep])] == [{"loader": "native"}, {"loader": "pil"}]


def test_the_cell_of_somebody_elses_training_is_its_command_and_loader(tmp_path: Path) -> None:
    known: dict[str, Any] = {"script": "python train.py --lr 1", "batch_size": 8, "num_workers": 0}
    for name, changed in (("a", {}), ("b", {}), ("c", {"batch_size": None}), ("d", {"script": "python -m train"})):
        write_run(tmp_path / name, **known | changed)
    cells = [run.overrides for run in find_runs([tmp_path])]
    assert cells[0] == cells[1] == {"script": "train.py --lr 1", "batch_size": "8", "num_workers": "0"}
    assert cells[2] == {"script": "train.py --lr 1", "num_workers": "0"}
    assert cells[3]["script"] == "-m train"


def test_only_completed_runs_have_a_rate(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no run; give the directory"):
        find_runs([tmp_path])
    write_run(tmp_path / "a", status="interrupted")
    write_run(tmp_path / "b", overall_images_per_second=None)
    write_run(tmp_path / "c", overall_images_per_second=None, images_per_second={"median": None})
    assert [run.rate for run in find_runs([tmp_path])] == [None, 125.0, None]


def test_a_run_that_went_on_when_its_sweep_was_killed_has_completed(tmp_path: Path) -> None:
    sweep = write_sweep(tmp_path, [("loader=native", [100])])
    path = sweep / "sweep.json"
    told = json.loads(path.read_text())
    told["cells"][0]["runs"][0] |= {"status": "interrupted", "error": "it had not ended when the sweep did"}
    path.write_text(json.dumps(told))
    [run] = find_runs([sweep])
    assert (run.status, run.error, run.rate) == ("completed", None, 100)
    (sweep / "0-cell" / "summary.json").write_text("{")
    told["cells"][0]["runs"][0] |= {"status": "completed", "error": None}
    path.write_text(json.dumps(told))
    assert [run.status for run in find_runs([sweep])] == ["failed"]  # what a sweep says completed needs its record


def unlike(tmp_path: Path, *changes: dict[str, Any], keys: tuple[str, ...] = ()) -> list[str]:
    runs = [write_run(tmp_path / str(number), (), 100.0, **change) for number, change in enumerate(changes)]
    return environment_differences(find_runs(runs), keys)


def test_alike_runs_need_no_word(tmp_path: Path) -> None:
    assert unlike(tmp_path, {}, {}, {"page_cache": 0.85}, {"page_cache": None}, {"status": "failed"}) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"host": "other"}, "The runs differ in host: box in 2 runs, other in {}/2"),
        ({"cpu": "i486"}, "The runs differ in processor: AMD EPYC in 2 runs, i486 in {}/2"),
        ({"usable_cores": 1}, "The runs differ in usable cores: 2 in 2 runs, 1 in {}/2"),
        ({"gpu": "H200"}, "The runs differ in GPU: none in 2 runs, H200 in {}/2"),
        (
            {"git_commit": COMMIT + "+"},
            "The runs differ in commit of Strobe: 0123456789ab in 2 runs, 0123456789ab+ in {}/2",
        ),
        ({"unit": "steps"}, "Rates count images in some runs, steps in others, and cannot be compared"),
        ({"train_images": 81}, "The runs differ in training images: 80 in 2 runs, 81 in {}/2"),
        (
            {"versions": {"python": "3.11.7", "torch": "2.16.0"}},
            "The runs differ in the version of torch: 2.15.0 in 2 runs, 2.16.0 in {}/2",
        ),
        (
            {"page_cache": 0.5},
            "The page cache held 50% of the training files when {0}/2 began, and 100% when {0}/0 began",
        ),
    ],
)
def test_each_difference_is_a_sentence(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    assert unlike(tmp_path, {}, {}, change) == [said.format(tmp_path)]


def test_other_data_may_be_meant_and_other_numbers_of_images_at_other_batch_sizes_are_not(tmp_path: Path) -> None:
    assert unlike(tmp_path / "a", {}, {"train_images": 7}, keys=("loader", "data")) == []
    assert len(unlike(tmp_path / "b", {}, {"train_images": 7}, keys=("data.batch_size",))) == 1


def test_changes_that_were_never_committed_may_differ_between_directories(tmp_path: Path) -> None:
    changes = [{"git_commit": COMMIT + "+"}] * 2
    assert unlike(tmp_path, *changes) == ["The runs had uncommitted changes, which may not have been the same"]
    (tmp_path / "lost" / "tensorboard").mkdir(parents=True)  # a run that left no record differs in nothing
    assert environment_differences(find_runs([tmp_path]), ()) == []
