"""The page of a suite: what it says, what it escapes, and that it is written whole."""

import copy
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from strobe.bench.harness.declare import Cell, Section, Suite, Table
from strobe.bench.harness.wording import figure
from strobe.bench.page import write_page, write_pictures
from strobe.bench.page.page import draw, render
from strobe.bench.page.shown import shown_of
from strobe.report.html.text import TIMES
from support.files import names
from support.interruptions import full_disk
from support.suite_records import loading, nothing, record_of, suite_of, workers

HOSTILE = "<script>alert(1)</script>&\"'"


def words_of(text: str) -> str:
    """What a reader sees; the page must be well-formed XML for that."""
    (body,) = ET.fromstring(text.replace("&nbsp;", "\u00a0")).iter("body")
    for script in list(body.iter("script")):
        script.text = ""
    return " ".join(" ".join(body.itertext()).replace("\u00a0", " ").split())


def test_every_figure_is_there_with_its_interval_and_ratio() -> None:
    suite, record = loading()
    text = words_of(render(suite, record))
    (shown,) = shown_of(suite, record)
    for cell in record["cells"]:
        value = shown.value(cell)
        assert value is not None
        assert f"{figure(value.median)} {value.interval}" in text
        if ratio := cell["ratio"]:
            told = f"{figure(ratio['median'])}{TIMES} {figure(ratio['low'])} to {figure(ratio['high'])}"
            assert told in text
    assert "how many times as fast as skimage" in text
    assert "Batch size Threads" in text
    assert "Page cache warm." in text
    assert "warm: 100%" in text


def test_the_answer_comes_first_and_then_how_it_was_found() -> None:
    suite, record = loading()
    text = render(suite, record, [Section("What limits <it>", "<p>The <b>lock</b>.</p>")])
    seen = words_of(text)
    order = [
        record["conclusions"][0],
        "What was measured",
        "720 tiles of EuroSAT",
        "AMD EPYC 7B13",
        "Ten batches of tiles",
        "What limits <it> The lock .",
        "How it was measured",
        "then repeats for 500 ms",
        "7 visits to a cell and 42 timed repetitions",
        "Page cache: warm.",
        "48 cells in 8.53 min: 48 measured.",
        record["command"],
        "results.json",
        "results.csv",
        "measurements.pkl",
    ]
    places = [seen.index(said) for said in order]
    assert places == sorted(places)
    assert "0123456789ab+" in seen


def test_generated_input_and_quick_mode_are_plain() -> None:
    suite, record = loading(quick=True, input={"told": "24 photos", "generated": True})
    seen = words_of(render(suite, record))
    assert seen.index("generated input") < seen.index(record["conclusions"][0])
    assert seen.index("quick mode") < seen.index(record["conclusions"][0])
    plain = words_of(render(*loading()))
    assert "generated input" not in plain
    assert "quick mode" not in plain


def test_failed_cells_keep_their_place_and_say_why() -> None:
    suite, record = workers()
    text = render(suite, record)
    seen = words_of(text)
    assert "[1] failed workers 4, SPDL DataError: /data/photos holds <no> photos & no others" in seen
    assert "failed [1]" in seen
    assert "holds &lt;no&gt; photos &amp; no others" in text
    assert seen.count("waiting") == 2  # in the table, and in the count of cells
    assert "27 cells in 8.53 min: 25 measured, 1 failed, 1 waiting." in seen


def test_an_error_of_many_cells_is_told_once() -> None:
    suite, record = loading()
    record = record_of(suite, {cell["name"]: "ConfigError: no such thing" for cell in record["cells"]})
    seen = words_of(render(suite, record))
    assert seen.count("ConfigError: no such thing") == 1
    assert seen.count("failed [1]") == 48
    assert "(48 cells)" in seen
    assert "Nothing was measured." in seen


def test_a_cell_that_failed_after_it_was_measured_shows_both() -> None:
    suite, record = loading()
    record["cells"][0] |= {"status": "failed", "error": "RuntimeError: gone"}
    seen = words_of(render(suite, record))
    (shown,) = shown_of(suite, record)
    value = shown.value(record["cells"][0])
    assert value is not None
    assert f"{value.interval} failed later [1]" in seen
    assert "RuntimeError: gone" in seen


def test_one_visit_tells_no_interval() -> None:
    suite, _ = loading()
    record = record_of(suite, {cell.name: 100.0 for cell in suite.cells}, 1)
    (shown,) = shown_of(suite, record)
    text = render(suite, record)
    assert text.count("<small>one visit</small>") == 48
    assert "1 visit to a cell and 6 timed repetitions" in words_of(text)
    assert "With fewer than 6 visits" in words_of(text)
    assert "Small below a figure" not in words_of(text)
    assert 'class="bar' in "".join(draw(shown).plot)
    assert 'class="whisker' not in text


