"""What a suite shows in the terminal: progress with the time left, its tables, what follows from them."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from strobe.bench.harness.declare import Cell, Section, Suite
from strobe.bench.harness.results import Results
from strobe.bench.harness.trial import Report
from strobe.bench.shown import Shown, ranges, shown_of
from strobe.present.format import estimate, figure
from strobe.present.terminal import ProgressDisplay
from strobe.process.fork import Failure


class Bar(ProgressDisplay):
    """Trials that are done, and the time left; into a file, a line for each failure only."""

    def __init__(self, console: Console, results: Results, rounds: int) -> None:
        self._trials = results.trials
        super().__init__(console, rounds * len(results.trials), self._done())

    def tries(self, cell: Cell, number: int, left: float) -> None:
        """Say which cell is measured, and the time left."""
        self.begins(f"{cell.name} ({number + 1})", left)

    def ended(self, outcome: Report | Failure, cell: Cell) -> None:
        """Go on; a failure stays to be read."""
        self.completes(self._done())
        if isinstance(outcome, Failure):
            self.say(f"{cell.name} failed: {outcome.reason}")

    def _done(self) -> int:
        return sum(len(trials) for trials in self._trials.values())


def print_results(
    console: Console, suite: Suite, record: Mapping[str, Any], compared: str, sections: Sequence[Section] = ()
) -> None:
    """torch's table, each table of the suite with intervals and ratios, the sections' texts, and the conclusions."""
    say = partial(console.print, markup=False, highlight=False, soft_wrap=True)
    say(compared)
    for shown in shown_of(suite, record):
        if shown.cells:
            console.print(_table(shown))
    for section in sections:
        if section.text:
            say(section.title, style="bold")
            say(section.text)
    for sentence in record["conclusions"]:
        say(f"- {sentence}")


def print_baseline(console: Console, record: Mapping[str, Any]) -> None:
    """Each cell's speed against the earlier one, and what else was not the same."""
    made = RichTable("", "now / then", "verdict", title=f"Against {record['baseline_file']}", title_justify="left")
    for entry in record["baseline"]:
        made.add_row(Text(entry["name"]), estimate(entry["ratio"]), entry["verdict"])
    console.print(made)
    for difference in record["unlike_baseline"]:
        console.print(f"not the same: {difference}", markup=False, highlight=False)


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
            row += [figure(value.median), value.interval, "" if spread is None else f"{spread:.0%}"]
            row += [estimate(cell["ratio"])] * against
            made.add_row(*map(Text, row))
            row = [""] * len(headings)
        if cell["error"] or not value:
            row += ["then failed" if value else cell["status"], cell["error"] or ""]
            made.add_row(*map(Text, row))
    return made
