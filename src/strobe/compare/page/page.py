"""The whole page, and its way to the disk."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from strobe.bench.page.page import STYLE as SUITES
from strobe.compare.page.cells import comparison_of
from strobe.compare.page.charts import memory, over_batch, over_workers
from strobe.compare.page.devices import devices
from strobe.compare.page.forest import forest
from strobe.compare.page.head import head
from strobe.compare.page.method import method
from strobe.compare.page.operators import operators
from strobe.compare.page.phases import phases
from strobe.compare.page.table import table
from strobe.report.html.page import document, write_whole

NAME = "comparison.html"
STYLE = SUITES + Path(__file__).with_name("page.css").read_text(encoding="utf-8")


def write_comparison(folder: Path, comparison: Mapping[str, Any]) -> Path:
    """Write ``comparison.html`` into a folder, whole or not at all, and return its path.

    Args:
        folder: Exists; the runs' reports are linked relative to it.
        comparison: That of ``comparison.json``.

    Raises:
        OSError: The file cannot be written.
    """
    return write_whole(folder / NAME, render(comparison))


def render(comparison: Mapping[str, Any]) -> str:
    """The page as HTML; a pure function, which lives with whatever the comparison lacks."""
    compared = comparison_of(comparison)
    parts = (
        head(compared),
        "<main>",
        table(compared),
        over_batch(compared),
        over_workers(compared),
        forest(compared),
        phases(compared),
        memory(compared),
        devices(compared),
        operators(compared),
        method(compared),
        "</main>",
        "<footer>Made by Strobe from comparison.json; nothing on this page is asked of a network.</footer>",
    )
    title = compared.record.text("title")
    return document(f"{title} - Strobe" if title else "Comparison - Strobe", parts, STYLE)