@pytest.mark.parametrize(
    ("visits", "said"),
    [({2}, "range"), ({5}, "range"), ({6}, "95% interval"), ({2, 7}, "95% interval, or range of fewer than 6 visits")],
)
def test_few_visits_have_a_range(visits: set[int], said: str, tmp_path: Path) -> None:
    suite, record = loading()
    for cell, count in zip(record["cells"], cycle(visits), strict=False):
        cell["visits"] = cell["visits"][:count]
    assert f"Small below a figure: its {said}." in words_of(render(suite, record))
    (picture,) = write_pictures(tmp_path, suite, record)
    assert f" · {said}</text>" in picture.read_text(encoding="utf-8")


def test_many_columns_are_narrow() -> None:
    def written(columns: int) -> str:
        cells = [Cell("t", "8", f"way_{number}", nothing) for number in range(columns)]
        suite = suite_of(cells, [Table("t", "Ways")])
        return render(suite, record_of(suite, {cell.name: 10.0 for cell in cells}))

    assert 'class="cells many"' in written(9)
    assert "way_<wbr/>8" in written(9)
    assert 'class="cells many"' not in written(8)


def test_threads_and_page_cache_are_told_where_they_differ() -> None:
    cells = [Cell("t", "read", "way", nothing, threads, cache) for threads in (1, 2) for cache in ("warm", "cold")]  # type: ignore[arg-type]
    suite = suite_of(cells, [Table("t", "Reading", rows="what")])
    seen = words_of(render(suite, record_of(suite, {cell.name: 10.0 for cell in cells})))
    assert "What Threads Page cache way" in seen
    for said in ("1 thread, warm", "1 thread, cold", "2 threads, warm", "2 threads, cold"):
        assert said in seen  # beside its bar
    (shown,) = shown_of(suite, record_of(suite, {}))
    assert "".join(draw(shown).before).count(">read</text>") == 1  # before the first of its four bars


def test_bars_of_a_column_stand_together() -> None:
    cells = [Cell("t", "32", way, nothing, 1, cache) for cache in ("warm", "cold") for way in "ab"]  # type: ignore[arg-type]
    suite = suite_of(cells, [Table("t", "Reading", rows="size")])
    (shown,) = shown_of(suite, record_of(suite, {}))
    names = re.findall(r">(a|b|1 thread, \w+|warm|cold)</text>", "".join(draw(shown).before))
    assert names == ["a", "warm", "cold", "b", "warm", "cold"]


def test_ratios_to_different_cells_name_them() -> None:
    first, second = Cell("t", "a", "x", nothing), Cell("t", "b", "x", nothing, against="t, a, x, 1 thread")
    third = Cell("t", "c", "x", nothing, against="t, b, x, 1 thread")
    suite = suite_of([first, second, third], [Table("t", "Steps")])
    seen = words_of(render(suite, record_of(suite, {first.name: 10.0, second.name: 20.0, third.name: 60.0})))
    assert re.search(rf"(1\.9|2\.0)\d{TIMES} of a ", seen)
    assert re.search(rf"(2\.9|3\.0)\d{TIMES} of b ", seen)


def test_an_earlier_result_is_held_against_this_one() -> None:
    suite, record = loading()
    assert "earlier result" not in words_of(render(suite, record))
    record["baseline_file"] = "outputs/<old>/results.json"
    record["baseline"] = [
        {"name": "loaders, 1", "ratio": {"median": 1.25, "low": 1.2, "high": 1.31}, "verdict": "faster"},
        {"name": "loaders, 2", "ratio": None, "verdict": "only before"},
    ]
    record["unlike_baseline"] = ["host other, now box"]
    seen = words_of(render(suite, record))
    assert "Not the same in both: host other, now box" in seen
    assert "outputs/<old>/results.json" in seen
    assert "1 faster, 1 only before." in seen
    assert f"loaders, 1 1.25{TIMES} 1.20{TIMES} to 1.31{TIMES} faster" in seen


def test_pictures_of_the_page_are_those_of_the_files() -> None:
    suite, record = workers()
    text = render(suite, record)
    for shown in shown_of(suite, record):
        assert draw(shown).inline() in text


