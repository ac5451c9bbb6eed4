"""``report.html``: what it says, what it lives without, and how it is written."""

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from strobe.present.format import TIMES
from strobe.records.files import write_summary
from strobe.records.run import Record
from strobe.records.tables import File
from strobe.report.page import render, write_report
from strobe.report.throughput import points_of, throughput
from support.pages import (
    FILES,
    PHASES,
    SECTIONS,
    SLOWEST,
    WRONG,
    Page,
    complete,
    numbers,
    of_class,
    page_of,
    places,
    steps,
    words_of,
)
from support.refusals import refusal


def test_everything_is_shown() -> None:
    page = page_of(complete(), steps(100, range(5, 8)), SLOWEST, name="outputs/runs/a run", files=FILES)
    assert page.sections == SECTIONS
    for said in (
        "61% of each step waits for data.",
        "loader=memory → 2.5x (2.3 to 2.6).",
        "3,180 images/s 95% interval 3,171 to 3,188",
        "40.5 ms mean of 94 steps",
        "data wait 24.6 ms 61%",
        "idle 24.3 ms 60%",
        "Pictures callback",
        "4 ms of checkpoints",
        "8,080 to 8,160",
        "98% of the lowest ceiling (loader alone)",
        "loader=memory loader alone 21,400 21,000 to 21,700 6.63" + TIMES,
        "94 steps 3 profiled (not counted) 3 warm-up (not counted)",
        "validation: 1 time, 2 s in all",
        f"2.50{TIMES} predicted, 2.30{TIMES} to 2.60{TIMES}",
        "python train.py data=eurosat loader=memory engine.num_workers=4",
        "aten::convolution 50% 1.5 s 120 14.6 ms",
        "over 2 cycles and 6 steps: 2 of 111",
        "worker 1 96% of the time",
        "cudaStreamSynchronize 1.1 ms, 2 calls a step",
        "4.1 GB of 128 GB",
        "test 0.500",
        "River 75%",
        "python -m strobe.view 'outputs/runs/a run' --perfetto",
        "NVIDIA H200",
        "0123456789ab+",
    ):
        assert said in page.text, said
    assert {"./tensorboard/box_1_rank0.1.pt.trace.json.gz", "./checkpoints/last%20100%25.ckpt"} <= {*page.links}
    assert len(page.source) < 100_000


def test_phases_and_ceilings_are_drawn_on_scales_of_their_own() -> None:
    summary = complete()
    summary["device_seconds"] = {"total": 0.081, "forward": 0.081, "idle": 0.0}
    page = page_of(summary)
    host, device = of_class(page.section("step"), "stack")
    assert sum(numbers(part, "width")[0] for part in of_class(host, "fill")) == pytest.approx(50, abs=0.2)
    assert numbers(of_class(device, "fill", "forward")[0], "width") == (100.0,)
    bars = {name: of_class(page.section("ceilings"), f"rate-{name}")[0] for name in ("loader", "transfer", "measured")}
    widths = {name: numbers(bar, "width")[0] for name, bar in bars.items()}
    assert widths["measured"] / widths["loader"] == pytest.approx(3180 / 3230, abs=0.001)
    assert widths["transfer"] == 100  # far beyond the others, so it goes on


def test_shared_cores_are_told() -> None:
    summary = complete()
    summary["ceilings"] |= {"shared_cores": True, "joint": 2500.0}
    text = page_of(summary).text
    assert "compete for the same cores, so neither ceiling can be reached" in text
    assert "together they can reach 2,500 images/s" in text
    assert "of the ceiling 98% 2,500 images/s: both on these cores" in text.lower()


def test_more_than_a_ceiling_is_explained() -> None:
    said = "More than a ceiling cannot be"
    assert said in page_of(complete() | {"efficiency": 1.16}).text
    assert said not in page_of(complete() | {"efficiency": 1.01}).text


def test_why_there_are_no_ceilings_is_told() -> None:
    why = {"loader": None, "model": None, "reason": "The run was <b>cut</b>."}
    assert "The run was <b>cut</b>." in page_of(complete() | {"ceilings": why}).text


def test_many_steps_are_a_band() -> None:
    page = page_of(complete(), steps(100_000, range(50_000, 50_100)))
    assert "99,897 steps 100 profiled (not counted) 3 warm-up (not counted)" in page.text
    assert "1,000 epochs" in page.text
    assert len(of_class(page.tree, "band")) == 2  # the drawing, and its key
    assert len(page.source) < 250_000


def test_steps_of_unknown_size_are_counted_as_steps() -> None:
    rows = [{key: value for key, value in row.items() if key != "images"} for row in steps(10)]
    assert "How many images a step held is unknown." in str(throughput(Record(complete()), rows).note)
    assert points_of([{"total": 0.5, "step": 3.0}], "steps/s")[0].rate == 2.0
    assert not points_of([{"total": 0.0}, {"total": float("nan")}, {"total": 1e-13}], "steps/s")


