"""``comparison.html``: what it says of 2, 24 and 200 cells, what it escapes, what it links, what it lives without."""

import copy
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from strobe.compare.page import render, write_comparison
from strobe.compare.page.cells import comparison_of
from strobe.compare.page.rows import around_one
from strobe.report.html.text import TIMES, rate
from support.comparisons import ERROR, HOSTILE, comparison, hostile, without
from support.files import names
from support.interruptions import full_disk

SIZES = (2, 24, 200)
ALWAYS = ["cells", "speedup", "phases", "operators", "method"]
WRONG = (None, "text", -1, [], {}, True, float("nan"))


def parsed(text: str) -> ET.Element:
    """The page must be well-formed XML, and its drawings with it."""
    return ET.fromstring(text.replace("&nbsp;", "\u00a0"))


def words_of(text: str) -> str:
    """What a reader sees."""
    (body,) = parsed(text).iter("body")
    for script in list(body.iter("script")):
        script.text = ""
    return " ".join(" ".join(body.itertext()).replace("\u00a0", " ").split())


def sections(text: str) -> list[str]:
    return [element.get("id", "") for element in parsed(text).iter("section")]


def section(text: str, name: str) -> ET.Element:
    (found,) = (element for element in parsed(text).iter("section") if element.get("id") == name)
    return found


def rows(text: str) -> list[ET.Element]:
    """Of the table of all cells."""
    (body,) = section(text, "cells").iter("tbody")
    return list(body)


def of_class(element: ET.Element, *css: str) -> Iterator[ET.Element]:
    return (one for one in element.iter() if {*css} <= set((one.get("class") or "").split()))


@pytest.mark.parametrize("count", SIZES)
def test_every_cell_is_a_row_with_its_figures(count: int) -> None:
    record = comparison(count)
    found = rows(render(record))
    assert len(found) == count
    for row, cell in zip(found, record["cells"], strict=True):
        told = " ".join(" ".join(row.itertext()).replace("\u00a0", " ").split())
        assert cell["name"] in told
        assert all(value in told for value in cell["overrides"].values())
        if value := cell["images_per_second"]:
            assert f"{rate(value['low'])} to {rate(value['high'])}" in told
            assert cell["verdict"] in told
            assert ("one run" in told) == (len(cell["runs"]) == 1)
        else:
            assert "failed [1] torch.OutOfMemoryError" in told
    assert len(list(of_class(parsed(render(record)), "best"))) == 1


@pytest.mark.parametrize(
    ("count", "more"), [(2, []), (24, ["batch", "workers", "memory"]), (200, ["batch", "workers", "memory", "devices"])]
)
def test_what_there_is_to_show_has_a_section(count: int, more: list[str]) -> None:
    found = sections(render(comparison(count)))
    assert sorted(found) == sorted([*ALWAYS, *more])
    assert found[0] == "cells"
    assert found[-1] == "method"


@pytest.mark.parametrize(
    ("path", "gone"),
    [
        (("values", "batch_size"), {"batch", "memory"}),
        (("values", "num_workers"), {"workers"}),
        (("values", "accelerator"), {"devices"}),
        (("step_seconds",), {"phases"}),
        (("memory",), {"memory"}),
        (("speedup",), {"speedup"}),
        (("images_per_second",), {"batch", "workers", "memory", "devices", "phases", "speedup"}),
    ],
)
def test_a_section_without_figures_is_left_out(path: tuple[str, ...], gone: set[str]) -> None:
    record = comparison(200)
    assert set(sections(render(record))) - set(sections(render(without(record, *path)))) == gone


@pytest.mark.parametrize(
    "key", ["operators", "knees", "unlike", "baseline", "regression", "environment", "made", "title"]
)
def test_a_null_in_the_record_costs_only_its_own_part(key: str) -> None:
    record = comparison(24)
    text = render(record | {key: None})
    assert len(rows(text)) == 24
    assert set(sections(render(record))) - set(sections(text)) == ({"operators"} if key == "operators" else set())


def test_the_verdict_comes_first() -> None:
    record = comparison(2)
    best = record["cells"][0]
    low, high = best["speedup"]["low"], best["speedup"]["high"]
    said = f"loader=native is the fastest: {best['speedup']['median']:.2f} times ({low:.2f} to {high:.2f}) as fast as"
    seen = words_of(render(record))
    assert f"{said} the baseline, loader=rasterio." in seen
    assert seen.index(said) < seen.index("All cells")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"verdict": "no difference"}, "loader=native has the highest rate"),
        ({"verdict": "too few runs"}, "loader=native is the fastest so far"),
        ({"speedup": None}, "loader=native is the fastest: "),
        ({"best": False}, "Nothing was measured: 2 cells completed without a measured step; train longer."),
    ],
)
def test_the_verdict_is_no_surer_than_the_record(changes: dict[str, Any], said: str) -> None:
    record = comparison(2)
    record["cells"][0] |= changes
    assert said in words_of(render(record))
    assert "times (" not in words_of(render(record))


