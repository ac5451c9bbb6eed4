"""Whole runs: what they leave behind, and how they end."""

from collections.abc import Callable

from conftest import Ended


def test_a_run_leaves_its_record(train: Callable[..., Ended]) -> None:
    ended = train("profiler=trace", "trainer.limit_train_batches=14", "trainer.max_epochs=2")
    assert ended.code == 0, ended.output
    summary = ended.summary
    assert summary["status"] == "completed"
    assert len(summary["traces"]) == 2
