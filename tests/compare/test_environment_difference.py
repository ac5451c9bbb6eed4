"""What was not the same in the runs of a comparison."""

from pathlib import Path
from typing import Any

import pytest

from strobe.compare.cells import environment_differences
from strobe.compare.runs import find_runs
from support.run_folders import ENVIRONMENT, write_run

COMMIT = str(ENVIRONMENT["git_commit"])


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
        ({"git_commit": COMMIT + "+"}, "The runs differ in commit: 0123456789ab in 2 runs, 0123456789ab+ in {}/2"),
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
