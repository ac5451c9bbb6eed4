"""``comparison.html``: what it says of 2, 24 and 200 cells, what it links, what it lives without."""

import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from strobe.compare.gather import Request, gather
from strobe.compare.page import render
from strobe.compare.shown import comparison_of
from strobe.present.format import TIMES, figure
from strobe.records.files import write_summary
from strobe.records.run import read_summary
from support.comparisons import ERROR, comparison, without
from support.pages import WRONG, Page, numbers, of_class, words_of
from support.recorded import damages
from support.run_folders import write_run

SIZES = (2, 24, 200)
ALWAYS = ["cells", "speedup", "phases", "operators", "method"]


def page_of(record: dict[str, Any]) -> Page:
    return Page(render(record))


@pytest.mark.parametrize("count", SIZES)
def test_every_cell_is_a_row_with_its_figures_and_links(count: int) -> None:
    record = comparison(count)
    page = page_of(record)
    rows = page.rows("cells")
    assert len(rows) == count
    for row, cell in zip(rows, record["cells"], strict=True):
        told = words_of(row)
        assert cell["name"] in told
        assert all(value in told for value in cell["overrides"].values())
        if value := cell["images_per_second"]:
            assert f"{figure(value['low'])} to {figure(value['high'])}" in told
            assert cell["verdict"] in told
            assert ("one run" in told) == (len(cell["runs"]) == 1)
        else:
            assert "failed [1] torch.OutOfMemoryError" in told
        links = [link.get("href") for link in row.iter("a")]
        assert len(links) == (len(cell["runs"]) if cell["images_per_second"] else 0)
        assert all(re.fullmatch(r"\./\d+-[^/]+/report\.html", link or "") for link in links)
    assert [row.get("class") for row in rows].count("best") == 1
    assert all(told in page.text for told in ("box", "AMD EPYC", "torch"))  # the machine
    sections = [*ALWAYS, *(["batch", "workers"] if count > 2 else []), *(["devices"] if count > 24 else [])]
    assert {*page.sections} == {*sections}
    assert (page.sections[0], page.sections[-1]) == ("cells", "method")
    if failed := sum(1 for cell in record["cells"] if cell["error"]):  # told once
        assert page.text.count(ERROR.splitlines()[1]) == 1
        assert f"({failed} cells)" in page.text


@pytest.mark.parametrize(
    ("path", "gone"),
    [
        (("values", "batch_size"), {"batch"}),
        (("values", "num_workers"), {"workers"}),
        (("values", "accelerator"), {"devices"}),
        (("step_seconds",), {"phases"}),
        (("speedup",), {"speedup"}),
        (("images_per_second",), {"batch", "workers", "devices", "phases", "speedup"}),
    ],
)
def test_a_section_without_figures_is_left_out(path: tuple[str, ...], gone: set[str]) -> None:
    every = {*ALWAYS, "batch", "workers", "devices"}
    assert every - {*page_of(without(comparison(200), *path)).sections} == gone


GAIN = f"{comparison(2)['cells'][0]['speedup']['median']:.2f}{TIMES}"
WIDE = {"median": 9.0, "low": 2.5, "high": 40.0}
LONE = {"cells": comparison(2)["cells"][:1]}
LOOKS = f"native looks {GAIN} as fast as the baseline, rasterio, but these runs cannot tell."


@pytest.mark.parametrize(
    ("changes", "best", "said", "unsaid"),
    [
        ({}, {}, f"native is the fastest: {GAIN} as fast as the baseline, rasterio.", "cannot tell"),
        ({}, {"verdict": "no difference"}, LOOKS, "is the fastest"),
        ({}, {"verdict": "too few runs"}, LOOKS, "is the fastest"),
        ({}, {"fastest": None, "speedup": None}, "native has the highest rate: ", "native is the fastest"),
        ({}, {"fastest": None, "speedup": None}, "but these runs cannot tell whether it is the fastest.", "may be"),
        (
            LONE,
            {"fastest": None, "speedup": None},
            "Only one cell, native, was measured, so there is nothing to compare it with: ",
            "ighest",
        ),
        (LONE | {"baseline": None, "against": "old"}, {"fastest": None}, f"native is {GAIN} as fast as the", "ighest"),
        ({}, {"speedup": WIDE}, "at least 2.50\u00d7 as fast", "9.00\u00d7 as fast"),
        ({}, {"best": False}, "measured: 2 cells completed without a measured step; train longer.", "as fast"),
        ({"baseline": "loader=native"}, {}, "The baseline, native, is the fastest:", "as fast as"),
        ({"baseline": None}, {}, "native is the fastest: ", "as fast as"),
        ({"baseline": None, "against": "sweeps/old"}, {}, "as fast as the same cell in sweeps/old.", "the baseline"),
    ],
)
def test_the_verdict_comes_first_and_is_no_surer_than_the_record(
    changes: dict[str, Any], best: dict[str, Any], said: str, unsaid: str
) -> None:
    record = deepcopy(comparison(2) | changes)
    record["cells"][0] |= best
    seen = page_of(record).text.partition("All cells")[0]
    assert said in seen
    assert unsaid not in seen


