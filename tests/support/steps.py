"""The rows of a ``steps.csv``, for the tests of what writes them."""

import csv
from pathlib import Path

import pytest

from strobe.callbacks.columns import COLUMNS
from strobe.callbacks.steps import StepRecorder


@pytest.fixture
def recorder(tmp_path: Path) -> StepRecorder:
    return StepRecorder(tmp_path / "steps.csv")


def rows(recorder: StepRecorder) -> list[dict[str, str]]:
    text = recorder.path.read_text()
    assert text.endswith("\n")
    header, *lines = csv.reader(text.splitlines())
    assert header[: len(COLUMNS)] == list(COLUMNS)
    assert all(name.startswith(("callbacks/", "after/")) for name in header[len(COLUMNS) :])
    return [dict(zip(header, line, strict=True)) for line in lines]


def column(recorder: StepRecorder, name: str) -> list[int]:
    return [int(row[name]) for row in rows(recorder)]


def seconds(recorder: StepRecorder, name: str) -> list[float]:
    return [float(row[name]) for row in rows(recorder)]
