"""The offline page and the pictures of a suite's results, from their record alone. Imports no torch."""

import re
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from strobe.bench.harness.declare import Section, Suite
from strobe.bench.harness.results import CellRecord, day
from strobe.bench.shown import ONE_TRIAL, Shown, ranges, setting, shown_of, spanned
from strobe.measure.statistics import ENOUGH, FEWEST
from strobe.present import page as pages
from strobe.present import parts as kit
from strobe.present.format import TIMES, counted, duration, figure, interval, percent, times
from strobe.report.footer import machine, versions

NAME, FOLDER = "report.html", "pictures"
_STATUS = {"completed": "good", "failed": "bad"}
_FIRST = 2  # conclusions at the top; the others stand below the charts
_SHORT = 16  # characters of a row's name that are kept in one line
_MANY = 6  # columns, with more of which the figures' intervals are broken into lines
_BREAKS = re.compile(r"([._=])")
_KEYS = ("row", "column", "threads", "cache")
_FILES = {
    "results.json": "the whole record, with each trial: the one to exchange",
    "results.csv": "a line for each cell",
    "measurements.pkl": "for torch.utils.benchmark: load your own only, because a pickle can run code",
}
_CACHE = "Warm: the files are in it before timing begins; cold: they are dropped from it before each repetition."
_CSS = {"faster": "good", "slower": "bad", "failed": "bad"}


def write_page(folder: Path, suite: Suite, record: Mapping[str, Any], sections: Sequence[Section] = ()) -> Path:
    """Write ``report.html`` into the folder of ``results.json``, whole or not at all, and return its path."""
    return pages.write_whole(folder / NAME, render(suite, record, sections))


def write_pictures(folder: Path, suite: Suite, record: Mapping[str, Any]) -> list[Path]:
    """Write ``pictures/TABLE.svg`` for each table, each whole or not at all, and return their paths."""
    (folder / FOLDER).mkdir(exist_ok=True)
    return [
        pages.write_whole(folder / FOLDER / shown.file, shown.picture().file(shown.table.title, caption(record)))
        for shown in shown_of(suite, record)
    ]


def render(suite: Suite, record: Mapping[str, Any], sections: Sequence[Section] = ()) -> str:
    """The page as HTML; a pure function."""
    status = record["status"]
    sections_ = [
        *(_table(shown) for shown in shown_of(suite, record)),
        *(kit.Section(f"more-{number}", each.title, "", each.parts, True) for number, each in enumerate(sections, 1)),
        kit.Section("conclusions", "What else follows", "", [*map(kit.Paragraph, record["conclusions"][_FIRST:])]),
        baseline(record),
        measured_on(record),
        method(record),
    ]
    first = [kit.Text(pages.shown(line, 4000)) for line in record["conclusions"][:_FIRST]]
    page = kit.Page(
        f"{record['title']} - Strobe",
        (f"benchmark suite {record['suite']}", record["environment"].get("host"), day(record)),
        record["title"],
        [kit.Files(first, "conclusions") if first else kit.Paragraph("Nothing was concluded.", "lede")],
        sections_,
        "results.json; works offline.",
        [*(("fair", badge) for _, badge in notices(record)), (_STATUS.get(status, "fair"), status)],
    )
    return pages.render(page)