@pytest.mark.parametrize("verdict", ["faster", "no difference", "too few runs"])
def test_the_tile_has_a_speed_up_only_where_it_is_none_by_chance(verdict: str) -> None:
    record = comparison(2)
    record["cells"][0]["verdict"] = verdict
    tiles = of_class(page_of(record).tree, "figures")[0]
    (tile,) = (found for found in tiles if "Against" in words_of(found))
    assert (GAIN in words_of(tile)) == (verdict == "faster")
    assert verdict == "faster" or verdict in words_of(tile)


def test_cells_of_which_none_completed_are_counted_by_how_they_ended() -> None:
    record = comparison(2)
    record["cells"] = [
        cell | {"best": False, "status": status}
        for cell, status in zip(record["cells"] + record["cells"][:1], ("failed", "interrupted", "failed"), strict=True)
    ]
    assert "No cell completed: 2 failed, 1 interrupted." in page_of(record).text


def test_warnings_and_regressions_are_told_at_the_top() -> None:
    record = comparison(24) | {
        "unlike": ["The hosts differ: a, b"],
        "notes": ["3 cells have too few runs for a verdict"],
        "regression": {"limit": 0.05, "cells": [f"cell {number}" for number in range(9)]},
    }
    top = page_of(record).text.partition("All cells")[0]
    assert "Not the same in all runs: The hosts differ: a, b" in top
    assert "3 cells have too few runs for a verdict." in top
    assert "9 cells are slower than the baseline by more than 5%, or failed: cell 0 , cell 1" in top
    assert "and 3 more" in top
    record["regression"]["cells"] = []
    for told in ("passed: 23 cells are shown to keep more", "cannot tell: cell 1 is 0.9 times as fast"):
        record["regression"]["text"] = told
        assert f"{told}." in page_of(record).text


def test_no_link_leads_elsewhere() -> None:
    record, links = comparison(2, repeats=1), []
    for path in ("/etc/passwd", "javascript:alert(1)", "../other run/report.html"):
        record["cells"][0]["runs"][0]["report"] = path
        links.append([link.get("href") for link in page_of(record).rows("cells")[0].iter("a")])
    assert links == [[], ["./javascript%3Aalert%281%29"], ["./../other%20run/report.html"]]


def test_lines_join_the_cells_that_are_alike_in_all_else() -> None:
    record = comparison(24, failing=100)
    batch, workers = (page_of(record).section(name) for name in ("batch", "workers"))
    drawn = of_class(batch, "series")
    assert len(drawn) == 6  # three loaders with two numbers of workers
    assert all((way.get("d") or "").count("L") == 3 for way in drawn)  # four batch sizes
    assert len(of_class(batch, "point")) == len(of_class(batch, "interval"))
    assert len(of_class(batch, "knee")) == 6
    assert len(of_class(workers, "series")) == 12
    gone = next(
        cell for cell in record["cells"] if cell["name"] == "loader=native data.batch_size=64 engine.num_workers=2"
    )
    gone["images_per_second"] = None
    torn = page_of(record).section("batch")
    assert len(of_class(torn, "point")) == len(of_class(batch, "point")) - 1
    assert len([way for way in of_class(torn, "series") if (way.get("d") or "").count("L") == 1]) == 1