def test_the_baseline_may_be_the_fastest_or_lie_elsewhere() -> None:
    record = comparison(2)
    name = record["cells"][0]["name"]
    assert f"The baseline, {name}, is the fastest:" in words_of(render(record | {"baseline": name}))
    elsewhere = words_of(render(record | {"baseline": None, "against": "outputs/sweeps/old"}))
    assert "as fast as the same cell in outputs/sweeps/old." in elsewhere
    alone = words_of(render(record | {"baseline": None}))
    assert "loader=native is the fastest: " in alone
    assert "as fast as" not in alone.partition("All cells")[0]


def test_warnings_and_regressions_are_told_at_the_top() -> None:
    record = comparison(24) | {
        "unlike": ["The hosts differ: a, b"],
        "notes": ["3 cells have too few runs for a verdict"],
        "regression": {"limit": 0.05, "cells": [f"cell {number}" for number in range(9)]},
    }
    top = words_of(render(record)).partition("All cells")[0]
    assert "Not the same in all runs: The hosts differ: a, b" in top
    assert "3 cells have too few runs for a verdict." in top
    assert "9 cells are slower than the baseline by more than 5%, or failed: cell 0 , cell 1" in top
    assert "and 3 more" in top
    record["regression"]["cells"] = []
    for told in ("passed: 23 cells are shown to keep more", "cannot tell: cell 1 is 0.9 times as fast"):
        record["regression"]["text"] = told
        assert f"{told}." in words_of(render(record))


def test_an_error_of_many_cells_is_told_once() -> None:
    record = comparison(200)
    failed = sum(1 for cell in record["cells"] if cell["error"])
    assert failed > 10
    seen = words_of(render(record))
    assert seen.count(ERROR.splitlines()[1]) == 1
    assert f"({failed} cells)" in seen


@pytest.mark.parametrize("count", SIZES)
def test_links_lead_to_the_runs_reports(count: int) -> None:
    record = comparison(count)
    for row, cell in zip(rows(render(record)), record["cells"], strict=True):
        links = [link.get("href") for link in row.iter("a")]
        assert len(links) == (len(cell["runs"]) if cell["images_per_second"] else 0)
        assert all(re.fullmatch(r"\./\d+-[^/]+/report\.html", link or "") for link in links)


def test_no_link_leads_elsewhere() -> None:
    record = comparison(2, repeats=1)
    paths = ["/etc/passwd", "javascript:alert(1)", "../other run/report.html"]
    links = []
    for path in paths:
        record["cells"][0]["runs"][0]["report"] = path
        links.append([link.get("href") for link in rows(render(record))[0].iter("a")])
    assert links == [[], ["./javascript%3Aalert%281%29"], ["./../other%20run/report.html"]]


def test_lines_join_the_cells_that_are_alike_in_all_else() -> None:
    text = render(comparison(24, failing=100))
    drawn = list(of_class(section(text, "batch"), "series"))
    assert len(drawn) == 6  # three loaders with two numbers of workers
    assert all((way.get("d") or "").count("L") == 3 for way in drawn)  # four batch sizes
    assert len(list(of_class(section(text, "batch"), "point"))) == len(
        list(of_class(section(text, "batch"), "interval"))
    )
    assert len(list(of_class(section(text, "batch"), "knee"))) == 6
    assert len(list(of_class(section(text, "workers"), "series"))) == 12


def test_many_lines_are_spread_over_panels() -> None:
    found = section(render(comparison(200, failing=1000)), "batch")
    assert len(list(found.iter("figure"))) == 4
    assert [element.text for element in found.iter("h3")] == ["4 workers", "2 workers", "1 worker", "0 workers"]
    assert len(list(of_class(found, "series"))) == 40


def test_lines_that_no_key_spreads_are_thinned_out_and_it_says_so() -> None:
    record = comparison(200, failing=1000)
    for cell in record["cells"]:
        cell["overrides"]["all"] = " ".join(
            cell["overrides"].pop(key) for key in ("loader", "engine.num_workers", "trainer")
        )
    text = render(record | {"keys": ["data.batch_size", "all"]})
    assert len(list(of_class(section(text, "batch"), "series"))) == 8
    assert "8 of 40 lines: the highest, the lowest, and some evenly between." in words_of(text)