@pytest.mark.parametrize("key", complete())
def test_whatever_is_missing_or_wrong_the_rest_is_shown(key: str) -> None:
    """Each value of the record is removed, and replaced by what does not belong there."""
    rows = steps(1)
    for path in [(key,), *places(complete()[key], key)]:
        value: Any = complete()
        for step in path:
            value = value[step]
        kind = float if isinstance(value, int | float) else str if isinstance(value, str) else dict
        for wrong in (*WRONG[kind], "removed"):
            summary = complete()
            node: Any = summary
            for step in path[:-1]:
                node = node[step]
            if wrong == "removed":
                del node[path[-1]]
            else:
                node[path[-1]] = wrong
            text = render(Record(summary), rows)
            assert '<section id="environment">' in text
            assert not re.search(r"\b(nan|inf)%", text)


@pytest.mark.parametrize("summary", [{}, {"schema": 1}, {"status": "failed"}, {"status": "interrupted", "steps": None}])
def test_an_empty_record_is_a_decent_page(summary: dict[str, Any]) -> None:
    page = page_of(summary)
    assert "No step was measured" in page.text
    assert not page.has("figures")


def test_an_old_record_is_judged_by_its_phases() -> None:
    known = ("schema", "status", "overrides", "choices", "steps", "images_per_second", "step_seconds", "metrics")
    page = page_of({key: complete()[key] for key in known} | {"ceilings": {"loader": None, "model": None}})
    assert "The longest phase of a step is data wait: 61% of it." in page.text
    assert "ceilings=true measures them" in page.text
    assert "trace" not in page.sections


def test_the_head_offers_the_first_findings_command() -> None:
    page = page_of(complete() | {"verdict": "The loader is the limit."})
    assert "python train.py data=eurosat loader=memory engine.num_workers=4" in words_of(page.tree.find(".//header"))


def test_a_failed_run_says_what_went_wrong() -> None:
    page = page_of(
        {
            "status": "failed",
            "error": {"type": "DataError", "message": "data.root=/nowhere holds no tiles\nlook elsewhere"},
            "images_per_second": dict.fromkeys(["median", "low", "high"]),
            "step_seconds": dict.fromkeys(["total", *PHASES]),
        }
    )
    assert "What went wrong DataError data.root=/nowhere holds no tiles look elsewhere" in page.text
    assert page.has("error", "bad")
    assert "findings" not in page.sections


def test_an_interrupted_run_keeps_what_it_measured() -> None:
    error = {"type": "KeyboardInterrupt", "message": ""}
    page = page_of(complete() | {"status": "interrupted", "error": error}, steps(20))
    assert "What stopped it KeyboardInterrupt" in page.text
    assert page.has("error", "fair")
    assert "3,180 images/s" in page.text


def test_long_lists_are_cut_and_say_so() -> None:
    summary = complete()
    summary["callbacks"] = [{"name": "n" * 300, "kind": "callback", "mean": 0.001, "calls": 1}] * 40
    summary["metrics"] = {f"test/accuracy/class {number}": number / 1000 for number in range(1000)}
    summary["traces"] = [f"tensorboard/{number}.trace.json" for number in range(500)]
    summary["trace_evidence"]["loader_workers"] = {f"worker {number}": 0.5 for number in range(200)}
    summary["findings"] *= 100
    page = page_of(summary, files=[File(f"file {number}", 1) for number in range(5000)])
    for said in ("32 more of them, together 32 ms", "960 more classes", "460 more traces", "136 more workers"):
        assert said in page.text
    assert "4,960 more files" in page.text
    assert len(page.source) < 1_000_000


def test_links_lead_nowhere_else() -> None:
    summary = complete() | {"traces": ["/etc/passwd", "../../other.json", "javascript:alert(1)", "//host/x"]}
    assert page_of(summary).links == ["./javascript%3Aalert%281%29"]


def test_it_is_made_of_what_the_run_left(tmp_path: Path) -> None:
    write_summary(tmp_path / "summary.json", complete())
    (tmp_path / "steps.csv").write_text("step,total,images,profiled\n0,0.5,64,0\n1,0.25,64,0\n2,0.")
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables/operators_by_cpu_time.csv").write_text(
        "name,device,annotation,calls,self_cpu_us,cpu_us\naten::add,cpu,0,2,3000,4000\nforward,cpu,1,1,9000,13000\n"
    )
    path = write_report(tmp_path)
    assert path == tmp_path / "report.html"
    page = Page(path.read_text(encoding="utf-8"))
    assert "2 warm-up" in page.text
    assert "aten::add 25% 3 ms 2 2 ms" in page.text  # forward is a phase, and no operator
    assert "./summary.json" in page.links
    assert "./report.html" not in page.links
    assert write_report(tmp_path).read_text(encoding="utf-8") == page.source


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
