"""``search.html``: what a search tried, what it recommends, and what to type next; one file that works offline."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from strobe.errors import disk_errors
from strobe.overrides import key_of, split
from strobe.present import parts as kit
from strobe.present.format import duration, interval
from strobe.present.format import times as factor
from strobe.present.page import render as rendered
from strobe.present.page import write_whole
from strobe.records.run import Record
from strobe.report.footer import machine, versions
from strobe.tune.record import NAME as RECORD
from strobe.tune.record import Tuning
from strobe.tune.script import without_option
from strobe.tune.search import BUDGET, SHORT
from strobe.tune.table import COLOURS, HEADS, NOISY, ending, first_losses, rows, times, total, undecided, warning
from strobe.tune.writing import first_probe, given, lines

PAGE = "search.html"
LONGER = 3  # times the budget that is offered where it was too short
_CSS = {"green": "good", "red": "bad", "yellow": "fair"}
_PROOF = (
    "A change is kept because it looked faster, which flatters it. So the given and the found configuration train in "
    "turns once more at the end, and only that figure counts."
)


def write_page(tuning: Tuning) -> Path:
    """Write the page beside the record, whole or not at all, and return its path.

    Raises:
        DataError: it cannot be written.
    """
    path, first = tuning.folder / PAGE, first_probe(tuning) or Record({})
    with disk_errors(lambda why: f"{path} cannot be written ({why}); {RECORD} holds all of it"):
        return write_whole(path, render(tuning, first))


def render(tuning: Tuning, first: Record) -> str:
    """The page as HTML; ``first``: the record of the run with the given configuration."""
    header, environment = tuning.header, first.mapping("environment")
    sections = [
        _tried(tuning),
        _next(tuning),
        _found(tuning, first),
        kit.Section("advice", "Also found", "Not part of this search.", [*map(kit.Paragraph, tuning.advice)]),
        _method(tuning, first),
    ]
    lede = " ".join((ending(tuning), warning(tuning), first_losses(tuning))).strip()
    began, device = header["began"][:16].replace("T", " "), environment.get("gpu") or environment.get("cpu")
    page = kit.Page(
        "Search - Strobe",
        ("search", header["host"], device, began),
        total(tuning),
        [kit.Paragraph(lede, "lede"), *kit.tiles(_tiles(tuning))],
        sections,
        "tune.json; works offline.",
        [_badge(tuning)],
        "comparison",
    )
    return rendered(page)


def _badge(tuning: Tuning) -> tuple[str, str]:
    if tuning.status == "interrupted":
        return "fair", "interrupted"
    proved = tuning.proof if tuning.proof and tuning.proof["verdict"] == "faster" else None
    if undecided(tuning):
        return "fair", NOISY
    return ("good", f"{factor(proved['ratio']['median'])} faster") if proved else ("none", "nothing faster")


def _tiles(tuning: Tuning) -> list[kit.Tile]:
    ratio, budget = (tuning.proof or {}).get("ratio"), tuning.header["budget"]
    spread = interval(ratio["low"], ratio["high"], factor) if ratio else ""
    kept = sum(trial["kept"] and not trial.get("left_out") for trial in tuning.trials)
    return [
        *([kit.Tile("Speed-up", factor(ratio["median"]), note=spread)] if ratio else []),
        kit.Tile("Trials", f"{len(tuning.trials)}", note=f"{kept} kept"),
        kit.Tile("Settings measured", f"{tuning.settings}", note="of loader or model alone"),
        kit.Tile("Time", duration(tuning.seconds), note=f"of {duration(budget)}"),
    ]


def _tried(tuning: Tuning) -> kit.Section:
    cells = []
    for trial, (change, why, promised, measured, end) in zip(tuning.trials, rows(tuning), strict=True):
        css = _CSS.get(COLOURS.get(trial["verdict"], "yellow"), "none")
        name, brought = (
            kit.Text(change, "code"),
            kit.Cell(measured, "why") if trial["error"] else _spread_below(measured),
        )
        cells.append((kit.Cell(name, head=True), why, _spread_below(promised), brought, kit.Text(end, "b", css)))
    table = kit.Table(("Change", *(head.capitalize() for head in HEADS)), cells, "cells tried", stacked=True)
    about = (
        "Each change trained in turns with the best so far. Measured: how many times as fast it is, with the interval."
    )
    return kit.Section("tried", "What was tried", about, [table] if cells else [], wide=True)


def _spread_below(text: str) -> kit.Text:
    """``1.42 times (1.31 to 1.55)`` with the interval in small print."""
    middle, _, spread = text.partition(" (")
    return kit.Text(middle, small=[spread.replace(")", "")] * bool(spread))


def _found(tuning: Tuning, first: Record) -> kit.Section:
    """The settings in which the given and the found configuration differ, and the proof."""
    proof = tuning.proof or {"ratio": None, "verdict": "", "error": None}
    heads = ("Setting", "Given", "Recommended" if tuning.recommended == tuning.best else "Found, not recommended")
    ours = tuning.header["script"] is None
    names = [(key, key if ours else key.rpartition(".")[2], value) for key, value in map(split, tuning.changes)]
    values = [(kit.Cell(kit.Text(name, "code"), head=True), _given(first, key), value) for key, name, value in names]
    if proof["ratio"] is None:
        sentence = f"The proof is missing: {proof['error'] or 'the two were not compared at the end'}."
    else:
        unproved = "" if proof["verdict"] == "faster" else f", {proof['verdict']}"
        sentence = f"The proof: {times(proof['ratio'])} as fast{unproved}."
    table = kit.Table(heads, values, "cells", stacked=True)
    parts: list[kit.Part] = [table, kit.Paragraph([kit.Text(sentence, "b"), _PROOF])]
    return kit.Section("found", "Given and found", "", parts if values else [], wide=True)


def _given(first: Record, key: str) -> str:
    """What the run with the given configuration had."""
    value = first.text("choices", key) or first.setting(key)
    return "default" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _next(tuning: Tuning) -> kit.Section:
    """What to type, the most useful first."""
    words = shlex.split(tuning.header["command"])
    if tuning.status == "interrupted":
        return _typed([("Go on with the search", tuning.header["command"])])
    commands = []
    if tuning.changes and tuning.recommended == tuning.best:
        commands.append(("Train faster" if tuning.header["script"] is None else "Write", "\n".join(lines(tuning))))
        if warning(tuning):
            commands.append(("What you gave, to compare the accuracy with", given(tuning)))
    else:
        commands.append(("Keep what you have", given(tuning)))
    if tuning.ended in (BUDGET, SHORT):
        longer = f"{LONGER * tuning.header['budget']:.0f}s"
        if tuning.header["script"] is None:
            kept = [word for word in words if key_of(word) not in ("tune.budget", "hydra.run.dir")]
            again = shlex.join([*kept, f"tune.budget={longer}"])
        else:
            again = shlex.join([*words[:2], "--budget", longer, *without_option(words[2:], "--budget")])
        commands.append(("Search for longer, for what there was no time to try", again))
    return _typed(commands)


def _typed(commands: Sequence[tuple[str, str]]) -> kit.Section:
    return kit.Section(
        "next", "What to type next", "", [kit.Command(text, title) for title, text in commands], wide=True
    )


def _method(tuning: Tuning, first: Record) -> kit.Section:
    environment = first.mapping("environment")
    reports = [f"{probe['directory']}/report.html" for probe in tuning.probes]
    files = [kit.link(RECORD, RECORD, "everything, for programs")]
    files += [kit.link(path, f"report {number}", "a run of its own") for number, path in enumerate(reports, 1)]
    pairs = machine(environment, [environment.get("gpu") or "none"] * bool(environment))
    parts = [
        kit.Paragraph(
            "The machine's speed drifts, so two configurations train in turns of about a second, in random order, and "
            "their speeds are compared pair by pair. Only training steps count: no validation, no checkpoints."
        ),
        *kit.facts([*pairs, *versions(environment)]),
        kit.Command(tuning.header["command"], "This search"),
        kit.Files(files, "figures-files"),
    ]
    return kit.Section("method", "How it was measured", "And the files beside this page.", parts)
