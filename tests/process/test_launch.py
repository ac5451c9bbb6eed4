"""What a process knows about how it was started."""

import argparse
import os
from pathlib import Path

import pytest

from strobe.process import launch
from strobe.process.launch import positive_seconds, quieten_kineto, rank, started_by_torchrun


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, 0),
        ({"LOCAL_RANK": "1"}, 1),
        ({"RANK": "5", "LOCAL_RANK": "1"}, 5),
        ({"RANK": "0", "LOCAL_RANK": "0"}, 0),
    ],
    ids=str,
)
def test_rank(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], expected: int) -> None:
    for name in ("RANK", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert rank() == expected


@pytest.mark.parametrize("text", ["0", "-1", "abc", "nan", "1e9"])
def test_what_is_no_length_of_time_is_told_in_a_sentence(text: str) -> None:
    assert positive_seconds("0.5") == 0.5
    with pytest.raises(argparse.ArgumentTypeError, match=f"^{text} is not a number of seconds; give one above 0"):
        positive_seconds(text)


def test_only_torchrun_names_its_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    assert not started_by_torchrun()
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")  # torchrun's own default
    assert started_by_torchrun()


@pytest.mark.parametrize(
    ("gpu", "before", "after"), [(False, None, "6"), (False, "1", "1"), (True, None, None), (True, "1", "1")]
)
def test_kineto_is_quiet_only_without_a_gpu(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, gpu: bool, before: str | None, after: str | None
) -> None:
    device = tmp_path / "nvidiactl"
    if gpu:
        device.touch()
    monkeypatch.setattr(launch, "Path", lambda _: device)
    monkeypatch.setenv("KINETO_LOG_LEVEL", before or "")
    if before is None:
        monkeypatch.delenv("KINETO_LOG_LEVEL")
    quieten_kineto()
    assert os.environ.get("KINETO_LOG_LEVEL") == after
