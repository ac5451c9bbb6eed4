"""The page and the pictures of a suite: what they say of its cells."""

import itertools
import re
from pathlib import Path
from typing import Any

import pytest

from strobe.bench.harness.declare import Cell, Section, Suite, Table
from strobe.bench.page import render, write_page, write_pictures
from strobe.bench.shown import Shown, shown_of
from strobe.present.charts.lines import SERIES
from strobe.present.format import TIMES, figure
from strobe.present.parts import Paragraph
from strobe.present.parts import Table as Rows
from support.files import names
from support.pages import Page, numbers, of_class, words_of
from support.suite_records import hostile, loading, nothing, record_of, suite_of, workers


def seen(suite: Suite, record: dict[str, Any], *sections: Section) -> str:
    return Page(render(suite, record, sections)).text


def only(suite: Suite, record: dict[str, Any]) -> Shown:
    (shown,) = shown_of(suite, record)
    return shown


def test_every_figure_is_there_with_its_interval_and_ratio() -> None:
    suite, record = loading()
    text, shown = seen(suite, record), only(suite, record)
    for cell in record["cells"]:
        value = shown.value(cell)
        assert value is not None
        assert f"{figure(value.median)} {value.interval}" in text
        if ratio := cell["ratio"]:
            assert f"{figure(ratio['median'])}{TIMES} {figure(ratio['low'])} to {figure(ratio['high'])}" in text
    assert "how many times as fast as skimage" in text
    assert "Batch size Threads" in text
    assert "Page cache warm." in text
    assert "warm: 100%" in text


def test_the_answer_comes_first_and_then_how_it_was_found() -> None:
    suite, record = loading()
    record["conclusions"] += ["Second.", "Third."]
    section = Section("What limits <it>", [Paragraph("The <lock>."), Rows(("Part", "#Share"), [("lock", "40%")])])
    text = seen(suite, record, section)
    order = [
        "6.2 times as fast",
        "Second.",
        "Ten batches of tiles",
        "What limits <it> The <lock>. Part Share lock 40%",
        "What else follows Third.",
        "What was measured",
        "720 tiles of EuroSAT",
        "AMD EPYC 7B13",
        "How it was measured",
        "then repeats for 500 ms",
        "7 trials a cell and 42 timed repetitions",
        "Page cache: warm.",
        "48 cells in 8.53 min: 48 measured.",
        record["command"],
        "results.json",
        "results.csv",
        "measurements.pkl",
    ]
    places = [text.index(said) for said in order]
    assert places == sorted(places)
    assert "0123456789ab+" in text


def test_generated_input_and_quick_mode_are_plain() -> None:
    suite, record = loading(quick=True, input={"told": "24 photos", "generated": True})
    text, plain = seen(suite, record), seen(*loading())
    for said in ("generated input", "quick mode"):
        assert text.index(said) < text.index(record["conclusions"][0])
        assert said not in plain


def test_failed_cells_keep_their_place_and_say_why() -> None:
    text = seen(*workers())
    assert "[1] failed workers 4, SPDL DataError: /data/photos holds <no> photos & no others" in text
    assert "failed [1]" in text
    assert text.count("waiting") == 2  # in the table, and in the count of cells
    assert "27 cells in 8.53 min: 25 measured, 1 failed, 1 waiting." in text
    suite, record = loading()
    value = only(suite, record).value(record["cells"][0])
    record["cells"][0] |= {"status": "failed", "error": "RuntimeError: gone"}  # after it was measured
    assert value is not None
    assert f"{value.interval} failed later [1]" in seen(suite, record)


@pytest.mark.parametrize("made", [loading, workers])
@pytest.mark.parametrize("fails", [False, True])
def test_a_suite_of_which_all_failed_or_waits_gives_a_page(made: Any, fails: bool) -> None:
    suite, _ = made()
    text = seen(suite, record_of(suite, {cell.name: "RuntimeError: no" for cell in suite.cells if fails}))
    assert text.count("Nothing was measured.") == len(suite.tables)
    assert text.count("RuntimeError: no") == fails * len(suite.tables)  # however many cells it ended
    assert text.count("failed [1]") == fails * len(suite.cells)
    assert not fails or "cells)" in text


def test_one_trial_tells_no_interval() -> None:
    suite, _ = loading()
    page = Page(render(suite, record_of(suite, {cell.name: 100.0 for cell in suite.cells}, 1)))
    assert page.text.count("one trial") == 48 * 2  # in the table, and when a bar is pointed at
    assert "1 trial a cell and 6 timed repetitions" in page.text
    assert "With fewer than 6 trials" in page.text
    assert "Below a figure" not in page.text
    assert page.has("bar")
    assert not page.has("whisker")


@pytest.mark.parametrize(
    ("trials", "said"),
    [({2}, "range"), ({5}, "range"), ({6}, "95% interval"), ({2, 7}, "95% interval, or range of fewer than 6 trials")],
)
def test_few_trials_have_a_range(trials: set[int], said: str, tmp_path: Path) -> None:
    suite, record = loading()
    for cell, count in zip(record["cells"], itertools.cycle(trials), strict=False):
        cell["visits"] = cell["visits"][:count]
    assert f"Below a figure: its {said}." in seen(suite, record)
    (picture,) = write_pictures(tmp_path, suite, record)
    assert f" · {said}</text>" in picture.read_text(encoding="utf-8")


