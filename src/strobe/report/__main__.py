"""The command ``strobe report``."""

from strobe.process.signals import listen

if __name__ == "__main__":
    listen()  # before libraries are imported

import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from strobe.diagnose.rank import conclude
from strobe.errors import DataError
from strobe.present.page import open_browser
from strobe.process.launch import parser_of, start
from strobe.records.joining import is_whole, join_ranks, recover
from strobe.records.places import runs_in
from strobe.records.run import Record, load_record
from strobe.report.page import write_report
from strobe.traces.rank import read_trace

HELP = """Rebuilds report.html of runs from their records.

It works out findings and verdict again and joins the rows of several ranks again; it measures nothing and changes no
record. For a training that was killed, the report says what its rows show. Where a record is damaged, one
sentence says so, and the other runs get their reports.

Examples
  strobe report outputs/runs/DATE/RUN
  strobe report outputs/sweeps/DATE/TIME          every run of a sweep
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Rebuild the reports that were asked for; exits with 1 if one of them cannot be made."""
    parser = parser_of("report", HELP)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="directory of a run, or of a sweep")
    parser.add_argument("--open", action="store_true", help="open the first report in a browser")
    given = parser.parse_args(arguments)
    if missing := [path for path in given.runs if not path.is_dir()]:
        parser.error(f"{missing[0]} is not a directory; give that of a run, or of a sweep")
    written, failed = [], False
    for path in dict.fromkeys(given.runs):
        for run in _runs(path):
            try:
                found = load_record(run) if is_whole(run) else recover(run)
                record = Record(dict(found.summary), found.config)
                if (ranks := join_ranks(run, record.count("world_size"))) is not None:
                    record.summary["ranks"] = ranks
                read = cache(read_trace)
                conclude(record.summary, record.config, run, read)
                written.append(write_report(run, record, read))
                print(written[-1])
                print(f"  {record.text('verdict') or 'The record holds no verdict.'}")
                if not is_whole(run):
                    print(f"  {record.text('error', 'message')}")
            except DataError as error:
                failed = True
                print(error, file=sys.stderr)
            except OSError as error:
                failed = True
                print(f"{run / 'report.html'} cannot be written ({error.strerror or error})", file=sys.stderr)
    if written:
        open_browser(written[0].absolute().as_uri(), wanted=given.open)
    if failed:
        sys.exit(1)


def _runs(path: Path) -> list[Path]:
    """The run, or a sweep's runs; the path itself if it is neither, so that the error names it.

    It looks no deeper, because it writes: a folder far above may hold runs that were not meant.
    """
    if (path / "summary.json").is_file() or not any(path.glob("*/summary.json")):
        return [path]
    return [run for run in runs_in(path) if run.parent == path]


if __name__ == "__main__":
    start(main)
