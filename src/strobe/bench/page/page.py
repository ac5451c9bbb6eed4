"""The whole page of a suite, its pictures, and their way to the disk."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from strobe.bench.harness.declare import Section, Suite
from strobe.bench.page.bars import bars
from strobe.bench.page.closing import baseline, method
from strobe.bench.page.grid import grid, note
from strobe.bench.page.head import caption, head, measured_on
from strobe.bench.page.lines import lines
from strobe.bench.page.picture import STYLE as CHARTS
from strobe.bench.page.picture import Picture
from strobe.bench.page.shown import Shown, shown_of, slug
from strobe.report.html.page import NAME, document, write_whole
from strobe.report.html.pieces import section
from strobe.report.html.text import esc

FOLDER = "pictures"
STYLE = CHARTS + Path(__file__).with_name("page.css").read_text(encoding="utf-8")


def write_page(folder: Path, suite: Suite, record: Mapping[str, Any], sections: Sequence[Section] = ()) -> Path:
    """Write ``report.html`` into a result's folder, whole or not at all, and return its path.

    Args:
        folder: Exists; the page's links lead to the files beside it.
        suite: Whose tables are shown.
        record: That of ``results.json``.
        sections: Of the suite; their HTML is trusted.

    Raises:
        OSError: The file cannot be written.
    """
    return write_whole(folder / NAME, render(suite, record, sections))


def write_pictures(folder: Path, suite: Suite, record: Mapping[str, Any]) -> list[Path]:
    """Write ``pictures/TABLE.svg`` for each table, each whole or not at all, and return their paths.

    Raises:
        OSError: A file cannot be written.
    """
    (folder / FOLDER).mkdir(exist_ok=True)
    tables = shown_of(suite, record)
    names = _files(tables)
    return [
        write_whole(folder / FOLDER / name, draw(shown).file(shown.table.title, caption(record)))
        for shown, name in zip(tables, names, strict=True)
    ]


def render(suite: Suite, record: Mapping[str, Any], sections: Sequence[Section] = ()) -> str:
    """The page as HTML; a pure function."""
    tables = shown_of(suite, record)
    parts = (
        head(record),
        "<main>",
        measured_on(record),
        *(_table(shown, file) for shown, file in zip(tables, _files(tables), strict=True)),
        *(wide(section(f"more-{number}", esc(each.title), "", each.html)) for number, each in enumerate(sections, 1)),
        baseline(record),
        method(record),
        "</main>",
        "<footer>Made by Strobe from results.json; nothing on this page is asked of a network.</footer>",
    )
    return document(f"{record['title']} - Strobe", parts, STYLE)


def draw(shown: Shown) -> Picture:
    """The picture that a table declares."""
    return lines(shown) if shown.table.chart == "lines" else bars(shown)


def _table(shown: Shown, file: str) -> str:
    link = f'<p class="note"><a href="./{FOLDER}/{file}">The picture as a file</a></p>' if shown.cells else ""
    picture = f"<figure>{draw(shown).inline()}</figure>" if shown.cells else ""
    return wide(
        section(f"table-{file.removesuffix('.svg')}", esc(shown.table.title), note(shown), picture + grid(shown) + link)
    )


def wide(part: str) -> str:
    """A section with its heading above, for what is broad."""
    return part.replace("<section ", '<section class="wide" ', 1)


def _files(tables: Sequence[Shown]) -> list[str]:
    """A name for each table's picture, each another one."""
    found: list[str] = []
    for shown in tables:
        name, number = slug(shown.table.name), 1
        while f"{name}{f'-{number}' * (number > 1)}.svg" in found:
            number += 1
        found.append(f"{name}{f'-{number}' * (number > 1)}.svg")
    return found
