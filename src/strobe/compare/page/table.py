"""The table: a row for each cell, with columns only for what is known of any of them."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from strobe.bench.page.page import wide
from strobe.compare.page.cells import DEFAULT, Cell, Comparison
from strobe.compare.page.words import beside, factor, judged, link, spread_of, value_interval
from strobe.report.html.drawing import rect, whisker
from strobe.report.html.pieces import section
from strobe.report.html.text import counted, esc, percent, rate, size

TALL = 30  # rows, from which on the table scrolls in a box of its own
_BAR = 8  # pixels
_BEYOND = 1.3  # times the highest rate, from where on intervals are cut off
_MOST_RUNS = 12  # links in a row
_FIRST = 110  # characters of an error in a row
BLANK = "completed, but no step was measured"
_BREAKS = re.compile(r"([._/@])")


@dataclass(frozen=True)
class _Column:
    """A column: its heading and its cells, both HTML; without a cell to show it is left out."""

    head: str
    show: Callable[[Cell], str]
    css: str = "figure"


def table(compared: Comparison) -> str:
    """The section; empty where nothing was compared."""
    if not compared.cells:
        return ""
    errors = list(dict.fromkeys(text for cell in compared.cells if (text := cell.record.text("error"))))
    settings, rates = _settings(compared), _kept(compared, _rates(compared, errors))
    others = _kept(compared, [*_measures(compared), _Column("Reports", _reports, "reports")])
    columns = [*settings, *rates, *others]
    heads = "".join(f'<th scope="col" class="{column.css}">{column.head}</th>' for column in columns)
    body = ""
    for cell in compared.cells:
        row = _first(compared, cell) + _cells(settings, cell)
        row += _cells(rates, cell) if cell.rate else _why(cell, errors, len(rates))
        body += f'<tr class="{_css(compared, cell)}">{row}{_cells(others, cell)}</tr>'
    tall = " tall" * (len(compared.cells) > TALL)
    grid = (
        f'<div class="scroll{tall}" tabindex="0" role="region" aria-label="All cells">'
        f'<table class="cells all"><thead><tr><th scope="col">Rank</th>{heads}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )
    note = "The fastest first; small below a figure: its interval, 95% of images/s and 97% of a speed-up."
    note += " Waiting: for data, as a share of a step."
    if any(cell.record.number("efficiency") is not None for cell in compared.cells):
        note += " Efficiency: the rate as a share of the lowest ceiling."
    if compared.against:
        note += f" Speed-up: how many times as fast as {esc(compared.against)}."
    return wide(section("cells", "All cells", note, grid + _legend(compared) + _errors(compared, errors)))


def _kept(compared: Comparison, columns: Sequence[_Column]) -> list[_Column]:
    return [column for column in columns if any(column.show(cell) for cell in compared.cells)]


def _cells(columns: Sequence[_Column], cell: Cell) -> str:
    return "".join(f'<td class="{column.css}">{column.show(cell)}</td>' for column in columns)


def _settings(compared: Comparison) -> list[_Column]:
    def column(key: str) -> _Column:
        def show(cell: Cell) -> str:
            value, given = cell.setting(key)
            words = f'<span class="name" title="{esc(value, 2000)}">{esc(value)}</span>'
            return words if given else f'<span class="none">{words}</span>'

        head = _BREAKS.sub(r"\1<wbr/>", esc(key, 80))
        return _Column(f"<code>{head}</code>", show, "setting")

    return [column(key) for key in compared.keys]


def _rates(compared: Comparison, errors: Sequence[str]) -> list[_Column]:
    """What a cell without a rate lacks altogether."""
    rated = [cell.rate for cell in compared.measured if cell.rate]
    most = max((value.median for value in rated), default=1.0)
    top = max([most, *(min(value.high or 0.0, _BEYOND * most) for value in rated)])
    return [
        _Column("Images/s", _rate),
        _Column("", lambda cell: _bar(cell, top, css="s8" if cell is compared.baseline else "s1"), "bars"),
        _Column("Speed-up", _speedup),
        _Column("Verdict", lambda cell: judged(cell.verdict) + _ending(cell, errors), "judged"),
    ]


def _measures(compared: Comparison) -> list[_Column]:
    accuracies = {cell.accuracy[0] for cell in compared.cells if cell.accuracy}
    which = f"<small>{esc(accuracies.pop())}</small>" if len(accuracies) == 1 else ""
    return [
        _Column("Waiting", lambda cell: "" if cell.waiting is None else percent(cell.waiting)),
        _Column("Efficiency", lambda cell: _number(cell, percent, "efficiency")),
        _Column("Memory", lambda cell: _number(cell, size, "memory", "rss_peak_bytes")),
        _Column("GPU memory", lambda cell: _number(cell, size, "memory", "device_peak_bytes")),
        _Column(f"Accuracy{which}", lambda cell: _accuracy(cell, named=not which)),
    ]


def _rate(cell: Cell) -> str:
    if cell.rate is None:
        return ""
    star = '<sup aria-hidden="true">1</sup><span class="sr">, one run</span>' if cell.rate.of == "steps" else ""
    return f"<b>{rate(cell.rate.median)}</b>{star}<small>{value_interval(cell.rate, rate)}</small>"


def _bar(cell: Cell, top: float, css: str) -> str:
    value = cell.rate
    if value is None:
        return ""
    parts = [rect(0, 1, value.median / top, _BAR - 2, f"bar {css}")]
    if value.low is not None and value.high is not None:
        lines = whisker(value.low / top, min(1.0, value.high / top), _BAR / 2)
        parts += [each for number, each in enumerate(lines) if value.high <= top or number % 3 < 2]  # else without end
    return beside(_BAR, parts)


def _speedup(cell: Cell) -> str:
    if cell.verdict in {"baseline", "not measured"} or not cell.speedup:
        return ""
    return f"<b>{factor(cell.speedup)}</b><small>{spread_of(cell.speedup)}</small>"


def _number(cell: Cell, show: Callable[[float], str], *path: str) -> str:
    value = cell.record.number(*path)
    return "" if value is None else show(value)


def _accuracy(cell: Cell, *, named: bool) -> str:
    if not cell.accuracy:
        return ""
    name, value = cell.accuracy
    return f"{value:.1%}" + (f"<small>{esc(name, 40)}</small>" if named else "")


def _ending(cell: Cell, errors: Sequence[str]) -> str:
    """How it ended, where that is not simply that it completed."""
    error = cell.record.text("error")
    if cell.status == "completed" and not error:
        return ""
    which = f" [{errors.index(error) + 1}]" if error else ""
    told = "some runs failed" if cell.status == "mixed" else cell.status
    return f'<small class="{"bad" if cell.status == "failed" else "fair"}">{esc(told, 40)}{which}</small>'


def _why(cell: Cell, errors: Sequence[str], over: int) -> str:
    """Instead of figures, why there are none."""
    error = (cell.record.text("error") or "").strip()
    if not error and cell.status == "completed":
        return f'<td colspan="{over}" class="why"><small class="fair">{BLANK}</small></td>' if over else ""
    first = f" <small>{esc(error.splitlines()[0], _FIRST)}</small>" if error else ""
    return f'<td colspan="{over}" class="why">{_ending(cell, errors)}{first}</td>' if over else ""


def _reports(cell: Cell) -> str:
    """A link to each run's report."""
    found = []
    for number, run in enumerate(cell.runs[:_MOST_RUNS], 1):
        words = "report" if len(cell.runs) == 1 else str(number)
        path = run.text("report")
        if path or len(cell.runs) > 1:
            found.append(link(path, words))
    left = len(cell.runs) - _MOST_RUNS
    return " ".join(found) + (f" +{left:,}" if left > 0 else "")


