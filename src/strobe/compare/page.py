"""``comparison.html``: one self-contained file about many runs, from their comparison alone. Imports no torch."""

import re
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from strobe.compare.charts import devices, memory, operators, over_batch, over_workers, phases, speedups
from strobe.compare.shown import DEFAULT, MARKS, Cell, Comparison, Value, comparison_of
from strobe.present.charts.svg import rect, svg, whisker
from strobe.present.format import counted, cut, duration, figure, percent, size, times
from strobe.present.page import render as rendered
from strobe.present.page import shown, write_whole
from strobe.present.parts import (
    Block,
    Command,
    Errors,
    Files,
    Heading,
    Paragraph,
    Part,
    Row,
    Section,
    Table,
    Text,
    Tile,
    Words,
    facts,
    link,
    note,
    strong,
)
from strobe.present.parts import Cell as TableCell
from strobe.report.footer import machine, versions

NAME = "comparison.html"
TALL = 30  # rows, from which on the table scrolls in a box of its own
BLANK = "completed, but no step was measured"
_FILES = {"comparison.json": "the whole comparison", "comparison.csv": "a line for each cell"}
_LONG, _LONGEST = 130, 320  # characters of the headline: from where it is set small, and where it is cut
_MOST = 6  # names in a sentence
_BAR = 8  # pixels
_BEYOND = 1.3  # times the highest rate, from where on intervals are cut off
_MOST_RUNS = 12  # links in a row
_FIRST = 110  # characters of an error in a row
_BREAKS = re.compile(r"([._/@])")
_STAR = Markup('<sup aria-hidden="true">1</sup><span class="sr">, one run</span>')
_METHOD = (
    "Images/s of a run is all images of its counted steps over the time of these steps and of what lies between them; "
    "the first steps, which warm up, and steps that a profiler disturbed are left out.",
    "A cell's figure is over its runs, the geometric mean; its interval, 95%, is by a bootstrap over runs of the "
    "logarithms of their rates, widened where there are few. Steps of one run resemble each other more than two runs "
    "do, so an interval over steps, which is all that a single run has, is too narrow to compare with.",
    "Faster or slower is what has an interval of its speed-up that does not hold 1: "
    "97%, so that a cell compared with one like it is told apart from it 5 times in 100 at most. That is of one "
    "comparison: of 20 cells that are all alike, one may well be called faster or slower. With one run on either side "
    "there is no verdict.",
    "Files that were read before may come from the page cache and not from the disk: a run that finds them there is "
    "faster. Where runs differ in that, the top of this page says so.",
)


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
    """The page as HTML; a pure function, which leaves out whatever the comparison lacks."""
    compared = comparison_of(comparison)
    sections = [
        table(compared),
        over_batch(compared),
        over_workers(compared),
        speedups(compared),
        phases(compared),
        memory(compared),
        devices(compared),
        operators(compared),
        method(compared),
    ]
    return rendered("comparison.html", {**head(compared), "sections": sections})


def head(compared: Comparison) -> dict[str, Any]:
    """The title, the verdict, the figures, and warnings."""
    record, said = compared.record, verdict(compared)
    made, title = (record.text("made") or "").replace("T", " ")[:16], record.text("title")
    environment = record.mapping("environment")
    gpus: list[Any] = list(compared.gpus) or [environment.get("cpu")]
    what = ["comparison", environment.get("host"), *gpus, made]
    return {
        "title": f"{title or 'Comparison'} - Strobe",
        "name": title or "",
        "what": " · ".join(str(part) for part in what if part),
        "badges": _badges(compared),
        "said": shown(said, _LONGEST),
        "long": len(said) > _LONG,
        "lede": _lede(compared),
        "tiles": _tiles(compared),
        "regression": _regression(compared),
        "unlike": [words for words in record.items("unlike") if isinstance(words, str)],
    }


def verdict(compared: Comparison) -> str:
    """One sentence: the fastest cell, and how much faster than the baseline it is."""
    best, baseline = compared.best, compared.against
    if not compared.cells:
        return "Nothing was compared."
    if best is None or best.rate is None:
        if blank := sum(cell.status == "completed" for cell in compared.cells):
            return f"Nothing was measured: {counted(blank, 'cell')} completed without a measured step; train longer."
        return f"No cell completed: {counted(len(compared.cells), 'cell')} failed or were interrupted."
    much = f"{figure(best.rate.median)} images/s"
    if best is compared.baseline:
        return f"The baseline, {best.name}, is the fastest: {much}."
    if not baseline or not best.speedup:
        return f"{best.name} is the fastest: {much}."
    return _against(best, best.speedup, much, baseline)


