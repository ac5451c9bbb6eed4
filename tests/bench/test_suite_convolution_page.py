"""What suite ``convolution`` says of its figures: conclusions, answers, and the parts of its page."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from strobe.bench.convolution.answers import questions
from strobe.bench.convolution.page_disagreement import LESS
from strobe.bench.convolution.study import (
    CALLS,
    EVENTS,
    LARGEST,
    LOOKING,
    PARTS,
    PLAIN,
    PROFILERS,
    REFERENCE,
    SAMPLES,
    TIME,
    TO_CALLEE,
    TO_CALLER,
)
from strobe.bench.harness.declare import Suite
from strobe.bench.harness.trial import Report
from strobe.bench.harness.wording import figure
from strobe.bench.suites import convolution
from support.composing import bench_config
from support.profiled_cells import visited_profilers
from support.suite_parts import recorded

pytestmark = pytest.mark.usefixtures("own_hydra")


def declared(*overrides: str) -> Suite:
    return convolution.declare(bench_config("suite=convolution", *overrides))


def reports(seconds: Sequence[float], images: int = 1, figures: Mapping[str, float] | None = None) -> list[Report]:
    return [Report([each], [float(images)], None, dict(figures or {})) for each in seconds]


def own(tree: float, indices: float, rest: float, **more: float) -> dict[str, float]:
    return dict(zip(PARTS, (tree, indices, rest), strict=True)) | more


def made_up(
    suite: Suite, powers: Mapping[str, float], failed: Mapping[str, str] | None = None, visits: int = 7
) -> dict[str, Any]:
    """Times that grow with these powers of the side, ways that failed, and profiles of 1, 2 and 1.5 seconds."""
    found: dict[str, list[Report] | str] = {}
    for cell in suite.cells:
        if cell.table == TIME and cell.column in powers:
            found[cell.name] = reports([1e-6 * float(cell.row) ** powers[cell.column]] * visits)
        elif cell.table == TIME and cell.column in (failed or {}):
            found[cell.name] = (failed or {})[cell.column]
    profiled = {cell.column: cell.name for cell in suite.cells if cell.table == PROFILERS}
    prices = {TO_CALLEE: 1e-7, TO_CALLER: 3e-7}
    found[profiled[PLAIN]] = reports([1.0] * 7, 20, own(0.7, 0.2, 0.1))
    found[profiled[EVENTS]] = reports([2.0] * 7, 20, own(0.8, 1.1, 0.1) | prices | {CALLS: 1e6})
    found[profiled[SAMPLES]] = reports([1.5] * 7, 20, own(0.75, 0.6, 0.15))
    found[profiled["timer"]] = "no timer here"
    return recorded(suite, found)


def bare(sentence: str) -> str:
    """Without intervals."""
    return re.sub(r" \([^)]* to [^)]*\)", "", sentence)


def test_figures_become_sentences() -> None:
    suite = declared("quick=true")
    record = made_up(suite, {"four loops": 2, REFERENCE: 1, "native": 0.5, "torch conv2d": 0.75})
    said = [bare(sentence) for sentence in convolution.conclude(record)]
    assert said[0] == (
        f"At 64x64, where 4 of 10 ways were measured, native is fastest: {figure(0.008)} ms; {figure(8**0.5)} times as "
        f"fast as torch conv2d, {figure(512)} times as fast as four loops, {figure(8)} times as fast as scipy "
        "convolve2d."
    )
    assert f"at 64x64 native is {figure(8**0.5)} times as fast as torch conv2d" in said[1]
    assert said[2].endswith(f"as long: cProfile {figure(2)}, pyinstrument {figure(1.5)}.")
    assert said[3] == "cProfile and pyinstrument disagree about 15.0% of im2col's time."
    assert said[4].endswith("they are off: cProfile by 35.0%, pyinstrument by 20.0%.")
    assert said[5:] == [f"{cell['name']} failed: no timer here" for cell in record["cells"] if cell["error"]]
    slower = convolution.conclude(made_up(suite, {REFERENCE: 1, "native": 1.5, "torch conv2d": 1.25}))
    assert slower[0].startswith("At 64x64, where 3 of 10 ways were measured, scipy convolve2d is fastest:")
    assert f"torch conv2d is {figure(8**0.5)} times as fast as native" in bare(slower[1])
    same = convolution.conclude(made_up(suite, {"native": 1, "torch conv2d": 1}))
    assert "torch conv2d has the shortest time: " in same[0]
    assert "native, which is no difference that the interval would show" in bare(same[0])
    assert "which is no difference that the interval would show" in same[1]


def test_few_visits_have_no_verdict() -> None:
    suite = declared("quick=true")
    record = made_up(suite, {REFERENCE: 1, "native": 0.5, "torch conv2d": 0.75}, visits=3)
    first, second, *_ = convolution.conclude(record)
    assert "native has the shortest time: " in first
    assert "torch conv2d, by too few visits to tell" in first
    assert second.endswith("by too few visits to tell.")
    assert "too few" not in convolution.conclude(made_up(suite, {"native": 0.5, "torch conv2d": 0.75}, visits=4))[0]


def test_a_way_that_failed_everywhere_is_named() -> None:
    suite = declared("quick=true")
    powers = {"four loops": 2, REFERENCE: 1, "window sums": 1.5}
    record = made_up(suite, powers, {"native": "no compiler", "im2col": "too large"})
    said = convolution.conclude(record)
    assert said[0].startswith("At 64x64, where 3 of 10 ways were measured, ")
    assert [each for each in said if "native" in each] == ["native failed at every size: no compiler"]
    second, third = questions(record)[1:3]
    assert third.answer.endswith("im2col failed: too large.")
    assert "failed" not in second.answer


def test_powers_are_compared_over_the_same_sides() -> None:
    suite = declared("suite.sizes=[8,16,256,512]")
    record = made_up(suite, {"four loops": 2, REFERENCE: 1})
    for cell in record["cells"]:
        if (cell["column"], cell["row"]) == (REFERENCE, "512"):
            cell["seconds"]["median"] *= 100  # where four loops are not measured
    (asked, *_), growth = questions(record), convolution.sections(record, Path())[1].text
    assert "Over sides of 8 to 256 pixels" in asked.answer
    assert "to the power of 2.00 (four loops) and 1.00 (scipy convolve2d)" in asked.answer
    assert "for n = 8 to 256; " in growth
    assert "for n = 8 to 512; " in growth


def test_the_documents_questions_are_answered_from_the_figures() -> None:
    suite = declared("quick=true")
    powers = {"four loops": 2, "window sums": 1.5, "im2col": 2.5, "im2col recursive": 1, REFERENCE: 0.5}
    answers = [bare(each.answer) for each in questions(made_up(suite, powers))]
    assert len(answers) == 5
    assert f"At 64x64 scipy convolve2d is {figure(512)} times as fast as four loops." in answers[0]
    assert "to the power of 2.00 (four loops) and 0.50 (scipy convolve2d)" in answers[0]
    assert f"At 8x8 window sums is {figure(8**0.5)} times as fast as four loops." in answers[1]
    assert f"At 64x64 four loops is {figure(8)} times as fast as im2col." in answers[2]
    assert "55% by cProfile, 40% by pyinstrument, 20% by timing it directly" in answers[3]
    assert "50,000 calls are timed for one image" in answers[3]
    assert f"at 64x64 im2col recursive is {figure(512)} times as fast as im2col" in answers[3]
    assert f"At 64x64 scipy convolve2d is {figure(8)} times as fast as im2col recursive." in answers[4]
    nothing = recorded(suite, {cell.name: "it broke" for cell in suite.cells})
    assert all(
        each.answer.startswith("Not known, for too little of it was measured. ") and "failed: it broke." in each.answer
        for each in questions(nothing)
    )
    profiled = [f"{cell.name} failed: it broke" for cell in suite.cells if cell.table == PROFILERS]
    assert convolution.conclude(nothing) == [*(f"{name} failed at every size: it broke" for name in LARGEST), *profiled]
    waiting = recorded(suite, {})
    assert {each.answer for each in questions(waiting)} == {"Not known, for too little of it was measured."}


def test_the_page_shows_growth_profiles_and_how_far_they_disagree(tmp_path: Path) -> None:
    folder, found = tmp_path, visited_profilers(tmp_path)
    suite = declared("quick=true")
    cells_of = {cell.column: cell.name for cell in suite.cells if cell.table == PROFILERS}
    made = made_up(suite, {"four loops": 2, REFERENCE: 1})
    first = {cell["name"]: [report_of(visit) for visit in cell["visits"]] for cell in made["cells"]}
    record = recorded(suite, first | {cells_of[name]: [report] for name, report in found.items()})
    asked, growth, events, samples, apart = convolution.sections(record, folder)
    assert asked.html.count("<h3>Q") == 5
    assert growth.text.splitlines()[0] == "four loops: n^2.00 (2.00 to 2.00) for n = 8 to 64; n^2.00 for n = 32 to 64"
    assert "n²: k² products a pixel, each in Python" in growth.html
    for section, names in ((events, LOOKING[:2]), (samples, LOOKING[2:])):
        assert section.html.count('class="flame"') == section.html.count("<pre>") == 2
        assert all(f"<h3>{name}</h3>" in section.html for name in names)
        assert "(_get_indices)" in section.html
    assert (events.html + samples.html).count("<style>") == 1
    assert "17,640" in events.html
    assert apart.html.count("%</td>") == len(PARTS) * 6 + 5
    assert LESS in apart.html
    none = convolution.sections(recorded(suite, {cell.name: "it broke" for cell in suite.cells}), folder)
    assert [section.title for section in none] == [asked.title]


def report_of(visit: Mapping[str, Any]) -> Report:
    return Report(**{key: value for key, value in visit.items() if key != "round"})