def test_a_failed_cell_leaves_a_gap() -> None:
    record = comparison(24, failing=100)
    before = len(list(of_class(section(render(record), "batch"), "point")))
    for cell in record["cells"]:
        if cell["name"] == "loader=native data.batch_size=64 engine.num_workers=2":
            cell["images_per_second"] = None
    found = section(render(record), "batch")
    assert len(list(of_class(found, "point"))) == before - 1
    assert len([way for way in of_class(found, "series") if (way.get("d") or "").count("L") == 1]) == 1


@pytest.mark.parametrize(("count", "speedups", "phases"), [(2, 2, 2), (24, 22, 22), (200, 30, 24)])
def test_long_pictures_are_cut_and_say_so(count: int, speedups: int, phases: int) -> None:
    text = render(comparison(count))
    shown = {name: list(of_class(section(text, name), "who")) for name in ("speedup", "phases")}
    assert len([one for one in shown["speedup"] if "".join(one.itertext())]) == speedups
    assert len([one for one in shown["phases"] if "".join(one.itertext())]) == phases
    assert words_of(text).count("the table holds all of them") == (2 if count == 200 else 0)


def test_the_baseline_is_shown_even_from_the_middle() -> None:
    record = comparison(200)
    record["baseline"] = record["cells"][90]["name"]
    compared = comparison_of(record)
    shown, told = compared.chosen(compared.measured, 24)
    assert compared.baseline in shown
    assert len(shown) == 25
    assert "the baseline" in told


def test_a_verdict_has_a_shape_and_a_word_besides_its_colour() -> None:
    record = comparison(24, single=1000, failing=1000)
    for number, verdict in enumerate(("faster", "slower", "no difference", "too few runs")):
        record["cells"][number]["verdict"] = verdict
    signs = [sign.get("d") for sign in of_class(section(render(record), "speedup"), "sign")]
    assert len(set(signs)) == 5  # of these and the baseline
    found = section(render(record), "speedup")
    shapes = {sign.get("class"): sign.get("d") for sign in of_class(found, "sign")}
    assert len(set(shapes.values())) == len(shapes) == 4
    told = {"".join(one.itertext()).strip() for one in of_class(found, "verdict")}
    assert {"\u25b2 faster", "\u25bc slower", "= no difference", "? too few runs", "\u25c6 baseline"} == told


def test_a_wide_interval_does_not_hide_the_others() -> None:
    record = comparison(24, single=1000, failing=1000)
    assert "cut off" not in words_of(render(record))
    rates = [cell["images_per_second"]["median"] for cell in record["cells"]]
    record["cells"][5]["images_per_second"] |= {"low": 1e-3, "high": 1e6}
    record["cells"][5]["speedup"] |= {"low": 1e-3, "high": 1e4}
    text = render(record)
    bars = [float((bar.get("width") or "").rstrip("%")) for row in rows(text) for bar in of_class(row, "bar")]
    assert [bar / bars[0] for bar in bars] == [pytest.approx(rate / rates[0], abs=1e-3) for rate in rates]
    assert bars[0] > 70
    assert words_of(text).count("cut off") == 3  # over batch size and workers, and of the speed-ups
    assert "0.00 to 1,000,000" in words_of(text)


def test_phases_add_up_to_what_an_image_costs() -> None:
    record = comparison(24)
    for cell in comparison_of(record).measured:
        given = cell.record.summary
        per_image = (given["step_seconds"]["total"] + given["between_seconds"]) / given["images_per_step"]
        assert sum(cell.phases.values()) == pytest.approx(per_image)
    text = render(record)
    drawn = list(of_class(section(text, "phases"), "fill"))
    assert len(drawn) == sum(len(cell.phases) for cell in comparison_of(record).measured)
    (figures,) = section(text, "phases").iter("tbody")
    assert len(list(figures)) == 22


def test_fast_and_slow_cells_have_axes_of_their_own() -> None:
    headings = [one.text for one in section(render(comparison(200)), "phases").iter("h3")]
    assert len(headings) == 2
    assert not list(section(render(comparison(24)), "phases").iter("h3"))


def test_cpu_and_gpu_are_paired() -> None:
    record = comparison(200, failing=1000)
    (body,) = section(render(record), "devices").iter("tbody")
    assert len(list(body)) == 24
    seen = words_of(render(record))
    assert "On NVIDIA H200 it trains" in seen
    assert "in the median of 100 pairs." in seen
    assert "and 76 more pairs" in seen
    pairs = {}
    for cell in record["cells"]:
        name = cell["name"].replace("trainer=gpu", "").replace("trainer=cpu", "")
        pairs.setdefault(name, {})[cell["values"]["accelerator"]] = cell["images_per_second"]["median"]
    most = max(pair["cuda"] / pair["cpu"] for pair in pairs.values())
    assert f"{most:.2f}{TIMES} as fast as on the CPU" in seen


