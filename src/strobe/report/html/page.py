"""The whole page, and its way to the disk."""

import base64
import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from strobe.records.files import whole
from strobe.records.run import Record, load_record
from strobe.records.tables import File, Operators, Rows, files_of, operators_of, steps_of
from strobe.report.html.bracket import bracket
from strobe.report.html.closing import environment, listing, traces
from strobe.report.html.evidence import memory, metrics, operators, trace
from strobe.report.html.findings import findings
from strobe.report.html.head import head, headline
from strobe.report.html.steps import step
from strobe.report.html.text import esc
from strobe.report.html.throughput import throughput

NAME = "report.html"
STYLE = Path(__file__).with_name("style.css").read_text(encoding="utf-8")
COLOURS = STYLE.partition("\n* {")[0]  # its variables, in light and in dark
SCRIPT = Path(__file__).with_name("copy.js").read_text(encoding="utf-8")


def write_report(run_dir: Path, record: Record | None = None) -> Path:
    """Write ``report.html`` into a run's directory, whole or not at all, and return its path.

    Args:
        run_dir: The run, with its ``summary.json``, and what there is of ``steps.csv`` and ``tables/``.
        record: What to show instead of the run's own record, such as one with new findings.

    Raises:
        DataError: The directory holds no record, or one that is damaged or of another program or version.
        OSError: The file cannot be written.
    """
    record = record or load_record(run_dir)
    text = render(record, steps_of(run_dir), operators_of(run_dir), name=_name(run_dir), files=files_of(run_dir))
    return write_whole(run_dir / NAME, text)


def write_whole(path: Path, text: str) -> Path:
    """Write a text so that the file is whole or not there, and return its path."""
    with whole(path) as partial:
        partial.write_text(text, encoding="utf-8", errors="replace")
    return path


def render(
    record: Record,
    rows: Rows = (),
    slowest: Operators | None = None,
    *,
    name: str = "",
    files: Sequence[File] = (),
) -> str:
    """The page as HTML; a pure function, which lives with whatever the record lacks.

    Args:
        record: The run's record; of the configuration nothing is shown.
        rows: The steps, as ``strobe.records.steps.read_rows`` gives them.
        slowest: The slowest operators, if any were recorded.
        name: The run's directory, for commands to copy.
        files: The run's files, to be linked.
    """
    parts = (
        head(record, name),
        "<main>",
        step(record),
        bracket(record),
        throughput(record, rows),
        findings(record),
        operators(slowest),
        trace(record),
        memory(record),
        metrics(record),
        traces(record, name, files),
        environment(record),
        listing(files),
        "</main>",
        "<footer>Made by Strobe from this run's records; python -m strobe.report makes it again.</footer>",
    )
    return document(headline(record), parts)


def document(title: str, parts: Iterable[str], style: str = "") -> str:
    """A page that needs nothing but itself.

    Args:
        title: The window's.
        parts: Trusted HTML; empty ones are left out.
        style: What is added to the pages' common style.
    """
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8"/>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>\n'
        f'<meta name="color-scheme" content="light dark"/>\n{_policy()}\n'
        f"<title>{esc(title, 120)}</title>\n<style>\n{STYLE}{style}</style>\n</head>\n<body>\n"
        + "\n".join(part for part in parts if part)
        + f"\n<script>{SCRIPT}</script>\n</body>\n</html>\n"
    )


def _policy() -> str:
    """Nothing may be fetched, and no script run but the page's own: names from a record can do no harm."""
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'"
    return f'<meta http-equiv="Content-Security-Policy" content="{policy}"/>'


def _name(run_dir: Path) -> str:
    """The run's path from here, as a person would type it."""
    path = run_dir.absolute()
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