def _against(best: Cell, speedup: Value, much: str, baseline: str) -> str:
    ratio, spread = f"{speedup.median:,.2f} times", speedup.factors
    if best.verdict == "no difference":
        chance = f"may be chance: the interval, {spread}, holds 1" if spread else "may be chance"
        return f"{best.name} has the highest rate, {much}; that it is {ratio} as fast as {baseline}, {chance}."
    if best.verdict == "too few runs":
        return f"{best.name} is the fastest so far: {ratio} as fast as {baseline}; too few runs to be sure."
    return f"{best.name} is the fastest: {ratio}{f' ({spread})' if spread else ''} as fast as {baseline}."


def _badges(compared: Comparison) -> list[tuple[str, str]]:
    best = compared.best
    if best is None:
        return [("bad", "nothing measured")] if compared.cells else []
    if best is compared.baseline or not best.verdict:
        return []
    css = {"faster": "good", "too few runs": "fair"}.get(best.verdict, "none")
    much = f"{times(best.speedup.median)} " if best.verdict == "faster" and best.speedup else ""
    return [(css, f"{much}{best.verdict}")]


def _lede(compared: Comparison) -> list[str]:
    """What stands against taking the verdict as it is."""
    lines = [f"{words.rstrip('.')}." for words in compared.record.items("notes") if isinstance(words, str)]
    best = compared.best
    if best and best.rate and (low := best.rate.low) is not None:
        others = [cell.rate for cell in compared.measured if cell is not best]
        if near := sum(rate is not None and rate.high is not None and rate.high >= low for rate in others):
            lines.append(f"The interval of {counted(near, 'other cell')} reaches into that of the fastest.")
    return lines


def _tiles(compared: Comparison) -> list[Tile]:
    if not compared.cells:
        return []
    tiles, best = [], compared.best
    if best and best.rate:
        over = " over the steps of one run" if best.rate.of == "steps" else ""
        spread = f"{best.rate.interval}{over}" if best.rate.interval else "no interval"
        tiles.append(Tile("Fastest, images/s", figure(best.rate.median), note=spread))
    if best and best.speedup and best is not compared.baseline:
        where = "the baseline" if compared.baseline else "the same cell there"
        spread = best.speedup.factors or "no interval"
        tiles.append(Tile(f"Against {where}", times(best.speedup.median), note=spread))
    failed = len(compared.cells) - len(compared.measured)
    left = f"{failed:,} not measured" if failed else "all measured"
    tiles.append(Tile("Cells", f"{len(compared.cells):,}", note=left))
    if counts := [len(cell.runs) for cell in compared.cells if cell.runs]:
        mostly = ", mostly" * (len(set(counts)) > 1)
        tiles.append(Tile("Runs", f"{sum(counts):,}", note=f"{statistics.median(counts):g} to a cell{mostly}"))
    return tiles


def _regression(compared: Comparison) -> dict[str, Any] | None:
    """What the gate found: how many cells are slower, and their names; else its own words."""
    found = compared.record.mapping("regression")
    if not found:
        return None
    names = [str(name) for name in found.get("cells") or []] if isinstance(found.get("cells"), list) else []
    limit = compared.record.number("regression", "limit")
    than = f"by more than {percent(limit)}" if limit is not None else "by more than was allowed"
    if not names:
        text = compared.record.text("regression", "text")
        return {"names": [], "said": f"{text or f'It is not known whether a cell is slower {than}'}."}
    count = f"{counted(len(names), 'cell')} {'is' if len(names) == 1 else 'are'}"
    rest = f" and {len(names) - _MOST:,} more" if len(names) > _MOST else ""
    said = f"{MARKS['slower']} {count} slower than the baseline {than}, or failed:"
    return {"names": names[:_MOST], "rest": rest, "said": said}


@dataclass(frozen=True)
class _Column:
    """A column of the table; it is left out where no cell has anything to show in it."""

    head: Words
    show: Callable[[Cell], Words]
    css: str = "figure"


