"""``comparison.html``: one self-contained file about many runs, from their comparison alone. Imports no torch."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from strobe.compare.charts import devices, operators, over_batch, over_workers, phases, speedups
from strobe.compare.shown import DEFAULT, MARKS, ComparedCell, Comparison, comparison_of
from strobe.present import page as pages
from strobe.present import parts as kit
from strobe.present.charts.svg import rect, svg, whisker
from strobe.present.format import Value, counted, cut, duration, figure, interval, percent, size, times
from strobe.report.footer import machine, versions

TALL = 30  # rows, from which on the table scrolls in a box of its own
BLANK = "completed, but no step was measured"
_FILES = {"comparison.json": "the whole comparison", "comparison.csv": "a line for each cell"}
_LONG, _LONGEST = 130, 320  # characters of the headline: from where it is set small, and where it is cut
_MOST = 6  # names in a sentence
_BAR = 8  # pixels
_MOST_RUNS = 12  # links in a row
_FIRST = 110  # characters of an error in a row
_BREAKS = re.compile(r"([._/@])")
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_STAR = Markup('<sup aria-hidden="true">1</sup><span class="sr">, one run</span>')
_METHOD = (
    "A rate is that of training as a whole: over the time of steps and of what lies between them, without "
    "warm-up and profiled steps. The rate of a run's median step, without what lies between steps, is in its report.",
    "A cell's rate is the geometric mean of its runs, with a 95% interval (Student's t of logarithms). Steps of one "
    "run resemble each other more than two runs do, so a single run's interval, over its steps, is too narrow to "
    "compare with.",
    "Cells of one sweep are compared repeat by repeat, so a slow minute that hits a whole repeat changes no speed-up. "
    "A cell is faster or slower where the interval of its speed-up does not include 1. The intervals allow for the "
    "number of cells (Holm): among equals, 97 of 100 sweeps call none faster or slower. A single run gets no verdict. "
    "Tied cells may be as fast as the fastest; in 95 of 100 sweeps the truly fastest is among them.",
    "A run is faster where its files already lie in memory (the page cache). Where runs differ in that, the top of "
    "this page says so.",
)


def render(comparison: Mapping[str, Any]) -> str:
    """The page as HTML; a pure function, which leaves out whatever the comparison lacks."""
    compared = comparison_of(comparison)
    sections = [
        table(compared),
        over_batch(compared),
        over_workers(compared),
        speedups(compared),
        phases(compared),
        devices(compared),
        operators(compared),
        method(compared),
    ]
    headline, title, environment = verdict(compared), comparison["title"], compared.record.mapping("environment")
    device, made = " · ".join(compared.gpus) or environment.get("cpu"), comparison["made"].replace("T", " ")[:16]
    page = kit.Page(
        f"{title} - Strobe",
        ("comparison", environment.get("host"), device, made),
        pages.shown(headline, _LONGEST),
        _head(compared),
        sections,
        "comparison.json; works offline.",
        _badges(compared),
        "comparison",
        long=len(headline) > _LONG,
    )
    return pages.render(page)


def _head(compared: Comparison) -> list[kit.Part]:
    """What stands against taking the verdict as it is, the figures, and warnings."""
    record = compared.record
    parts: list[kit.Part] = []
    if lede := " ".join(f"{words.rstrip('.')}." for words in record.items("notes")):
        parts.append(kit.Paragraph(lede, "lede"))
    parts += [kit.Tiles(_tiles(compared)), *_regression(record.mapping("regression"))]
    if unlike := [kit.Text(pages.shown(line, 2000)) for line in record.items("unlike")]:
        title = kit.Paragraph(kit.Text("Not the same in all runs:", "b"))
        parts += kit.notice("fair unlike", title, kit.Files(unlike, ""))
    return [*parts, kit.Paragraph(record.summary["title"], "run-name")]


def verdict(compared: Comparison) -> str:
    """One sentence: the fastest cell, and how much faster than the baseline it is."""
    best, baseline = compared.best, compared.against
    if best is None or best.rate is None:
        ended = Counter(cell.status for cell in compared.cells)
        if blank := ended["completed"]:
            return f"Nothing was measured: {counted(blank, 'cell')} completed without a measured step; train longer."
        how = {"failed": ended["failed"] + ended["mixed"], "interrupted": ended["interrupted"]}
        return f"No cell completed: {', '.join(f'{number:,} {status}' for status, number in how.items() if number)}."
    much = f"{figure(best.rate.median)} {compared.unit}"
    if compared.alone:
        return f"{compared.alone}: {much}."
    others = sum(cell.place == "tied" for cell in compared.cells) - 1
    rest = ""
    if others > 0:
        few = _NUMBERS[others] if others < len(_NUMBERS) else f"{others:,}"
        rest = f"; {few} other setting{'s' * (others > 1)} may be as fast"
    name, ratio = compared.called(best), best.speedup
    undecided = best.place == "highest" or 0 < others == len(compared.measured) - 1
    is_ = "has the highest rate" if undecided else "is the fastest"
    if undecided:
        rest = ", but these runs cannot tell whether it is the fastest"
    if best.baseline or not baseline or not ratio:
        return f"{'The baseline, ' * best.baseline}{name}{',' * best.baseline} {is_}: {much}{rest}."
    if best.verdict in ("no difference", "too few runs", "not known"):
        return f"{name} looks {times(ratio.median)} as fast as {baseline}, but these runs cannot tell."
    return f"{name} {f'{is_}:' if best.place else 'is'} {_gain(ratio)} as fast as {baseline}{rest}."


def _gain(ratio: Value) -> str:
    """A speed-up; of one whose interval is too wide to tell, its end towards 1."""
    if ratio.tells:
        return times(ratio.median)
    slower = ratio.high is not None and ratio.high < 1
    return f"at most {times(ratio.high or 0.0)}" if slower else f"at least {times(ratio.low or 0.0)}"


def _badges(compared: Comparison) -> list[tuple[str, str]]:
    best = compared.best
    if best is None:
        return [("bad", "nothing measured")]
    if best.baseline:
        return []
    css = {"faster": "good", "too few runs": "fair", "not known": "fair"}.get(best.verdict, "none")
    much = f"{times(best.speedup.median)} " if best.verdict == "faster" and best.speedup else ""
    return [(css, f"{much}{best.told_verdict}")]


def _tiles(compared: Comparison) -> list[kit.Tile]:
    tiles, best = [], compared.best
    if best and best.rate:
        over = " over the steps of one run" if best.rate.of == "steps" else ""
        spread = f"{best.rate.interval}{over}" if best.rate.interval else "no interval"
        name = f"Highest {compared.unit}" if best.place else compared.unit.capitalize()
        tiles.append(kit.Tile(name, figure(best.rate.median), note=spread))
    if best and best.speedup:
        where = "the baseline" if compared.baseline else "the same cell there"
        # No figure of what may be chance: the verdict says what these runs cannot tell.
        much = _gain(best.speedup) if best.verdict in ("faster", "slower") else best.told_verdict
        tiles.append(kit.Tile(f"Against {where}", much, note=best.speedup.factors or "no interval"))
    failed = len(compared.cells) - len(compared.measured)
    left = f"{failed:,} not measured" if failed else "all measured"
    counts = [len(cell.runs) for cell in compared.cells]
    each = f"{interval(min(counts), max(counts), '{:,}'.format) if len(set(counts)) > 1 else counts[0]} to a cell"
    return [*tiles, kit.Tile("Cells", f"{len(counts):,}", note=left), kit.Tile("Runs", f"{sum(counts):,}", note=each)]


def _regression(gate: Mapping[str, Any]) -> list[kit.Part]:
    """What the gate found: how many cells are slower, and their names; else its own words."""
    if not gate:
        return []
    if not (names := gate["cells"]):
        return kit.note(kit.Text(f"{gate['text']}.", "b"))
    count = f"{counted(len(names), 'cell')} {'is' if len(names) == 1 else 'are'}"
    headline = f"{MARKS['slower']} {count} slower than the baseline by more than {percent(gate['limit'])}, or failed:"
    shown_, left = names[:_MOST], len(names) - _MOST
    text: list[kit.Text | str] = [kit.Text(cut(name, 160), "code", after="," * (name != shown_[-1])) for name in shown_]
    text += [f"and {left:,} more"] * (left > 0)
    return kit.notice("bad", kit.Paragraph(kit.Text(headline, "b")), kit.Paragraph(text))


@dataclass(frozen=True)
class _Column:
    """A column of the table; it is left out where no cell has anything to show in it."""

    name: str
    show: Callable[[ComparedCell], kit.Words]
    css: str = "figure"
    head: kit.Words = ""  # where it is not simply the name


def table(compared: Comparison) -> kit.Section:
    """A row for each cell, with columns only for what is known of any of them."""
    errors = list(dict.fromkeys(cell.error for cell in compared.cells if cell.error))
    settings, rates = [_setting(key) for key in compared.keys], _kept(compared, _rates(compared, errors))
    others = _kept(compared, [*_measures(compared), _Column("Reports", _reports, "reports")])
    heads = [kit.Cell(column.head or column.name, column.css) for column in (*settings, *rates, *others)]
    rows = []
    for place, cell in enumerate(compared.cells, 1):
        figures = _cells(rates, cell) if cell.rate else _why(cell, errors, len(rates))
        rank = f"{place}" if cell.rate else "\u2013"
        name = kit.Text(cell.name, "span", "sr", cell.special)  # for those who cannot see
        first = kit.Cell([rank, name], head=True, title=cell.name)
        css = "best" if cell.best else "base" if cell.baseline else ""
        rows.append(kit.Row([first, *_cells(settings, cell), *figures, *_cells(others, cell)], css))
    about = (
        f"The fastest first, by {compared.unit} of all training, as in each run's report. Below a figure its interval."
    )
    about += " Waiting: for data, as a share of a step. Memory: the peak."
    if any(cell.record.number("efficiency") is not None for cell in compared.cells):
        about += " Share of the ceiling: of the lowest; none where a ceiling is wrong or too uncertain."
    if compared.against:
        about += f" Speed-up: how many times as fast as {compared.against}."
    parts: list[kit.Part] = [
        kit.Table(["Rank", *heads], rows, "cells all", "All cells", len(rows) > TALL, stacked=True),
        *_legend(compared),
    ]
    parts += kit.errors((cell.name, cell.error) for cell in compared.cells if cell.error)
    return kit.Section("cells", "All cells", about, parts, wide=True)


def _kept(compared: Comparison, columns: Sequence[_Column]) -> list[_Column]:
    return [column for column in columns if any(column.show(cell) for cell in compared.cells)]


def _cells(columns: Sequence[_Column], cell: ComparedCell) -> list[kit.Cell]:
    return [kit.Cell(column.show(cell), column.css) for column in columns]


def _setting(key: str) -> _Column:
    def show(cell: ComparedCell) -> kit.Words:
        value, given = cell.setting(key)
        return kit.Text(value, "span", "name" if given else "name none")

    return _Column(key, show, "setting", kit.Text(Markup(_BREAKS.sub(r"\1<wbr/>", str(pages.shown(key, 80)))), "code"))


def _rates(compared: Comparison, errors: Sequence[str]) -> list[_Column]:
    """What a cell without a rate lacks altogether."""
    rated = [cell.rate for cell in compared.measured if cell.rate]
    most = max((value.median for value in rated), default=1.0)
    top = max([most, *(value.high or 0.0 for value in rated if value.tells)])

    def rate(cell: ComparedCell) -> kit.Words:
        star = _STAR if cell.rate and cell.rate.of == "steps" else ""
        return kit.Text(figure(cell.rate.median), "b", small=[cell.rate.interval], after=star) if cell.rate else ""

    def bar(cell: ComparedCell) -> kit.Words:
        if (value := cell.rate) is None:
            return ""
        parts = [rect(0, 1, value.median / top, _BAR - 2, "bar s8" if cell.baseline else "bar s1")]
        if value.tells and value.low is not None and value.high is not None:
            parts += whisker(value.low / top, value.high / top, _BAR / 2)
        return kit.Text(after=svg(_BAR, "", parts, "meter"))

    def speedup(cell: ComparedCell) -> kit.Words:
        return kit.strong(times(cell.speedup.median), cell.speedup.factors) if cell.speedup else ""

    return [
        _Column(compared.unit.capitalize(), rate, "figure pace"),
        _Column("", bar, "bars"),
        _Column("Speed-up", speedup),
        _Column("Verdict", lambda cell: [cell.judged, *_ending(cell, errors)], "judged"),
    ]


def _measures(compared: Comparison) -> list[_Column]:
    accuracies = {cell.accuracy[0] for cell in compared.cells if cell.accuracy}
    which = [*accuracies] if len(accuracies) == 1 else []

    def accuracy(cell: ComparedCell) -> kit.Words:
        return kit.Text(f"{cell.accuracy[1]:.1%}", small=[] if which else [cell.accuracy[0]]) if cell.accuracy else ""

    return [
        _Column("Waiting", lambda cell: cell.share("data_wait")),
        _Column("Share of the ceiling", lambda cell: cell.told(percent, "efficiency")),
        _Column("Memory", lambda cell: cell.told(size, "memory", "rss_peak_bytes")),
        _Column("GPU memory", lambda cell: cell.told(size, "memory", "device_peak_bytes")),
        _Column("Accuracy", accuracy, head=kit.Text("Accuracy", small=which)),
    ]


def _ending(cell: ComparedCell, errors: Sequence[str]) -> list[kit.Text]:
    """How it ended, where that is not simply that it completed."""
    if cell.status == "completed" and not cell.error:
        return []
    which = f" [{errors.index(cell.error) + 1}]" if cell.error else ""
    words = "some runs failed" if cell.status == "mixed" else cell.status
    return [kit.Text(f"{words}{which}", "small", "bad" if cell.status == "failed" else "fair")]


def _why(cell: ComparedCell, errors: Sequence[str], over: int) -> list[kit.Cell]:
    """Instead of figures, why there are none."""
    words = _ending(cell, errors) or [kit.Text(BLANK, "small", "fair")]
    if cell.error.strip():
        words.append(kit.Text(cell.error.strip().splitlines()[0][:_FIRST], "small"))
    return [kit.Cell(words, "why", across=over)] if over else []


def _reports(cell: ComparedCell) -> list[kit.Text | str]:
    """A link to each run's report."""
    alone, left = len(cell.runs) == 1, len(cell.runs) - _MOST_RUNS
    if not any(run["report"] for run in cell.runs):
        return []
    links: list[kit.Text | str] = [
        kit.link(run["report"], "report" if alone else str(number))
        for number, run in enumerate(cell.runs[:_MOST_RUNS], 1)
    ]
    return [*links, f"+{left:,}"] if left > 0 else links


