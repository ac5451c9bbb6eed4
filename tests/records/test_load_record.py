"""Reading a run's directory: what is damaged, or no run's, is refused in one sentence."""

from pathlib import Path

import pytest

from strobe.errors import DataError
from strobe.records.run import Record, load_record


def write(directory: Path, summary: str, config: str | None = None) -> Path:
    (directory / "summary.json").write_text(summary)
    if config is not None:
        (directory / ".hydra").mkdir()
        (directory / ".hydra" / "config.yaml").write_text(config)
    return directory


def test_a_record_holds_summary_and_configuration(tmp_path: Path) -> None:
    record = load_record(write(tmp_path, '{"schema": 1, "status": "failed"}', "data:\n  root: ${oc.env:NOT_THERE}\n"))
    assert record == Record({"schema": 1, "status": "failed"}, {"data": {"root": "${oc.env:NOT_THERE}"}})
    assert record.has("data.root")
    assert not record.has("data.batch_size")


@pytest.mark.parametrize("config", [None, "", "- 1\n", "1", "a: [", "a: b: c", "\x00"])
def test_without_a_configuration_the_record_is_read(tmp_path: Path, config: str | None) -> None:
    assert load_record(write(tmp_path, '{"schema": 1}', config)).config == {}


@pytest.mark.parametrize(
    ("summary", "message"),
    [
        ("", "is damaged"),
        ('{"schema": 1', "is damaged"),
        ("\ud800".encode("utf-8", "surrogatepass").decode("latin-1"), "is damaged"),
        ("[" * 100_000, "is damaged"),
        ("[1]", "holds no JSON object"),
        ("{}", "has schema None"),
        ('{"schema": 2}', "has schema 2"),
    ],
)
def test_what_is_no_record_is_refused(tmp_path: Path, summary: str, message: str) -> None:
    with pytest.raises(DataError, match=message) as refused:
        load_record(write(tmp_path, summary))
    assert str(tmp_path) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_directory_without_a_record_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"holds no summary\.json"):
        load_record(tmp_path)
    with pytest.raises(DataError, match="is not a directory"):
        load_record(tmp_path / "absent")
