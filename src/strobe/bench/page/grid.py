"""A table's figures as HTML: its rows and columns, with intervals, ratios and errors."""

import statistics
from collections.abc import Mapping, Sequence

from strobe.bench.harness.wording import figure
from strobe.bench.page.shown import Cell, Shown, setting, state
from strobe.report.html.pieces import interval
from strobe.report.html.text import TIMES, counted, esc, percent

_SHORT = 16  # characters of a row's name that are kept in one line
_MANY = 8  # columns, with more of which the figures' intervals are broken into lines
_KEYS = ("row", "column", "threads", "cache")


def grid(shown: Shown) -> str:
    """The table, and below it what failed and why."""
    if not shown.cells:
        return '<p class="empty">This table has no cells.</p>'
    errors = list(dict.fromkeys(str(cell["error"]) for cell in shown.cells if cell["error"]))
    against = _against(shown)
    heads = [shown.table.rows, *("threads" if key == "threads" else "page cache" for key in shown.varying)]
    top = "".join(f'<th scope="col">{esc(head[:1].upper() + head[1:])}</th>' for head in heads)
    top += "".join(f'<th scope="col" class="figure">{_column(shown, name)}</th>' for name in shown.columns)
    rows = _rows(shown)
    body = "".join(_row(shown, rows, number, against, errors) for number in range(len(rows)))
    few = "few" * (len(shown.columns) < 4) or "many" * (len(shown.columns) > _MANY)
    return (
        f'<div class="scroll"><table class="cells {few}"><thead><tr>{top}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
        f"{_legend(shown, against)}{_errors(shown, errors)}"
    )


def note(shown: Shown) -> str:
    """What all cells of a table have in common, in a line."""
    parts = [f"Figures in {shown.unit}."]
    for key in ("threads", "cache"):
        if shown.cells and key not in shown.varying and (text := setting(key, shown.cells[0][key])):
            parts.append(f"Page cache {esc(text)}." if key == "cache" else f"On {text}.")
    return " ".join(parts)


def resident(shown: Shown) -> str:
    """How much of the files lay in memory when timing began, by state of the page cache."""
    found = []
    for cache in dict.fromkeys(cell["cache"] for cell in shown.cells if cell["cache"]):
        held = [cell["resident"] for cell in shown.cells if cell["cache"] == cache and cell["resident"] is not None]
        if held:
            found.append(f"{esc(cache)}: {percent(statistics.fmean(held))}")
    return f"Share of the files' pages in memory when timing began: {', '.join(found)}." if found else ""


def _rows(shown: Shown) -> list[list[Cell]]:
    """The cells of each line: of one row, with the same threads and page cache."""
    order = {name: number for number, name in enumerate(shown.rows)}
    found: dict[tuple[object, ...], list[Cell]] = {}
    for cell in sorted(shown.cells, key=lambda cell: order[cell["row"]]):
        found.setdefault((cell["row"], *(cell[key] for key in shown.varying)), []).append(cell)
    return list(found.values())


def _row(
    shown: Shown, rows: Sequence[Sequence[Cell]], number: int, against: Mapping[str, str], errors: Sequence[str]
) -> str:
    first = rows[number][0]
    named = {cell["column"]: cell for cell in rows[number]}
    same = [other for other, cells in enumerate(rows) if cells[0]["row"] == first["row"]]
    head = ""
    if number == same[0]:
        css, over = "short" * (len(first["row"]) <= _SHORT), f' rowspan="{len(same)}"' * (len(same) > 1)
        head = f'<th scope="row" class="{css}"{over}>{esc(first["row"])}</th>'
    head += "".join(f"<td>{esc('' if first[key] is None else first[key])}</td>" for key in shown.varying)
    return f"<tr>{head}{''.join(_cell(shown, named.get(name), against, errors) for name in shown.columns)}</tr>"


def _cell(shown: Shown, cell: Cell | None, against: Mapping[str, str], errors: Sequence[str]) -> str:
    if cell is None:
        return '<td class="figure"></td>'
    value, parts = shown.value(cell), []
    if value:
        parts.append(f"<b>{figure(value.median)}</b><small>{value.interval}</small>")
    else:
        parts.append(f'<b class="{"bad" if cell["status"] == "failed" else "none"}">{state(cell)}</b>')
    if cell["error"]:
        again = "failed later " if value else ""
        parts.append(f'<small class="bad">{again}[{errors.index(str(cell["error"])) + 1}]</small>')
    if (ratio := cell["ratio"]) and value and ratio["median"] is not None:
        of = "" if len(set(against.values())) < 2 else f"of {esc(against[cell['name']])} "
        spread = interval(ratio["low"], ratio["high"], figure) if value.repeated else ""
        parts.append(f'<small class="ratio"><b>{figure(ratio["median"])}{TIMES}</b> {of}{spread}</small>')
    if value and (spread := cell["seconds"].get("spread")) is not None:
        parts.append(f"<small>spread {percent(spread)}</small>")
    return f'<td class="figure">{"".join(parts)}</td>'


def _column(shown: Shown, name: str) -> str:
    css = next(shown.css(cell) for cell in shown.cells if cell["column"] == name)
    first, _, rest = name.partition(" ")
    return f'<span class="first"><i class="key {css}"></i>{esc(first).replace("_", "_<wbr/>")}</span> {esc(rest)}'


def _against(shown: Shown) -> dict[str, str]:
    """What each cell's ratio refers to, in words: that in which the other cell differs."""
    known = {cell["name"]: cell for cell in shown.cells}
    found = {}
    for cell in shown.cells:
        if cell["against"] and cell["ratio"]:
            other = known.get(cell["against"], {})
            differing = [key for key in _KEYS if key in other and other[key] != cell[key]]
            told = [shown.row(other[key]) if key == "row" else setting(key, other[key]) for key in differing]
            found[cell["name"]] = ", ".join(part for part in told if part) or cell["against"]
    return found


def _legend(shown: Shown, against: Mapping[str, str]) -> str:
    names = set(against.values())
    parts = [f"Small below a figure: its {shown.ranges}."] if shown.ranges else []
    if len(names) == 1:
        parts.append(f"With {TIMES}: how many times as fast as {esc(names.pop())} it is.")
    elif names:
        parts.append(f"With {TIMES}: how many times as fast it is.")
    if any(cell["seconds"].get("spread") is not None for cell in shown.cells):
        parts.append("Spread: the distance of the quartiles of all timings, as a share of their median.")
    told = " ".join(part for part in (*parts, resident(shown)) if part)
    return f'<p class="note">{told}</p>' if told else ""


def _errors(shown: Shown, errors: Sequence[str]) -> str:
    """Each error once, with the cells that it ended."""
    items = []
    for number, error in enumerate(errors, 1):
        ended = [cell for cell in shown.cells if cell["error"] and str(cell["error"]) == error]
        names = "; ".join(", ".join(part for part in _named(shown, cell) if part) for cell in ended)
        count = f" ({counted(len(ended), 'cell')})" if len(ended) > 1 else ""
        items.append(f"<li><p><b>[{number}] failed</b> {esc(names, 600)}{count}</p><pre>{esc(error, 6000)}</pre></li>")
    return f'<ol class="errors error bad">{"".join(items)}</ol>' if items else ""


def _named(shown: Shown, cell: Cell) -> tuple[str, str, str]:
    return shown.row(cell["row"]), cell["column"], shown.variant(cell)