def test_many_lines_are_spread_over_panels_or_thinned_out() -> None:
    record = comparison(200, failing=1000)
    found = page_of(record).section("batch")
    assert [element.text for element in found.iter("h3")] == ["4 workers", "2 workers", "1 worker", "0 workers"]
    assert len(of_class(found, "series")) == 40
    for cell in record["cells"]:
        cell["overrides"]["all"] = " ".join(
            cell["overrides"].pop(key) for key in ("loader", "engine.num_workers", "trainer")
        )
    page = page_of(record | {"keys": ["data.batch_size", "all"]})
    assert len(of_class(page.section("batch"), "series")) == 8
    assert "8 of 40 lines: the highest, the lowest, and some evenly between." in page.text


@pytest.mark.parametrize(("count", "speedups", "phases"), [(2, 1, 2), (24, 18, 22), (200, 30, 24)])
def test_long_pictures_are_cut_and_say_so(count: int, speedups: int, phases: int) -> None:
    page = page_of(comparison(count))
    shown = [[one for one in of_class(page.section(name), "who") if words_of(one)] for name in ("speedup", "phases")]
    assert [len(found) for found in shown] == [speedups, phases]
    assert page.text.count("the table holds all of them") == (2 if count == 200 else 0)
    if count == 200:  # the baseline is shown even from the middle
        record = comparison(count)
        compared = comparison_of(record | {"baseline": record["cells"][90]["name"]})
        chosen, told = compared.chosen(compared.measured, 24)
        assert (compared.baseline in chosen, len(chosen), "the baseline" in told) == (True, 25, True)


@pytest.mark.parametrize(
    ("units", "rates", "each"),
    [
        ((None, None), "images/s", "an image"),
        (("samples", "samples"), "samples/s", "a sample"),
        (("steps", "images"), "images/s or steps/s", "an image or a step"),
    ],
)
def test_rates_are_called_what_they_count(units: tuple[str | None, ...], rates: str, each: str) -> None:
    record = comparison(2) | {"baseline": None, "operators": None}
    for cell, unit in zip(record["cells"], units, strict=True):
        cell |= {"unit": unit, "speedup": None}
    text = page_of(record).text
    caption = rates.capitalize()
    for said in (f" {rates}. Highest", f"Highest {rates} ", f"{caption} ", f"ms {each}", f"What {each} costs"):
        assert said in text, said
    assert "an image" in each or "image" not in text


def test_where_rows_are_stacked_each_figure_has_its_heading_beside_it() -> None:
    record = comparison(24)
    page = page_of(record)
    heads = ["".join(head.itertext()) for head in page.section("cells").iter("th") if head.get("scope") == "col"]
    for row, cell in zip(page.rows("cells"), record["cells"], strict=True):
        labels = [one.get("data-label", "") for one in row]
        assert labels[0] == ""
        if cell["images_per_second"]:
            assert len(labels) == len(heads)
            assert all(label in head for label, head in zip(labels[1:], heads[1:], strict=True))
        assert {"loader", "batch_size", "Reports"} <= {*labels}


def test_a_verdict_has_a_shape_and_a_word_besides_its_colour() -> None:
    record = comparison(24, single=1000, failing=1000)
    for number, verdict in enumerate(("faster", "slower", "no difference", "too few runs")):
        record["cells"][number]["verdict"] = verdict
    found = page_of(record).section("speedup")
    assert len({sign.get("d") for sign in of_class(found, "sign")}) == 4
    told = {words_of(one) for one in of_class(found, "verdict")}
    assert told == {"\u25b2 faster", "\u25bc slower", "= no difference", "? too few runs"}
    assert sum("\u25c6 baseline" in words_of(row) for row in page_of(record).rows("cells")) == 1


def test_an_interval_that_is_too_wide_to_tell_is_said_and_not_drawn() -> None:
    record = comparison(24, single=1000, failing=1000)
    whole = page_of(record)
    rates = [cell["images_per_second"]["median"] for cell in record["cells"]]
    record["cells"][5]["images_per_second"] |= {"low": 1e-3, "high": 1e6}
    record["cells"][5]["speedup"] |= {"low": 1e-3, "high": 1e4}
    record["cells"][5]["verdict"] = "no difference"
    page = page_of(record)
    bars = [numbers(bar, "width")[0] for row in page.rows("cells") for bar in of_class(row, "bar")]
    assert [bar / bars[0] for bar in bars] == [pytest.approx(rate / rates[0], abs=1e-3) for rate in rates]
    assert bars[0] > 70
    for name in ("batch", "workers"):
        drawn, before = (len(of_class(each.section(name), "interval")) for each in (page, whole))
        assert (drawn, len(of_class(page.section(name), "point"))) == (before - 1, before)
        assert "Without a bar: 1 point whose interval is too wide to tell." in words_of(page.section(name))
    assert "Not drawn: 1 cell whose runs are too few" in words_of(page.section("speedup"))
    assert len(of_class(page.section("speedup"), "sign")) == len(of_class(whole.section("speedup"), "sign")) - 1


