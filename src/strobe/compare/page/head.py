"""The top of the page: which cell is the fastest, how sure that is, and what a reader must know before."""

import statistics

from strobe.compare.page.cells import Cell, Comparison
from strobe.compare.page.words import MARKS, factor, spread_of, value_interval
from strobe.report.html.text import counted, esc, percent, rate, times

_LONG, _LONGEST = 130, 320  # characters of the headline: from where it is set small, and where it is cut
_MOST = 6  # names in a sentence


def head(compared: Comparison) -> str:
    """The title, the verdict, the figures, and warnings."""
    said = verdict(compared)
    record, environment = compared.record, compared.record.mapping("environment")
    gpus = dict.fromkeys(text for cell in compared.cells if (text := cell.record.text("gpu")))
    made = (record.text("made") or "").replace("T", " ")[:16]
    what = ["comparison", environment.get("host"), *(gpus or [environment.get("cpu")]), made]
    told = " · ".join(str(part) for part in what if part)
    title = record.text("title")
    name = f'<p class="run-name">{esc(title, 200)}</p>' if title else ""
    size = ' class="long"' if len(said) > _LONG else ""
    return (
        f'<header><p class="kicker"><span class="brand">Strobe</span><span class="what">{esc(told)}</span>'
        f"{_badge(compared)}</p>{name}<h1{size}>{esc(said, _LONGEST)}</h1>"
        f"{_lede(compared)}{_figures(compared)}{_regression(compared)}{_unlike(compared)}</header>"
    )


def verdict(compared: Comparison) -> str:
    """One sentence: the fastest cell, and how much faster than the baseline it is."""
    best, against = compared.best, compared.against
    if not compared.cells:
        return "Nothing was compared."
    if best is None or best.rate is None:
        if blank := sum(cell.status == "completed" for cell in compared.cells):
            return f"Nothing was measured: {counted(blank, 'cell')} completed without a measured step; train longer."
        return f"No cell completed: {counted(len(compared.cells), 'cell')} failed or were interrupted."
    much = f"{rate(best.rate.median)} images/s"
    if best is compared.baseline:
        return f"The baseline, {best.name}, is the fastest: {much}."
    if not against or not best.speedup:
        return f"{best.name} is the fastest: {much}."
    return _against(best, much, against)


def _against(best: Cell, much: str, baseline: str) -> str:
    assert best.speedup is not None
    ratio, spread = f"{best.speedup.median:,.2f} times", spread_of(best.speedup)
    if best.verdict == "no difference":
        chance = f"may be chance: the interval, {spread}, holds 1" if spread else "may be chance"
        return f"{best.name} has the highest rate, {much}; that it is {ratio} as fast as {baseline}, {chance}."
    if best.verdict == "too few runs":
        return f"{best.name} is the fastest so far: {ratio} as fast as {baseline}; too few runs to be sure."
    return f"{best.name} is the fastest: {ratio}{f' ({spread})' if spread else ''} as fast as {baseline}."


def _lede(compared: Comparison) -> str:
    """What stands against taking the verdict as it is."""
    lines = [f"{esc(words.rstrip('.'), 1000)}." for words in compared.record.items("notes") if isinstance(words, str)]
    best, near = compared.best, 0
    if best and best.rate and best.rate.low is not None:
        near = sum(
            1
            for cell in compared.measured
            if cell is not best and cell.rate and cell.rate.high is not None and cell.rate.high >= best.rate.low
        )
    if near:
        lines.append(f"The interval of {counted(near, 'other cell')} reaches into that of the fastest.")
    return f'<p class="lede">{" ".join(lines)}</p>' if lines else ""


def _figures(compared: Comparison) -> str:
    pairs, best = [], compared.best
    if best and best.rate:
        spread = value_interval(best.rate, rate)
        over = " over the steps of one run" if best.rate.of == "steps" else ""
        pairs.append(("Fastest, images/s", rate(best.rate.median), f"{spread}{over}" if spread else "no interval"))
    if best and best.speedup and best is not compared.baseline:
        spread = spread_of(best.speedup) or "no interval"
        where = "the baseline" if compared.baseline else "the same cell there"
        pairs.append((f"Against {where}", times(best.speedup.median), spread))
    cells = len(compared.cells)
    failed = cells - len(compared.measured)
    pairs.append(("Cells", f"{cells:,}", f"{failed:,} not measured" if failed else "all measured"))
    counts = [len(cell.runs) for cell in compared.cells if cell.runs]
    if counts:
        each = statistics.median(counts)
        pairs.append(
            (
                "Runs",
                f"{sum(counts):,}",
                f"{each:g} to a cell, mostly" if len(set(counts)) > 1 else f"{each:g} to a cell",
            )
        )
    lines = "".join(
        f"<div><dt>{name}</dt><dd><b>{much}</b><small>{hint}</small></dd></div>" for name, much, hint in pairs
    )
    return f'<dl class="figures">{lines}</dl>' if compared.cells else ""


def _regression(compared: Comparison) -> str:
    found = compared.record.mapping("regression")
    if not found:
        return ""
    names = [str(name) for name in compared.record.items("regression", "cells")]
    limit = compared.record.number("regression", "limit")
    than = f"by more than {percent(limit)}" if limit is not None else "by more than was allowed"
    if not names:
        told = compared.record.text("regression", "text") or f"It is not known whether a cell is slower {than}"
        return f'<p class="note"><b>{esc(told, 1000)}.</b></p>'
    rest = f" and {len(names) - _MOST:,} more" if len(names) > _MOST else ""
    told = ", ".join(f"<code>{esc(name, 160)}</code>" for name in names[:_MOST])
    count = f"{counted(len(names), 'cell')} {'is' if len(names) == 1 else 'are'}"
    first = f"<p><b>{MARKS['slower']} {count} slower than the baseline {than}, or failed:</b></p>"
    return f'<div class="error bad">{first}<p>{told}{rest}</p></div>'


def _unlike(compared: Comparison) -> str:
    lines = "".join(
        f"<li>{esc(words, 2000)}</li>" for words in compared.record.items("unlike") if isinstance(words, str)
    )
    return (
        f'<div class="error fair unlike"><p><b>Not the same in all runs:</b></p><ul>{lines}</ul></div>' if lines else ""
    )


def _badge(compared: Comparison) -> str:
    best: Cell | None = compared.best
    if best is None:
        return '<span class="badge bad">nothing measured</span>' if compared.cells else ""
    if best is compared.baseline or not best.verdict:
        return ""
    css = {"faster": "good", "too few runs": "fair"}.get(best.verdict, "none")
    told = f"{factor(best.speedup)} {best.verdict}" if best.verdict == "faster" else best.verdict
    return f'<span class="badge {css}">{esc(told, 40)}</span>'