def notices(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What a reader must know before any figure, with the words of its badge."""
    pairs = []
    if record["input"]["generated"]:
        pairs.append(("The input is generated: real files may give other figures.", "generated input"))
    if record["quick"]:
        pairs.append(("Quick mode: a check that the suite works, too short for conclusions.", "quick mode"))
    return pairs


def caption(record: Mapping[str, Any]) -> str:
    """A line for a picture that stands alone."""
    environment = record["environment"]
    cores = environment.get("usable_cores")
    parts = [
        *(badge for _, badge in notices(record)),
        record["input"]["told"],
        environment.get("gpu") or environment.get("cpu"),
        f"{cores} cores" if cores else None,
        day(record),
        ranges(record["cells"]),
    ]
    return " · ".join(part for part in parts if part)


def measured_on(record: Mapping[str, Any]) -> kit.Section:
    """What was measured, the input, the machine and the versions."""
    environment = record["environment"]
    host = {key: value for key, value in environment.items() if key != "host"}
    parts: list[kit.Part] = [kit.Paragraph(record["about"])]
    parts += [kit.Paragraph(kit.Text(words, "b"), "fair") for words, _ in notices(record)]
    parts += kit.facts([("Input", record["input"]["told"]), *machine(host, [environment.get("gpu") or "none"])])
    parts += kit.note(", ".join(f"{name}\u00a0{value}" for name, value in versions(environment)))
    return kit.Section("input", "What was measured", "On which input, on which machine.", parts)


def _table(shown: Shown) -> kit.Section:
    """A table's picture, its figures with intervals and ratios, and below them what failed and why."""
    anchor = f"table-{shown.file.removesuffix('.svg')}"
    about = f"Figures in {shown.unit}."
    for key in ("threads", "cache"):
        if shown.cells and key not in shown.varying and (text := setting(key, shown.cells[0][key])):
            about += f" Page cache {text}." if key == "cache" else f" On {text}."
    if not shown.cells:
        empty = kit.Paragraph("This table has no cells.", "empty")
        return kit.Section(anchor, shown.table.title, about, [empty], wide=True)
    errors = list(dict.fromkeys(cell["error"] for cell in shown.cells if cell["error"]))
    against = _against(shown)
    parts: list[kit.Part] = [
        kit.Chart(shown.picture().inline()),
        _grid(shown, against, errors),
        *_legend(shown, against),
    ]
    parts += kit.errors(((_name(shown, cell), cell["error"]) for cell in shown.cells if cell["error"]), "[{}] failed")
    parts += kit.note(kit.link(f"{FOLDER}/{shown.file}", "The picture as a file"))
    return kit.Section(anchor, shown.table.title, about, parts, wide=True)


def _grid(shown: Shown, against: Mapping[str, str], errors: Sequence[str]) -> kit.Table:
    order = {name: number for number, name in enumerate(shown.rows)}
    lines: dict[tuple[object, ...], dict[str, CellRecord]] = {}  # by row, threads and page cache
    for cell in sorted(shown.cells, key=lambda cell: order[cell["row"]]):
        lines.setdefault((cell["row"], *(cell[key] for key in shown.varying)), {})[cell["column"]] = cell
    rows, before = [], None
    for (name, *varying), named in lines.items():
        cells: list[kit.Words | kit.Cell] = []
        if name != before:
            css, down = "short" * (len(str(name)) <= _SHORT), sum(key[0] == name for key in lines)
            cells.append(kit.Cell(str(name), css, head=True, down=down))
            before = name
        cells += ["" if value is None else str(value) for value in varying]
        cells += [kit.Cell(_figures(shown, named.get(column), against, errors), "figure") for column in shown.columns]
        rows.append(cells)
    heads: list[kit.Words | kit.Cell] = [
        head[:1].upper() + head[1:]
        for head in (shown.table.rows, *("threads" if key == "threads" else "page cache" for key in shown.varying))
    ]
    for name in shown.columns:
        css = next(shown.css(cell) for cell in shown.cells if cell["column"] == name)
        broken = _BREAKS.sub(r"\1<wbr/>", str(pages.shown(name)))
        heads.append(kit.Cell(kit.Text(Markup(f'<i class="key {css}"></i>\u00a0{broken}'), "span"), "figure"))
    few = "few" * (len(shown.columns) < 4) or "many" * (len(shown.columns) > _MANY)
    return kit.Table(heads, rows, f"cells {few}")


def _figures(shown: Shown, cell: CellRecord | None, against: Mapping[str, str], errors: Sequence[str]) -> kit.Words:
    if cell is None:
        return ""
    value = shown.value(cell)
    failed = [f"[{errors.index(cell['error']) + 1}]"] if cell["error"] else []
    if value is None:
        return kit.Text(cell["status"], "b", "bad" if failed else "none", failed)
    small: list[kit.Words] = [
        value.interval or ONE_TRIAL,
        *(kit.Text(f"failed later {number}", "span", "bad") for number in failed),
    ]
    if ratio := cell["ratio"]:
        of = f"of {against[cell['name']]}" if len(set(against.values())) > 1 else ""
        spread = interval(ratio["low"], ratio["high"])
        small.append([kit.Text(f"{figure(ratio['median'])}{TIMES}", "b"), *filter(None, (of, spread))])
    return kit.strong(figure(value.median), *small)


def _against(shown: Shown) -> dict[str, str]:
    """What each cell's ratio refers to, in words: that in which the other cell differs."""
    known = {cell["name"]: cell for cell in shown.cells}
    words = {}
    for cell in shown.cells:
        if cell["ratio"]:
            other = known.get(cell["against"], {})
            differing = [key for key in _KEYS if key in other and other[key] != cell[key]]
            settings = [shown.row(other[key]) if key == "row" else setting(key, other[key]) for key in differing]
            words[cell["name"]] = ", ".join(part for part in settings if part) or cell["against"]
    return words


def _legend(shown: Shown, against: Mapping[str, str]) -> list[kit.Part]:
    names = set(against.values())
    sentences = [f"Below a figure: its {spread}."] if (spread := ranges(shown.cells)) else []
    if names:
        as_what = f"as {names.pop()} it is" if len(names) == 1 else "it is"
        sentences.append(f"With {TIMES}: how many times as fast {as_what}.")
    held: dict[str, list[float]] = {}
    for cell in shown.cells:
        if cell["cache"] and cell["resident"] is not None:
            held.setdefault(cell["cache"], []).append(cell["resident"])
    if held:
        resident = ", ".join(f"{cache}: {percent(statistics.fmean(shares))}" for cache, shares in held.items())
        sentences.append(f"Share of the files' pages in memory when timing began: {resident}.")
    return kit.note(*sentences)


def _name(shown: Shown, cell: CellRecord) -> str:
    return ", ".join(filter(None, (shown.row(cell["row"]), cell["column"], shown.variant(cell))))


def baseline(record: Mapping[str, Any]) -> kit.Section:
    """Each cell against an earlier result; nothing without one."""
    title = "Against an earlier result"
    if not (compared := record.get("baseline")):
        return kit.Section("baseline", title, "", [])
    counts = Counter(entry["verdict"] for entry in compared)
    verdicts = ", ".join(f"{count:,} {verdict}" for verdict, count in counts.most_common())
    rows = []
    for entry in compared:
        ratio, verdict = entry["ratio"], entry["verdict"]
        speed = kit.strong(times(ratio["median"]), interval(ratio["low"], ratio["high"], times)) if ratio else ""
        rows.append((entry["name"], speed, kit.Text(verdict, "span", _CSS.get(verdict, "none"))))
    parts: list[kit.Part] = [kit.Paragraph(kit.Text(f"{verdicts}.", "b"))]
    if unlike := record["unlike_baseline"]:
        lines = [kit.Text(words) for words in unlike]
        parts.append(kit.Block([kit.Paragraph(kit.Text("Not the same in both:", "b")), kit.Files(lines, "")], "fair"))
    parts.append(kit.Table(("Cell", "#Speed now / then", "Verdict"), rows))
    about: list[str | kit.Text] = [
        "Against",
        kit.Text(f"{record['baseline_file']}.", "code"),
        f"Above 1{TIMES} is faster; no difference: the interval includes 1; with fewer than {FEWEST} trials there is "
        "no verdict.",
    ]
    return kit.Section("baseline", title, about, parts)


def method(record: Mapping[str, Any]) -> kit.Section:
    """How the figures came about, and how to get them again."""
    cells = record["cells"]
    visited = [cell for cell in cells if cell["visits"]]
    lines = [
        "Each trial of a cell is a fresh process of its own: it warms up untimed, then repeats for "
        f"{duration(record['settings']['turn'])}, once at least. A round measures the cells in random order, another "
        "one each round, so that slow and fast minutes of the machine meet all of them alike.",
        "A trial counts with its median; a figure is the median over trials, and its 95% interval is of order "
        "statistics over trials. Ratios are taken round by round, with a 97% interval by Student's t of their "
        "logarithms.",
    ]
    if visited:
        counts = [len(cell["visits"]) for cell in visited]
        repetitions = spanned([cell["repetitions"] for cell in visited], "timed repetition")
        spent = " The budget of time ended it; with a larger budget_seconds it would go on." * record["budget_spent"]
        lines.append(f"Here: {spanned(counts, 'trial')} a cell and {repetitions} of it in all.{spent}")
        if min(counts) < ENOUGH:
            few = f"With fewer than {ENOUGH} trials there is no interval but their range, from the least to the most."
            lines.append(few)
    if cache := record["environment"].get("page_cache"):
        lines.append(f"Page cache: {cache}. {_CACHE}")
    states = Counter(cell["status"] for cell in cells).most_common()
    outcomes = ", ".join(f"{count:,} {status}" for status, count in states)
    lines.append(f"{counted(len(cells), 'cell')} in {duration(record['seconds'])}: {outcomes or 'nothing'}.")
    parts: list[kit.Part] = [
        *map(kit.Paragraph, lines),
        kit.Command(record["command"], "Measure again"),
        kit.figures(_FILES),
    ]
    return kit.Section("method", "How it was measured", "And the files beside this page.", parts)
