"""``report.html``: one self-contained file about a run, from its records alone. Imports no torch."""

from collections.abc import Sequence
from pathlib import Path

from strobe.present.page import render as rendered
from strobe.present.page import write_whole
from strobe.records.run import Record, load_record
from strobe.records.tables import File, Operators, Rows, files_of, operators_of, steps_of
from strobe.report.ceilings import ceilings
from strobe.report.evidence import memory, metrics, operators, trace
from strobe.report.findings import findings
from strobe.report.footer import environment, listing, traces
from strobe.report.head import head
from strobe.report.steps import step
from strobe.report.throughput import throughput

NAME = "report.html"


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
    path = run_dir.absolute()
    name = str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)  # as one would type it
    text = render(record, steps_of(run_dir), operators_of(run_dir), name=name, files=files_of(run_dir))
    return write_whole(run_dir / NAME, text)


def render(
    record: Record,
    rows: Rows = (),
    slowest: Operators | None = None,
    *,
    name: str = "",
    files: Sequence[File] = (),
) -> str:
    """The page as HTML; a pure function, which leaves out whatever the record lacks.

    Args:
        record: The run's record; nothing of the configuration is shown.
        rows: The steps, as ``strobe.records.steps.read_rows`` gives them.
        slowest: The slowest operators, if any were recorded.
        name: The run's directory, for commands to copy.
        files: The run's files, to be linked.
    """
    sections = [
        step(record),
        ceilings(record),
        throughput(record, rows),
        findings(record),
        operators(slowest),
        trace(record),
        memory(record),
        metrics(record),
        traces(record, name, files),
        environment(record),
        listing(files),
    ]
    return rendered("report.html", {**head(record), "name": name, "sections": sections})