def table(compared: Comparison) -> Section:
    """A row for each cell, with columns only for what is known of any of them."""
    if not compared.cells:
        return Section("cells", "All cells", "", [])
    errors = list(dict.fromkeys(text for cell in compared.cells if (text := cell.record.text("error"))))
    settings, rates = [_setting(key) for key in compared.keys], _kept(compared, _rates(compared, errors))
    others = _kept(compared, [*_measures(compared), _Column("Reports", _reports, "reports")])
    heads = [TableCell(column.head, column.css) for column in (*settings, *rates, *others)]
    rows = []
    for cell in compared.cells:
        figures = _cells(rates, cell) if cell.rate else _why(cell, errors, len(rates))
        css = "best" if cell is compared.best else "base" if cell is compared.baseline else ""
        rows.append(Row([_first(compared, cell), *_cells(settings, cell), *figures, *_cells(others, cell)], css))
    about = "The fastest first; small below a figure: its interval, 95% of images/s and 97% of a speed-up."
    about += " Waiting: for data, as a share of a step."
    if any(cell.record.number("efficiency") is not None for cell in compared.cells):
        about += " Efficiency: the rate as a share of the lowest ceiling."
    if compared.against:
        about += f" Speed-up: how many times as fast as {compared.against}."
    grid = Table(["Rank", *heads], rows, "cells all", "All cells", len(rows) > TALL)
    return Section("cells", "All cells", about, [grid, *_legend(compared), *_errors(compared, errors)], wide=True)


def _kept(compared: Comparison, columns: Sequence[_Column]) -> list[_Column]:
    return [column for column in columns if any(column.show(cell) for cell in compared.cells)]


def _cells(columns: Sequence[_Column], cell: Cell) -> list[TableCell]:
    return [TableCell(column.show(cell), column.css) for column in columns]


def _setting(key: str) -> _Column:
    def show(cell: Cell) -> Words:
        value, given = cell.setting(key)
        return Text(value, "span", "name" if given else "name none")

    return _Column(Text(Markup(_BREAKS.sub(r"\1<wbr/>", str(shown(key, 80)))), "code"), show, "setting")


def _rates(compared: Comparison, errors: Sequence[str]) -> list[_Column]:
    """What a cell without a rate lacks altogether."""
    rated = [cell.rate for cell in compared.measured if cell.rate]
    most = max((value.median for value in rated), default=1.0)
    top = max([most, *(min(value.high or 0.0, _BEYOND * most) for value in rated)])
    return [
        _Column("Images/s", _rate),
        _Column("", lambda cell: _bar(cell, top, css="s8" if cell is compared.baseline else "s1"), "bars"),
        _Column("Speed-up", _speedup),
        _Column("Verdict", lambda cell: [*([cell.judged] if cell.verdict else []), *_ending(cell, errors)], "judged"),
    ]


def _measures(compared: Comparison) -> list[_Column]:
    accuracies = {cell.accuracy[0] for cell in compared.cells if cell.accuracy}
    which = [accuracies.pop()] if len(accuracies) == 1 else []

    def accuracy(cell: Cell) -> Words:
        if not cell.accuracy:
            return ""
        name, value = cell.accuracy
        return Text(f"{value:.1%}", small=[] if which else [name])

    return [
        _Column("Waiting", lambda cell: "" if cell.waiting is None else percent(cell.waiting)),
        _Column("Efficiency", lambda cell: _number(cell, percent, "efficiency")),
        _Column("Memory", lambda cell: _number(cell, size, "memory", "rss_peak_bytes")),
        _Column("GPU memory", lambda cell: _number(cell, size, "memory", "device_peak_bytes")),
        _Column(Text("Accuracy", small=which), accuracy),
    ]


def _rate(cell: Cell) -> Words:
    if cell.rate is None:
        return ""
    star = _STAR if cell.rate.of == "steps" else ""
    return Text(figure(cell.rate.median), "b", small=[cell.rate.interval], after=star)


def _bar(cell: Cell, top: float, css: str) -> Words:
    value = cell.rate
    if value is None:
        return ""
    parts = [rect(0, 1, value.median / top, _BAR - 2, f"bar {css}")]
    if value.low is not None and value.high is not None:
        parts += whisker(value.low / top, min(1.0, value.high / top), _BAR / 2, last=value.high <= top)
    return Text(after=svg(_BAR, "", parts, "meter"))


def _speedup(cell: Cell) -> Words:
    if cell.verdict in {"baseline", "not measured"} or not cell.speedup:
        return ""
    return strong(times(cell.speedup.median), cell.speedup.factors)