@pytest.mark.parametrize("columns", [6, SERIES + 1])
def test_many_columns_are_narrow_and_those_beyond_the_colours_are_broken_lines(columns: int) -> None:
    cells = [Cell("t", row, f"way_{number}", nothing) for row in "ab" for number in range(columns)]
    suite = suite_of(cells, [Table("t", "Ways", chart="lines")])
    page = Page(render(suite, record_of(suite, {cell.name: 10.0 for cell in cells})))
    assert page.has("cells", "many") == (columns > 6)
    assert "way_<wbr/>5" in page.source
    found = [len(of_class(page.section("table-t"), "series", css)) for css in ("s1", "again")]
    assert found == [1 + (columns > SERIES), int(columns > SERIES)]


def test_threads_and_page_cache_are_told_where_they_differ() -> None:
    variants = itertools.product((1, 2), ("warm", "cold"), "ab")
    cells = [Cell("t", "read", way, nothing, threads, cache) for threads, cache, way in variants]
    suite = suite_of(cells, [Table("t", "Reading", rows="what")])
    text = seen(suite, record_of(suite, {cell.name: 10.0 for cell in cells}))
    assert "What Threads Page cache a b" in text
    for said in ("1 thread, warm", "1 thread, cold", "2 threads, warm", "2 threads, cold"):
        assert said in text  # beside its bar
    before = "".join(only(suite, record_of(suite, {})).picture().before)
    found = re.findall(r">(Read|a|b|1 thread, cold)</text>", before)
    assert found == ["Read", "a", "1 thread, cold", "b", "1 thread, cold"]


def test_ratios_to_different_cells_name_them() -> None:
    first, second = Cell("t", "a", "x", nothing), Cell("t", "b", "x", nothing, against="t, a, x, 1 thread")
    third = Cell("t", "c", "x", nothing, against="t, b, x, 1 thread")
    suite = suite_of([first, second, third], [Table("t", "Steps")])
    text = seen(suite, record_of(suite, {first.name: 10.0, second.name: 20.0, third.name: 60.0}))
    assert re.search(rf"(1\.9|2\.0)\d{TIMES} of a ", text)
    assert re.search(rf"(2\.9|3\.0)\d{TIMES} of b ", text)


def test_an_earlier_result_is_held_against_this_one() -> None:
    suite, record = loading()
    assert "earlier result" not in seen(suite, record)
    record |= {
        "baseline_file": "outputs/<old>/results.json",
        "baseline": [
            {"name": "loaders, 1", "ratio": {"median": 1.25, "low": 1.2, "high": 1.31}, "verdict": "faster"},
            {"name": "loaders, 2", "ratio": None, "verdict": "only before"},
        ],
        "unlike_baseline": ["host other, now box"],
    }
    text = seen(suite, record)
    assert "Not the same in both: host other, now box" in text
    assert "outputs/<old>/results.json" in text
    assert "1 faster, 1 only before." in text
    assert f"loaders, 1 1.25{TIMES} 1.20{TIMES} to 1.31{TIMES} faster" in text


@pytest.mark.parametrize("made", [loading, workers, hostile])
def test_pictures_of_the_page_are_those_of_the_files(tmp_path: Path, made: Any) -> None:
    suite, record = made()
    text, tables = render(suite, record), shown_of(suite, record)
    paths = write_pictures(tmp_path, suite, record)
    for path, shown in zip(paths, tables, strict=True):
        picture = path.read_text(encoding="utf-8")
        assert shown.picture().inline() in text
        assert "".join(shown.picture().plot) in picture
        assert "<script" not in picture


def test_bars_and_points_have_the_lengths_and_places_of_their_values() -> None:
    suite, record = loading()
    shown = only(suite, record)
    page = Page(render(suite, record))
    assert len(of_class(page.tree, "bar")) == 48
    groups = [words_of(text) for text in of_class(page.tree, "group")]
    assert groups == [f"Batch size {size}" for size in (1, 32, 64, 1024)]
    suite, record = workers()
    over, stages = shown_of(suite, record)
    plot = Page(render(suite, record)).section("table-throughput")
    assert len(of_class(plot, "point")) == len(of_class(plot, "interval")) == 22
    assert len(of_class(plot, "series")) == 5  # SPDL's in two parts
    native = [numbers(point, "cy")[0] for point in of_class(plot, "point", over.css(over.cells[3]))]
    assert native == sorted(native, reverse=True)
    assert {stages.css(cell) for cell in stages.cells} == {over.css(over.cells[3])}  # a column has one colour
    assert len({over.css(cell) for cell in over.cells}) == 4
    assert shown.rows == ["1", "32", "64", "1024"]


def test_rows_without_a_place_stand_one_after_the_other() -> None:
    cells = [Cell("t", row, "way", nothing) for row in ("first", "second", "third")]
    suite = suite_of(cells, [Table("t", "Stages", chart="lines", rows="stage")])
    plot = Page(render(suite, record_of(suite, {cell.name: 100.0 for cell in cells}))).section("table-t")
    first, second, third = (numbers(point, "cx")[0] for point in of_class(plot, "point"))
    assert second - first == pytest.approx(third - second)
    assert "first second third stage" in words_of(plot)


@pytest.mark.parametrize("tables", [[], [Table("t", "Empty")], [Table("t", "Empty", chart="lines", logarithmic=True)]])
def test_a_record_without_cells_gives_a_page(tmp_path: Path, tables: list[Table]) -> None:
    suite = suite_of([], tables)
    record = record_of(suite, {}, conclusions=[], environment={})
    text = Page(write_page(tmp_path, suite, record, []).read_text(encoding="utf-8")).text
    assert "Nothing was concluded." in text
    assert text.count("This table has no cells.") == len(tables)
    assert names(tmp_path) == ["report.html"]
