"""The profilers other than the trace, through the application."""

import csv
import pstats
from typing import Any

import pytest
import torch
from lightning import Trainer

from support.runs import Ended, Train

STEPS = "trainer.limit_train_batches=6"
FILES = {
    "events": {"python_events.prof", "python_events.txt"},
    "sampling": {"python_sampling.html", "python_sampling.txt"},
}


def tables(ended: Ended) -> set[str]:
    return {path.name for path in (ended.directory / "tables").iterdir()}


def marked(ended: Ended) -> str:
    with (ended.directory / "steps.csv").open() as file:
        return "".join(row["profiled"] for row in csv.DictReader(file))


def calls(ended: Ended, function: str) -> int:
    stats: Any = pstats.Stats(str(ended.directory / "tables" / "python_events.prof"))
    return sum(row[1] for (_, _, name), row in stats.stats.items() if name == function)


def test_memory(train: Train) -> None:
    ended = train("profiler=memory", STEPS, "profiler.active=2", whole=True)
    assert ended.code == 0, ended.output
    assert {"operators_by_memory.txt", "operators_by_memory.csv", "memory.txt"} <= tables(ended)
    with (ended.directory / "tables" / "operators_by_memory.csv").open(newline="") as file:
        rows = {row["name"]: row for row in csv.DictReader(file)}
    assert int(rows["aten::convolution"]["calls"]) == 2 * 20  # of resnet18
    assert int(next(iter(rows.values()))["self_cpu_bytes"]) > 1_000_000
    assert "Peak resident memory" in (ended.directory / "tables" / "memory.txt").read_text()
    assert marked(ended) == "111100"  # the wait ends with the profiler's start
    assert ended.summary["choices"]["profiler"] == "memory"
    assert ended.summary["traces"] == []


@pytest.mark.parametrize("kind", FILES)
def test_python(train: Train, kind: str) -> None:
    given = ("profiler=python", f"profiler.kind={kind}", STEPS, "profiler.skip_first=2", "profiler.steps=3")
    ended = train(*given, "checkpoint.save=none", whole=kind == "sampling")  # which needs steps of some milliseconds
    assert ended.code == 0, ended.output
    assert tables(ended) == FILES[kind]
    assert marked(ended) == "011110"
    tree = (ended.directory / "tables" / f"python_{kind}.txt").read_text()
    for part in ("training_step", "run_backward", "adam"):
        assert part in tree
    if kind == "events":
        assert calls(ended, "training_step") == 2 * 3  # the model's, and the strategy's round it
        assert calls(ended, "read") >= 3 * 4
    else:
        page = (ended.directory / "tables" / "python_sampling.html").read_text()
        assert "strobe/app/loaders/skimage.py" in page
        assert "torch/utils/data/dataloader.py" in page
    assert ended.summary["traces"] == []


def test_python_by_default_counts_events_from_the_fourth_step(train: Train) -> None:
    ended = train("profiler=python", STEPS)
    assert tables(ended) == FILES["events"]
    assert calls(ended, "training_step") == 2 * 3


def test_none_leaves_no_trace(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    fit = Trainer.fit

    def watched(self: Trainer, *args: Any, **kwargs: Any) -> None:
        fit(self, *args, **kwargs)
        seen.extend(self.callbacks)

    def refused(*_: Any, **__: Any) -> None:
        raise AssertionError("a profiler was made")

    monkeypatch.setattr(Trainer, "fit", watched)
    monkeypatch.setattr(torch.profiler.profile, "__init__", refused)
    ended = train("profiler=none", STEPS)
    assert ended.code == 0, ended.output
    assert not [callback for callback in seen if "Profiler" in type(callback).__name__]
    assert len(seen) > 2
    left = {path.name for path in ended.directory.rglob("*")}
    assert not [name for name in left if "trace" in name or "operators" in name or "python_" in name]
    assert "tables" not in left
    assert marked(ended) == "000000"
    assert ended.summary["traces"] == []
    assert ended.summary["steps"]["profiled"] == 0