def _number(cell: Cell, show: Callable[[float], str], *path: str) -> str:
    value = cell.record.number(*path)
    return "" if value is None else show(value)


def _ending(cell: Cell, errors: Sequence[str]) -> list[Text]:
    """How it ended, where that is not simply that it completed."""
    error = cell.record.text("error")
    if cell.status == "completed" and not error:
        return []
    which = f" [{errors.index(error) + 1}]" if error else ""
    told = "some runs failed" if cell.status == "mixed" else cell.status[:40]
    return [Text(f"{told}{which}", "small", "bad" if cell.status == "failed" else "fair")]


def _why(cell: Cell, errors: Sequence[str], over: int) -> list[TableCell]:
    """Instead of figures, why there are none."""
    error = (cell.record.text("error") or "").strip()
    words = _ending(cell, errors)
    if not error and cell.status == "completed":
        words = [Text(BLANK, "small", "fair")]
    elif error:
        words.append(Text(error.splitlines()[0][:_FIRST], "small"))
    return [TableCell(words, "why", across=over)] if over else []


def _reports(cell: Cell) -> list[Text | str]:
    """A link to each run's report."""
    found: list[Text | str] = []
    for number, run in enumerate(cell.runs[:_MOST_RUNS], 1):
        path = run.text("report")
        if path or len(cell.runs) > 1:
            found.append(link(path, "report" if len(cell.runs) == 1 else str(number)))
    left = len(cell.runs) - _MOST_RUNS
    return [*found, f"+{left:,}"] if left > 0 else found


def _first(compared: Comparison, cell: Cell) -> TableCell:
    """The row's heading: its rank, and what is special about it; who cannot see hears the cell's name."""
    rank = f"{cell.place + 1}" if cell.rate else "\u2013"
    words: list[str | Text] = [rank, Text(cell.name, "span", "sr", compared.special(cell))]
    return TableCell(words, head=True, title=cell.name)


def _legend(compared: Comparison) -> list[Part]:
    told: list[str | Text] = []
    if any(cell.rate and cell.rate.of == "steps" for cell in compared.cells):
        one = "One run only: the interval is that of its own steps, and says nothing of other runs."
        told += [Text("1", "sup"), one]
    used = [key for key in compared.keys if any(not cell.setting(key)[1] for cell in compared.cells)]
    if used:
        unknown = any(cell.setting(key) == (DEFAULT, False) for cell in compared.cells for key in used)
        told.append("Grey: not given, the configuration's own value" + f" ({DEFAULT}: not recorded)" * unknown + ".")
    return note(*told)


def _errors(compared: Comparison, errors: Sequence[str]) -> list[Part]:
    """Each error once, with the cells that it ended."""
    found = []
    for number, error in enumerate(errors, 1):
        ended = [cell.name for cell in compared.cells if cell.record.text("error") == error]
        count = f" ({counted(len(ended), 'cell')})" if len(ended) > 1 else ""
        found.append((f"[{number}]", f"{cut('; '.join(ended), 570)}{count}", error))
    return [Errors(found)] if found else []


def method(compared: Comparison) -> Section:
    """How the figures came about, on which machine, and the files beside the page; there always is that section."""
    record, counts = compared.record, Counter(len(cell.runs) for cell in compared.cells if cell.runs)
    parts: list[Part] = [Paragraph(words) for words in _METHOD]
    if counts:
        told = ", ".join(
            f"{counted(cells, 'cell')} of {counted(runs, 'run')}" for runs, cells in sorted(counts.items())
        )
        spent = sum(run.number("seconds") or 0.0 for cell in compared.cells for run in cell.runs)
        parts.append(Paragraph(f"Here: {told}{f', in {duration(spent)} of training' if spent else ''}."))
    environment = record.mapping("environment")
    pairs = machine(environment, compared.gpus or ["none"] * bool(environment))
    if (share := record.number("environment", "page_cache")) is not None:
        pairs.append(("In the page cache when training began", percent(share)))
    parts += facts([*pairs, *versions(environment)])
    if text := record.text("command"):
        parts.append(Command(text, "Compare again"))
    files = Files([link(name, name, words) for name, words in _FILES.items()], "figures-files")
    parts.append(Block([Heading("The figures, to be read by programs"), files]))
    return Section("method", "How it was measured", "And the files beside this page.", parts)
