"""Looks at lines so often that short tests are seen."""

import pytest

from strobe.callbacks import lines, threads


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """For all tests of a module that imports it."""
    monkeypatch.setattr(lines, "EVERY", 0.001)
    monkeypatch.setattr(lines, "MOST", 1_000_000)
    monkeypatch.setattr(lines, "KEEP", 4)
    monkeypatch.setattr(threads, "EVERY", 0.0)
