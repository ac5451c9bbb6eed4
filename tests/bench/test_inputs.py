"""What a suite is measured on: the user's photos, however they are named, or a sentence that says what is missing."""

from pathlib import Path

import pytest

from strobe.bench.harness.declare import Request
from strobe.bench.inputs import find_photos
from strobe.bench.suites.crop.decoders import measured
from strobe.errors import DataError
from support.composing import bench_config
from support.photo_files import photograph
from support.refusals import refusal


@pytest.fixture(autouse=True)
def no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STROBE_DATA", raising=False)


def asked(*overrides: str) -> Request:
    return Request(bench_config("suite=crop", *(given.lstrip("+") for given in overrides)), "image_folder", overrides)


def test_one_photo_is_enough_and_nothing_is_linked(tmp_path: Path) -> None:
    photograph(60, 80).save(tmp_path / "one.jpg")
    found = find_photos(asked(f"++data.root={tmp_path}"), tmp_path / "scratch")
    assert found.facts["paths"] == [str(tmp_path / "one.jpg")]
    assert found.told == "1 photo"
    assert not (tmp_path / "scratch").exists()


def test_what_is_missing_is_named_as_it_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "photos").mkdir()
    given = asked(f"data.root={tmp_path}")
    assert refusal(lambda: find_photos(given, tmp_path), DataError).startswith(f"data.root={tmp_path} holds no JPEG")
    monkeypatch.setenv("STROBE_DATA", str(tmp_path))
    assert refusal(lambda: find_photos(asked(), tmp_path), DataError).startswith(f"STROBE_DATA={tmp_path}: its folder")


def test_a_photo_that_is_too_large_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photograph(300, 400).save(tmp_path / "large.jpg")
    monkeypatch.setattr("PIL.Image.MAX_IMAGE_PIXELS", 100_000)
    assert "large.jpg is too large" in refusal(lambda: measured(str(tmp_path / "large.jpg")), DataError)