@pytest.mark.parametrize("made", [loading, workers])
def test_nothing_is_fetched(made: Any) -> None:
    text = render(*made())
    tree = ET.fromstring(text.replace("&nbsp;", "\u00a0"))
    assert tree.get("lang") == "en"
    assert not re.search(r"(?:https?:)?//(?!\s)[a-z]", text, re.IGNORECASE)
    assert not re.search(r"@import|url\(", text)
    assert not {"link", "img", "iframe", "object", "embed", "base"} & {element.tag for element in tree.iter()}
    assert all((element.get("href") or "").startswith("./") for element in tree.iter("a"))
    assert "default-src 'none'" in text
    ids = [element.get("id") for element in tree.iter("section")]
    assert len(ids) == len(set(ids))


def hostile() -> tuple[Suite, dict[str, Any]]:
    cells = [Cell(HOSTILE, HOSTILE + row, HOSTILE + column, nothing) for row in "ab" for column in "cd"]
    suite = suite_of(cells, [Table(HOSTILE, HOSTILE, "ms", chart, HOSTILE) for chart in ("bars", "lines")])  # type: ignore[arg-type]
    record = record_of(suite, {cell.name: 10.0 for cell in cells[:3]} | {cells[3].name: HOSTILE})
    record |= {"conclusions": [HOSTILE], "began": HOSTILE, "command": HOSTILE, "about": HOSTILE}
    record |= {"title": HOSTILE, "suite": HOSTILE, "status": HOSTILE, "input": {"told": HOSTILE, "generated": True}}
    record["environment"] = dict.fromkeys(("host", "cpu", "gpu", "git_commit", "usable_cores", "page_cache"), HOSTILE)
    record["environment"]["versions"] = {HOSTILE: HOSTILE}
    record |= {"baseline_file": HOSTILE, "baseline": [{"name": HOSTILE, "ratio": None, "verdict": HOSTILE}]}
    record |= {"unlike_baseline": [HOSTILE]}
    return suite, record


def test_names_with_markup_are_escaped(tmp_path: Path) -> None:
    suite, record = hostile()
    text = render(suite, record, [Section(HOSTILE, "")])
    tree = ET.fromstring(text.replace("&nbsp;", "\u00a0"))
    assert len(list(tree.iter("script"))) == 1
    assert words_of(text).count("alert(1)") > 20
    for path in write_pictures(tmp_path, suite, record):
        assert not list(ET.fromstring(path.read_text(encoding="utf-8")).iter("{http://www.w3.org/2000/svg}script"))


@pytest.mark.parametrize("tables", [[], [Table("t", "Empty")], [Table("t", "Empty", chart="lines", logarithmic=True)]])
def test_a_record_without_cells_gives_a_page(tmp_path: Path, tables: list[Table]) -> None:
    suite = suite_of([], tables)
    record = record_of(suite, {}, conclusions=[], environment={}, input={})
    seen = words_of(write_page(tmp_path, suite, record, []).read_text(encoding="utf-8"))
    assert "Nothing was concluded." in seen
    assert seen.count("This table has no cells.") == len(tables)


@pytest.mark.parametrize("made", [loading, workers])
@pytest.mark.parametrize("outcome", [{}, None])
def test_a_suite_of_which_all_failed_or_waits_gives_a_page(made: Any, outcome: dict[str, str] | None) -> None:
    suite, _ = made()
    rates = {cell.name: "RuntimeError: no" for cell in suite.cells} if outcome is None else outcome
    seen = words_of(render(suite, record_of(suite, rates)))
    assert seen.count("Nothing was measured.") == len(suite.tables)
    assert ("RuntimeError: no" in seen) == (outcome is None)


def test_a_page_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    suite, record = loading()
    write_page(tmp_path, suite, record, [])
    write_pictures(tmp_path, suite, record)
    page, picture = tmp_path / "report.html", tmp_path / "pictures" / "loaders.svg"
    before = page.read_bytes(), picture.read_bytes()
    later = copy.deepcopy(record) | {"title": "Another", "began": "2027-01-01"}
    with full_disk(1000):
        for write in (lambda: write_page(tmp_path, suite, later, []), lambda: write_pictures(tmp_path, suite, later)):
            with pytest.raises(OSError, match="too large"):
                write()
    assert (page.read_bytes(), picture.read_bytes()) == before
    assert names(tmp_path) == ["pictures", "report.html"]
    assert names(tmp_path / "pictures") == ["loaders.svg"]


def test_it_needs_no_torch() -> None:
    code = "import sys, strobe.bench.page; print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", code], text=True, timeout=60).split()
    assert "strobe.bench.page.lines" in loaded
    assert not {"torch", "lightning"} & set(loaded)
