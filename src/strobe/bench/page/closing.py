"""The end of a suite's page: an earlier result, how it was measured, where the figures are, how to measure again."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from strobe.bench.page.shown import ENOUGH
from strobe.measure.statistics import FEWEST
from strobe.report.html.pieces import command, interval, section, table
from strobe.report.html.text import counted, duration, esc, times

_FILES = {
    "results.json": "the whole record, with each visit",
    "results.csv": "a line for each cell",
    "measurements.pkl": "torch.utils.benchmark Measurements, to unpickle, compare and merge",
}
_CACHE = "Warm: the files are in it before timing begins; cold: they are dropped from it before each repetition."
_CSS = {"faster": "good", "slower": "bad", "failed": "bad"}


def baseline(record: Mapping[str, Any]) -> str:
    """Each cell against an earlier result; nothing without one."""
    if not (compared := record.get("baseline")):
        return ""
    counts = Counter(entry["verdict"] for entry in compared)
    told = ", ".join(f"{count:,} {verdict}" for verdict, count in counts.most_common())
    rows = [
        (
            esc(entry["name"]),
            _ratio(entry["ratio"]),
            f'<span class="{_CSS.get(entry["verdict"], "none")}">{esc(entry["verdict"])}</span>',
        )
        for entry in compared
    ]
    unlike = "".join(f"<li>{esc(words, 2000)}</li>" for words in record.get("unlike_baseline") or [])
    warning = f'<div class="fair"><p><b>Not the same in both:</b></p><ul>{unlike}</ul></div>' if unlike else ""
    body = f"<p><b>{esc(told)}.</b></p>{warning}{table(('Cell', '#Speed now / then', 'Verdict'), rows)}"
    file = record.get("baseline_file")
    against = f"Against <code>{esc(file)}</code>. " if file else ""
    verdicts = f"no difference: the interval holds 1; with fewer than {FEWEST} visits there is no verdict"
    words = f"{against}Above 1{times(1)[-1]} is faster; {verdicts}."
    return section("baseline", "Against an earlier result", words, body)


def method(record: Mapping[str, Any]) -> str:
    """How the figures came about, and how to get them again."""
    cells, settings = record["cells"], record.get("settings") or {}
    counts = [len(cell["visits"]) for cell in cells if cell["visits"]]
    states = Counter(cell["status"] for cell in cells)
    turn = f" for {duration(settings['turn'])}" if settings.get("turn") else " for a while"
    lines = [
        f"Each visit to a cell is a fresh process of its own: it warms up untimed, then repeats{turn}, once at least. "
        "A round visits the cells in random order, another one each round, so that slow and fast minutes of the "
        "machine meet all of them alike.",
        "A visit counts with its median; a figure is the median over visits, and its 95% interval is of order "
        "statistics over visits. Ratios are taken round by round, with a 97% interval by Student's t of their "
        "logarithms.",
    ]
    if counts:
        repetitions = _range([cell["repetitions"] for cell in cells if cell["visits"]], "timed repetition")
        spent = " The budget of time ended it; with a larger budget_seconds it would go on." * bool(
            record.get("budget_spent")
        )
        lines.append(f"Here: {_range(counts, 'visit')} to a cell and {repetitions} of it in all.{spent}")
        if min(counts) < ENOUGH:
            lines.append(
                f"With fewer than {ENOUGH} visits there is no interval but their range, from the least to the most."
            )
    if cache := (record.get("environment") or {}).get("page_cache") or record.get("page_cache"):
        lines.append(f"Page cache: {esc(cache, 2000)}. {_CACHE}")
    told = ", ".join(f"{count:,} {status}" for status, count in states.most_common())
    took = f" in {duration(record['seconds'])}" if record.get("seconds") else ""
    lines.append(f"{counted(len(cells), 'cell')}{took}{f': {told}' if told else ''}.")
    paragraphs = "".join(f"<p>{line}</p>" for line in lines)
    files = "".join(f'<li><a href="./{name}">{name}</a><small>{words}</small></li>' for name, words in _FILES.items())
    again = command(str(record["command"])) if record.get("command") else ""
    body = f"{paragraphs}<div><h3>Measure again</h3>{again}</div>" if again else paragraphs
    body += f'<div><h3>The figures, to be read by programs</h3><ul class="figures-files">{files}</ul></div>'
    return section("method", "How it was measured", "And the files beside this page.", body)


def _ratio(ratio: Mapping[str, Any] | None) -> str:
    if not ratio or ratio["median"] is None:
        return ""
    return f"<b>{times(ratio['median'])}</b><small>{interval(ratio['low'], ratio['high'], times)}</small>"


def _range(numbers: Sequence[int], noun: str) -> str:
    """``5 visits``, or ``3 to 7 visits``."""
    least, most = min(numbers), max(numbers)
    return counted(most, noun) if least == most else f"{least:,} to {counted(most, noun)}"