def test_operators_show_before_and_after() -> None:
    record = comparison(2)
    record["operators"]["rows"] = [
        {"name": "aten::<add>", "before_us": 900.0, "after_us": 100.0, "change_us": -800.0},
        {"name": "native::decode", "before_us": None, "after_us": 12.0, "change_us": 12.0},
    ]
    (body,) = section(render(record), "operators").iter("tbody")
    told = [" ".join("".join(cell.itertext()).replace("\u00a0", " ") for cell in row).split() for row in body]
    assert told == [
        ["aten::<add>", "900", "µs", "100", "µs", "\u2212800", "µs"],
        ["native::decode", "none", "12", "µs", "+12", "µs"],
    ]
    assert "before: loader=rasterio" in words_of(render(record))


@pytest.mark.parametrize("text", [render(hostile(24)), render(hostile(200)), render(comparison(200))])
def test_names_with_markup_are_escaped_and_nothing_is_fetched(text: str) -> None:
    tree = parsed(text)
    assert len(list(tree.iter("script"))) == 1
    assert "default-src 'none'" in text
    assert not re.search(r"@import|url\(", text)
    assert not {"link", "img", "iframe", "object", "embed", "base", "form"} & {element.tag for element in tree.iter()}
    assert all((element.get("href") or "").startswith("./") for element in tree.iter("a"))
    assert not [name for element in tree.iter() for name in element.keys() if name.startswith("on") or name == "src"]  # noqa: SIM118
    ids = sections(text)
    assert len(ids) == len(set(ids))
    if HOSTILE[:20] in words_of(text):
        assert words_of(text).count("alert(1)") > 40


def test_drawings_have_words_for_those_who_cannot_see() -> None:
    tree = parsed(render(comparison(200)))
    parents = {child: parent for parent in tree.iter() for child in parent}
    for drawing in tree.iter("svg"):
        above, node = [drawing], drawing
        while node in parents:
            node = parents[node]
            above.append(node)
        assert any(one.get("aria-label") or one.get("aria-hidden") == "true" for one in above)


@pytest.mark.parametrize("record", [{}, {"cells": []}, {"cells": [{}]}, {"cells": [None, 3], "keys": None}])
def test_an_empty_record_is_a_decent_page(record: dict[str, Any]) -> None:
    text = render(record)
    assert sections(text)[-1] == "method"
    assert "nan" not in words_of(text)


@pytest.mark.parametrize("key", [*comparison(2), *(f"cells.{key}" for key in comparison(2)["cells"][0])])
def test_whatever_is_wrong_the_rest_is_shown(key: str) -> None:
    for wrong in WRONG:
        record = copy.deepcopy(comparison(24))
        name = key.removeprefix("cells.")
        for node in record["cells"] if key.startswith("cells.") else [record]:
            node[name] = wrong
        text = render(record)
        assert sections(text)[-1] == "method"
        assert not re.search(r"\b(nan|inf)\b", words_of(text))


@pytest.mark.parametrize(
    "values", [[], [1.0], [0.98, 1.02], [0.5, 3.0], [0.02, 50.0], [1e-9, 1e9], [float("inf"), -1.0, 0.0]]
)
def test_an_axis_of_ratios_holds_one_and_round_numbers(values: list[float]) -> None:
    scale, marks = around_one(values)
    assert scale.start < 1 < scale.end
    assert 1.0 in marks
    assert len(marks) <= 15
    assert all(scale.start <= mark <= scale.end for mark in marks)


def test_a_page_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = write_comparison(tmp_path, comparison(2))
    assert path == tmp_path / "comparison.html"
    before = path.read_bytes()
    with full_disk(1000), pytest.raises(OSError, match="too large"):
        write_comparison(tmp_path, comparison(24))
    assert path.read_bytes() == before
    assert names(tmp_path) == ["comparison.html"]


def test_it_is_a_pure_function_of_the_record() -> None:
    record = comparison(24)
    before = copy.deepcopy(record)
    assert render(record) == render(before)
    assert record == before


def test_it_needs_no_torch() -> None:
    code = "import sys, strobe.compare.page; print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", code], text=True, timeout=60).split()
    assert "strobe.compare.page.forest" in loaded
    assert not {"torch", "lightning"} & set(loaded)