@pytest.mark.parametrize(("width", "why"), [(1.5, "all intervals include 1"), (3.0, "they are too few, or differ")])
def test_runs_that_cannot_tell_get_a_sentence_in_place_of_a_forest(width: float, why: str) -> None:
    record = comparison(24)
    for value in (cell[key] for cell in record["cells"] for key in ("images_per_second", "speedup") if cell[key]):
        value |= {"low": value["median"] / width, "high": value["median"] * width}
    for cell in record["cells"]:
        cell["verdict"] = cell["verdict"] if cell["verdict"] == "baseline" else "no difference"
    page = page_of(record)
    told = words_of(page.section("speedup"))
    assert f"These runs cannot tell 21 cells from the baseline, rasterio, batch 32, 0 workers: {why}" in told
    assert not of_class(page.section("speedup"), "rate")
    assert ("batch" in page.sections) == ("= no difference" in page.text) == (width < 2)
    assert ("? cannot tell" in page.text) == (width > 2)


def test_phases_add_up_to_what_an_image_costs() -> None:
    record = comparison(24)
    measured = comparison_of(record).measured
    for cell in measured:
        given = cell.record.summary
        per_image = (given["step_seconds"]["total"] + given["between_seconds"]) / given["images_per_step"]
        assert sum(cell.phases.values()) == pytest.approx(per_image)
    found = page_of(record).section("phases")
    assert len(of_class(found, "fill")) == sum(len(cell.phases) for cell in measured)
    assert len(next(found.iter("tbody"))) == 22
    assert not list(found.iter("h3"))
    assert len(list(page_of(comparison(200)).section("phases").iter("h3"))) == 2  # fast and slow: an axis each


def test_cpu_and_gpu_are_paired() -> None:
    record = comparison(200, failing=1000)
    page = page_of(record)
    assert len(page.rows("devices")) == 24
    assert "On NVIDIA H200 it trains" in page.text
    assert "in the median of 100 pairs." in page.text
    assert "and 76 more pairs" in page.text
    pairs: dict[str, dict[str, float]] = {}
    for cell in record["cells"]:
        name = cell["name"].replace("trainer=gpu", "").replace("trainer=cpu", "")
        pairs.setdefault(name, {})[cell["values"]["accelerator"]] = cell["images_per_second"]["median"]
    most = max(pair["cuda"] / pair["cpu"] for pair in pairs.values())
    assert f"{most:.2f}{TIMES} as fast as on the CPU" in page.text


def test_operators_show_before_and_after() -> None:
    record = comparison(2)
    record["operators"]["rows"] = [
        {"name": "aten::<add>", "before_us": 900.0, "after_us": 100.0, "change_us": -800.0},
        {"name": "native::decode", "before_us": 0.0, "after_us": 12.0, "change_us": 12.0},
    ]
    page = page_of(record)
    told = [words_of(row) for row in page.rows("operators")]
    assert told == ["aten::<add> 900 µs 100 µs \u2212800 µs", "native::decode none 12 µs +12 µs"]
    assert "before: loader=rasterio" in page.text


@pytest.mark.parametrize("turn", [0, pytest.param(3, marks=pytest.mark.slow)])
def test_whatever_a_run_lacks_or_has_wrong_it_is_compared_and_shown(turn: int, tmp_path: Path) -> None:
    runs = [write_run(tmp_path / loader, [f"loader={loader}"]) for loader in ("native", "pil")]
    summary = read_summary(runs[1] / "summary.json")
    for place in damages(summary, WRONG, turn):
        write_summary(runs[1] / "summary.json", summary)
        page = page_of(gather(Request(runs, tmp_path, "strobe compare")))
        assert page.sections[-1] == "method", place
        assert not re.search(r"\b(nan|inf)\b", page.text), place


def test_it_is_a_pure_function_of_the_record() -> None:
    record, before = comparison(24), comparison(24)
    assert render(record) == render(before)
    assert record == before == comparison(24)