def _first(compared: Comparison, cell: Cell) -> str:
    """The row's heading: its rank, and what is special about it; who cannot see hears the cell's name."""
    rank = f"{cell.place + 1}" if cell.rate else "\u2013"
    special = [
        f"<small>{words}</small>"
        for words, true in (("fastest", cell is compared.best), ("baseline", cell is compared.baseline))
        if true
    ]
    name = f'<span class="sr"> {esc(cell.name)}</span>'
    return f'<th scope="row" title="{esc(cell.name, 2000)}">{rank}{name}{"".join(special)}</th>'


def _css(compared: Comparison, cell: Cell) -> str:
    return "best" if cell is compared.best else "base" if cell is compared.baseline else ""


def _legend(compared: Comparison) -> str:
    told = []
    if any(cell.rate and cell.rate.of == "steps" for cell in compared.cells):
        told.append("<sup>1</sup> One run only: the interval is that of its own steps, and says nothing of other runs.")
    used = [key for key in compared.keys if any(not cell.setting(key)[1] for cell in compared.cells)]
    if used:
        unknown = any(cell.setting(key) == (DEFAULT, False) for cell in compared.cells for key in used)
        told.append("Grey: not given, the configuration's own value" + f" ({DEFAULT}: not recorded)" * unknown + ".")
    return f'<p class="note">{" ".join(told)}</p>' if told else ""


def _errors(compared: Comparison, errors: Sequence[str]) -> str:
    """Each error once, with the cells that it ended."""
    items = []
    for number, error in enumerate(errors, 1):
        ended = [cell for cell in compared.cells if cell.record.text("error") == error]
        names = "; ".join(cell.name for cell in ended)
        count = f" ({counted(len(ended), 'cell')})" if len(ended) > 1 else ""
        items.append(f"<li><p><b>[{number}]</b> {esc(names, 600)}{count}</p><pre>{esc(error, 6000)}</pre></li>")
    return f'<ol class="errors error bad">{"".join(items)}</ol>' if items else ""