def _legend(compared: Comparison) -> list[kit.Part]:
    sentences: list[str | kit.Text] = []
    if any(cell.rate and cell.rate.of == "steps" for cell in compared.cells):
        one = "One run only: its interval is over its own steps, and another run may lie outside."
        sentences += [kit.Text("1", "sup"), one]
    unset = [value for cell in compared.cells for value, given in map(cell.setting, compared.keys) if not given]
    if unset:
        unknown = f" ({DEFAULT}: not recorded)" * (DEFAULT in unset)
        sentences.append(f"Grey: not given, the configuration's own value{unknown}.")
    return kit.note(*sentences)


def method(compared: Comparison) -> kit.Section:
    """How the figures came about, on which machine, and the files beside the page; there always is that section."""
    record, counts = compared.record, Counter(len(cell.runs) for cell in compared.cells)
    sizes = ", ".join(f"{counted(cells, 'cell')} of {counted(runs, 'run')}" for runs, cells in sorted(counts.items()))
    spent = sum(run["seconds"] or 0.0 for cell in compared.cells for run in cell.runs)
    parts: list[kit.Part] = [kit.Paragraph(words) for words in _METHOD]
    parts.append(kit.Paragraph(f"Here: {sizes}{f', in {duration(spent)} of training' if spent else ''}."))
    environment = record.mapping("environment")
    pairs = machine(environment, compared.gpus or ["none"] * bool(environment))
    if (share := record.number("environment", "page_cache")) is not None:
        pairs.append(("In the page cache when training began", percent(share)))
    parts += [*kit.facts([*pairs, *versions(environment)]), kit.Command(record.summary["command"], "Compare again")]
    parts.append(kit.figures(_FILES))
    return kit.Section("method", "How it was measured", "And the files beside this page.", parts)
