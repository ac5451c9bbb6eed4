"""The end of a suite: writes the record, torch's measurements, a table, pictures and a page, and prints tables."""

import logging
import pickle
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from strobe.bench.harness import baseline
from strobe.bench.harness.baseline import Baseline
from strobe.bench.harness.declare import Section, Suite
from strobe.bench.harness.results import Results, failures
from strobe.bench.shown import ONE_TRIAL, Shown, ranges, shown_of, spanned
from strobe.present.format import estimate, figure
from strobe.present.terminal import say
from strobe.records.files import interval_columns, whole, write_csv

TABLE = "results.csv"
MEASUREMENTS = "measurements.pkl"
COLUMNS = ("table", "row", "column", "threads", "cache", "status", "error", "images", "repetitions", "resident")
INTERVALS = ("seconds", "images_per_second", "ratio")


def finish(console: Console, results: Results, folder: Path, earlier: Baseline | None) -> int:
    """Save and show the results; returns the exit code: the gate's, else 1 if there are none."""
    logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)  # tells of a missing CUDA when imported
    from strobe.bench.page import write_page, write_pictures

    suite, header = results.suite, results.header
    measured = any(results.trials.values())
    status = "completed" if measured else "failed"
    record = results.save(folder, status)
    save_measurements(folder / MEASUREMENTS, record)
    write_table(folder / TABLE, record)
    if suite.conclude and measured:  # from here on nothing that goes wrong loses the figures
        header["conclusions"] = [*suite.conclude(record), *failures(record)]
    if earlier is not None:
        header["baseline_file"] = str(earlier.file)
        header["baseline"] = baseline.against(record, earlier.record)
        header["unlike_baseline"] = baseline.differences(record, earlier.record)
        if earlier.limit is not None:
            header["gate"] = baseline.ruled(record, earlier.record, earlier.limit).as_record()
    record = results.save(folder, status)
    sections = suite.sections(record, folder) if suite.sections and measured else []
    write_pictures(folder, suite, record)
    page = write_page(folder, suite, record, sections)
    print_results(console, suite, record, sections)
    gate = header.get("gate")
    say(console, effort(record))
    if earlier is not None:
        print_baseline(console, record)
    if gate:
        say(console, gate["text"], style="bold")
    say(console, str(page))
    return int(gate["code"]) if gate else 0 if measured else 1


def save_measurements(path: Path, record: Mapping[str, Any]) -> None:
    """Write the measured cells as ``torch.utils.benchmark.Measurement``.

    ``pickle.load`` gives a list with the seconds of a repetition in each trial. Others' are not to be loaded: a pickle
    can run any code. ``results.json`` holds the same, and more.
    """
    from torch.utils.benchmark import Measurement
    from torch.utils.benchmark.utils.common import TaskSpec

    measurements = []
    for cell in record["cells"]:
        if not cell["visits"]:
            continue
        spec = TaskSpec(
            stmt=cell["name"],
            setup="",
            label=f"{record['suite']}: {cell['table']}",
            sub_label=" ".join(filter(None, (cell["row"], cell["cache"] if cell["cache"] == "cold" else ""))),
            description=cell["column"],
            num_threads=cell["threads"],
        )
        times = [statistics.median(trial["seconds"]) for trial in cell["visits"]]
        measurements.append(Measurement(number_per_run=1, raw_times=times, task_spec=spec))
    with whole(path) as partial:
        partial.write_bytes(pickle.dumps(measurements))


def effort(record: Mapping[str, Any]) -> str:
    """How much was measured, and why it ended, in a sentence."""
    counts = [len(cell["visits"]) for cell in record["cells"] if cell["status"] == "measured"]
    sentence = f"{spanned(counts or [0], 'trial')} a cell in {record['seconds']:,.0f} s"
    if record["budget_spent"]:
        budget = f"{record['settings']['budget']:g}"
        sentence += f"; budget_seconds={budget} ended it; to continue, give more, and the same hydra.run.dir"
    return sentence


def write_table(path: Path, record: Mapping[str, Any]) -> None:
    """``results.csv``, whole or not at all: a row for each cell; seconds, rates and ratios with their intervals."""
    rows = []
    for cell in record["cells"]:
        row = {name: cell[name] for name in COLUMNS}
        for name in INTERVALS:
            row |= interval_columns(name, cell[name])
        rows.append(row | {"spread": cell["seconds"]["spread"], "visits": len(cell["visits"])})
    write_csv(path, rows)


def print_results(console: Console, suite: Suite, record: Mapping[str, Any], sections: Sequence[Section] = ()) -> None:
    """Each table of the suite with intervals and ratios, the sections' texts, and the conclusions."""
    for shown in shown_of(suite, record):
        if shown.cells:
            console.print(_table(shown))
    for section in sections:
        if section.text:
            say(console, section.title, style="bold")
            say(console, section.text)
    say(console, *(f"- {sentence}" for sentence in record["conclusions"]))


def print_baseline(console: Console, record: Mapping[str, Any]) -> None:
    """Print each cell's speed against the earlier one, and what else was not the same."""
    made = RichTable("", "now / then", "verdict", title=f"Against {record['baseline_file']}", title_justify="left")
    for entry in record["baseline"]:
        made.add_row(Text(entry["name"]), estimate(entry["ratio"]), entry["verdict"])
    console.print(made)
    say(console, *(f"not the same: {difference}" for difference in record["unlike_baseline"]))


def _table(shown: Shown) -> RichTable:
    table, cells, before = shown.table, shown.cells, None
    against = any(cell["against"] for cell in cells)
    headings = [table.rows, "", *("page cache" if key == "cache" else key for key in shown.varying)]
    made = RichTable(*headings, table.unit, ranges(cells) or "range", "spread", title=table.title, title_justify="left")
    if against:
        made.add_column("times as fast")
    for cell in cells:
        if before not in (None, cell["row"]):
            made.add_section()
        row = [cell["row"] if before != cell["row"] else "", cell["column"]]
        row += [str(cell[key] or "") for key in shown.varying]
        before = cell["row"]
        if value := shown.value(cell):
            spread = cell["seconds"]["spread"]
            row += [figure(value.median), value.interval or ONE_TRIAL, "" if spread is None else f"{spread:.0%}"]
            row += [estimate(cell["ratio"])] * against
            made.add_row(*map(Text, row))
            row = [""] * len(headings)
        if cell["error"] or not value:
            row += ["then failed" if value else cell["status"], cell["error"] or ""]
            made.add_row(*map(Text, row))
    return made
