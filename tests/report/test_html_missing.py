"""``report.html``: what it lives without, and how it is written."""

import copy
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from strobe.records.files import write_summary
from strobe.records.run import Record
from strobe.records.tables import File
from strobe.report.html import render, write_report
from support.pages import PHASES, WRONG, Page, complete, page_of, places, steps
from support.refusals import refusal


@pytest.mark.parametrize("key", complete())
def test_whatever_is_missing_or_wrong_the_rest_is_shown(key: str) -> None:
    """Each value of the record is removed, and replaced by what does not belong there."""
    rows = steps(1)
    for path in [(key,), *places(complete()[key], key)]:
        for wrong in (*WRONG, "removed"):
            summary = copy.deepcopy(complete())
            node: Any = summary
            for step in path[:-1]:
                node = node[step]
            if wrong == "removed":
                del node[path[-1]]
            else:
                node[path[-1]] = wrong
            text = render(Record(summary), rows)
            assert '<section id="environment">' in text or key == "environment"
            assert not re.search(r"\b(nan|inf)%", text)


@pytest.mark.parametrize("summary", [{}, {"schema": 1}, {"status": "failed"}, {"status": "interrupted", "steps": None}])
def test_an_empty_record_is_a_decent_page(summary: dict[str, Any]) -> None:
    page, _ = page_of(summary)
    assert "No step was measured" in page.text
    assert not page.has("figures")


def test_an_old_record_is_judged_by_its_phases() -> None:
    known = ("schema", "status", "overrides", "choices", "steps", "images_per_second", "step_seconds", "metrics")
    page, _ = page_of({key: complete()[key] for key in known} | {"ceilings": {"loader": None, "model": None}})
    assert "The longest phase of a step is data wait: 61% of it." in page.text
    assert "ceilings=true measures them" in page.text
    assert "trace" not in page.sections


def test_the_head_offers_the_first_findings_command() -> None:
    _, text = page_of(complete() | {"verdict": "The loader is the limit."})
    head = text[text.index("<header>") : text.index("</header>")]
    assert "python train.py data=eurosat loader=memory engine.num_workers=4" in head


def test_a_failed_run_says_what_went_wrong() -> None:
    nothing = dict.fromkeys(["median", "low", "high"])
    page, _ = page_of(
        {
            "status": "failed",
            "error": {"type": "DataError", "message": "data.root=/nowhere holds no tiles\nlook elsewhere"},
            "images_per_second": nothing,
            "step_seconds": dict.fromkeys(["total", *PHASES]),
        }
    )
    assert "What went wrong DataError data.root=/nowhere holds no tiles look elsewhere" in page.text
    assert page.has("bad")
    assert "findings" not in page.sections


def test_an_interrupted_run_keeps_what_it_measured() -> None:
    error = {"type": "KeyboardInterrupt", "message": ""}
    page, _ = page_of(complete() | {"status": "interrupted", "error": error}, steps(20))
    assert "What stopped it KeyboardInterrupt" in page.text
    assert page.has("fair")
    assert "3,180 images/s" in page.text


def test_long_lists_are_cut_and_say_so() -> None:
    summary = complete()
    summary["callbacks"] = [{"name": "n" * 300, "kind": "callback", "mean": 0.001, "calls": 1}] * 40
    summary["metrics"] = {f"test/accuracy/class {number}": number / 1000 for number in range(1000)}
    summary["traces"] = [f"tensorboard/{number}.trace.json" for number in range(500)]
    summary["trace_evidence"]["loader_workers"] = {f"worker {number}": 0.5 for number in range(200)}
    summary["findings"] *= 100
    page, text = page_of(summary, files=[File(f"file {number}", 1) for number in range(5000)])
    for said in ("32 more of them, together 32 ms", "960 more classes", "460 more traces", "136 more workers"):
        assert said in page.text
    assert "4,960 more files" in page.text
    assert len(text) < 1_000_000


def test_it_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    write_summary(tmp_path / "summary.json", complete())
    (tmp_path / "steps.csv").write_text("step,total,images,profiled\n0,0.5,64,0\n1,0.25,64,0\n2,0.")
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables/operators_by_cpu_time.csv").write_text(
        "name,device,annotation,calls,self_cpu_us,cpu_us\naten::add,cpu,0,2,3000,4000\nforward,cpu,1,1,9000,13000\n"
    )
    path = write_report(tmp_path)
    assert path == tmp_path / "report.html"
    first = path.read_text(encoding="utf-8")
    page = Page(first)
    assert "2 warm-up" in page.text
    assert "aten::add 25% 3 ms 2 2 ms" in page.text  # forward is a phase, and no operator
    assert "summary.json" in page.text
    assert "report.html" not in [attributes.get("href") for _, attributes in page.tags]
    assert write_report(tmp_path).read_text(encoding="utf-8") == first
    path.unlink()
    path.mkdir()
    with pytest.raises(OSError, match="directory"):
        write_report(tmp_path)
    assert sorted(found.name for found in tmp_path.iterdir()) == ["report.html", "steps.csv", "summary.json", "tables"]


@pytest.mark.parametrize("damage", ["step,total\n0,x\n", "step,total\n0,1,2,3\n", "\x00\n", "", "\udcff"])
def test_damaged_files_beside_the_record_are_left_out(tmp_path: Path, damage: str) -> None:
    write_summary(tmp_path / "summary.json", complete())
    (tmp_path / "tables").mkdir()
    for name in ("steps.csv", "tables/operators_by_cpu_time.csv", "tables/operators_by_device_time.csv"):
        (tmp_path / name).write_text(damage, encoding="utf-8", errors="surrogateescape")
    page = Page(write_report(tmp_path).read_text(encoding="utf-8"))
    assert "steps.csv holds no steps" in page.text
    assert "operators" not in page.sections


def test_a_record_of_numbers_that_are_none_is_read(tmp_path: Path) -> None:
    summary = complete() | {"efficiency": math.nan, "first_step_seconds": math.inf}
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    assert "nan" not in Page(write_report(tmp_path).read_text(encoding="utf-8")).text


def test_a_foreign_directory_is_refused(tmp_path: Path) -> None:
    assert "holds no summary.json" in refusal(lambda: write_report(tmp_path))
    (tmp_path / "summary.json").write_text("{")
    assert "is damaged" in refusal(lambda: write_report(tmp_path))
