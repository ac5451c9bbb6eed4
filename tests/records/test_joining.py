"""What is known of a training that left no record, and whose end ended it."""

import json
from pathlib import Path
from typing import Any

import pytest

from strobe.attach.record import begin
from strobe.errors import DataError
from strobe.records.files import BEGUN
from strobe.records.joining import is_whole, join_ranks, last_steps, note_failure, recover, what_failed
from strobe.report.__main__ import main

HEAD = "step,epoch,images,updates,profiled,total,data_wait,forward,exposed_wait\n"
GONE = RuntimeError("[gloo/transport/tcp/pair.cc:561] Connection closed by peer [127.0.0.1]:1")


def rows(path: Path, steps: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(HEAD + "".join(f"{step},0,8,1,0,0.1,0.08,0.02,0.0\n" for step in range(steps)) + "7,cut")


@pytest.fixture
def died(tmp_path: Path) -> Path:
    """Of four ranks 1 ended early, and 3 wrote nowhere that is known."""
    rows(tmp_path / "steps.csv", 30)
    rows(tmp_path / "ranks" / "1.csv", 20)
    rows(tmp_path / "ranks" / "2.csv", 30)
    begun = {
        "schema": 1,
        "world_size": 4,
        "unit": "samples",
        "accelerator": "cpu",
        "batch_size": 2,
        "script": "python x",
    }
    (tmp_path / BEGUN).write_text(json.dumps(begun | {"settings": {"engine": {"num_workers": 0}}}))
    return tmp_path


def test_a_training_that_was_killed_has_a_report_of_its_rows(died: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = recover(died)
    assert (record.count("steps", "measured"), record.text("script"), record.text("status")) == (
        27,
        "python x",
        "failed",
    )
    assert record.setting("engine.num_workers") == 0
    assert record.mapping("ranks", "last_steps") == {"0": 29, "1": 19, "2": 29}
    main([str(died)])
    said = capsys.readouterr().out
    assert "waits for data" in said
    assert "The rows of rank 1 end at step 19, those of the others at step 29." in said
    assert "There are no rows of rank 3." in said
    assert (died / "report.html").is_file()
    assert not (died / "summary.json").exists()


def test_rows_alone_are_enough_and_without_them_nothing_is(tmp_path: Path) -> None:
    rows(tmp_path / "steps.csv", 30)
    record = recover(tmp_path)
    assert (record.count("world_size"), record.mapping("ranks")) == (1, {})
    assert "and its settings" in (record.text("error", "message") or "")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"has no summary\.json"):
        recover(tmp_path / "empty")


def test_a_run_that_began_again_where_another_ended_is_not_that_one(died: Path) -> None:
    (died / "summary.json").touch()
    assert not is_whole(died)
    (died / BEGUN).unlink()
    assert is_whole(died)


@pytest.mark.parametrize(
    ("notes", "error", "told"),
    [
        ({}, ValueError("own"), {"type": "ValueError", "message": "own"}),
        ({1: ValueError("its")}, GONE, {"type": "ValueError", "message": "its (on rank 1)", "rank": 1}),
        ({2: ValueError("its"), 1: KeyError(1)}, GONE, {"type": "ValueError", "message": "its (on rank 2)", "rank": 2}),
        ({1: GONE}, ValueError("own"), {"type": "ValueError", "message": "own"}),
        ({1: GONE}, None, None),
        ({1: TimeoutError("timed out")}, GONE, {"type": "TimeoutError", "message": "timed out (on rank 1)", "rank": 1}),
        ({1: ValueError("its")}, ValueError("own"), {"type": "ValueError", "message": "own"}),
        ({1: ValueError("its")}, KeyboardInterrupt(), {"type": "KeyboardInterrupt", "message": ""}),
    ],
)
def test_the_error_is_that_of_the_rank_that_failed_first(
    died: Path, notes: dict[int, BaseException], error: BaseException | None, told: dict[str, Any] | None
) -> None:
    for rank, each in notes.items():
        note_failure(died, rank, each)
    assert what_failed(died, error) == told


def test_a_rank_that_has_gone_is_named_by_its_rows(died: Path) -> None:
    assert "(The rows of rank 1 end at step 19" in (what_failed(died, GONE) or {})["message"]


def test_rows_of_an_earlier_training_with_more_ranks_are_no_rank_s(died: Path) -> None:
    begin({"world_size": 2}, died)
    assert last_steps(died) == {0: 29, 1: 19}


def test_a_single_process_has_no_ranks(died: Path) -> None:
    assert (join_ranks(died, 1), join_ranks(died, None)) == (None, None)
