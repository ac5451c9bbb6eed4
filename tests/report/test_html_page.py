"""``report.html``: its structure, what it escapes, and what it lives without."""

import copy
import json
import math
import random
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from helpers import refusal

from strobe.diagnose.record import Record
from strobe.record import write_summary
from strobe.report.html import render, write_report
from strobe.report.html.page import SCRIPT, STYLE
from strobe.report.html.read import File, Operator, Operators
from strobe.report.html.text import TIMES

VOID = {"meta", "br", "hr", "img", "link", "input"}
SECTIONS = ["step", "ceilings", "throughput", "findings", "operators", "trace", "memory", "metrics"]
SECTIONS += ["traces", "environment", "files"]
HOSTILE = "<script>alert(1)</script>&\"'\x00\ud800" + "x" * 300
WRONG = [None, "", HOSTILE, math.nan, math.inf, -1, 0, 1e-300, 1e300, True, [], {}, [1], {"a": 1}, [None, {}]]
PHASES = {"data_wait": 24.6, "transfer": 0.8, "forward": 5.2, "backward": 6.1, "optimizer": 2.1}
PHASES |= {"callbacks": 1.0, "other": 0.7}  # ms


class Page(HTMLParser):
    """A page taken apart; every element must be closed in its place."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.within: list[str] = []
        self.feed(text)
        self.close()
        assert not self.within

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.within.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.within.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & set(self.within):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).replace("\u00a0", " ").split())

    @property
    def sections(self) -> list[str | None]:
        return [attributes.get("id") for tag, attributes in self.tags if tag == "section"]

    def has(self, css: str) -> bool:
        return any(css in (attributes.get("class") or "").split() for _, attributes in self.tags)


def complete() -> dict[str, Any]:
    """The record of a run on a GPU with everything that a record can hold."""
    seconds = {name: value / 1e3 for name, value in PHASES.items()}
    return {
        "schema": 1,
        "status": "completed",
        "error": None,
        "data": "EuroSAT",
        "overrides": ["data=eurosat", "loader=skimage", "engine.num_workers=4"],
        "choices": {"data": "eurosat", "loader": "skimage", "model": "resnet18", "profiler": "trace"},
        "batch_size": 128,
        "num_workers": 4,
        "accelerator": "cuda",
        "world_size": 1,
        "precision": "bf16-mixed",
        "threads": 2,
        "environment": {
            "host": "box",
            "cpu": "AMD EPYC",
            "usable_cores": 16,
            "memory_bytes": 128_000_000_000,
            "gpu": "NVIDIA H200",
            "shm_free_bytes": 64_000_000_000,
            "versions": {"python": "3.11.7", "torch": "2.15.0"},
            "git_commit": "0123456789abcdef0123456789abcdef01234567+",
            "page_cache": None,
        },
        "steps": {"measured": 94, "profiled": 3, "skipped": 3},
        "images_per_second": {"median": 3180.0, "low": 3171.0, "high": 3188.0},
        "step_seconds": {"total": sum(seconds.values()), **seconds},
        "device_seconds": {
            "total": 0.0405,
            "transfer": 0.0011,
            "forward": 0.0048,
            "backward": 0.0092,
            "optimizer": 0.0011,
            "idle": 0.0243,
        },
        "callbacks": [
            {"name": "Pictures", "kind": "callback", "mean": 0.0006, "longest": 0.24, "calls": 94},
            {"name": "TensorBoardLogger", "kind": "logger", "mean": 0.0003, "longest": 0.002, "calls": 3},
        ],
        "between_seconds": {"validation": 0.031, "checkpoints": 0.004, "between": 0.012},
        "epoch_starts": {"count": 2, "data_wait": 0.31},
        "first_step_seconds": 1.5,
        "updates": 0.5,
        "ceilings": {
            "loader": 3230.0,
            "model": 8120.0,
            "transfer": 61_000.0,
            "intervals": {"loader": [3190.0, 3270.0], "model": [8080.0, 8160.0], "transfer": [60_100.0, 61_900.0]},
            "cpu_seconds": {"loader": 0.0012, "model": 0.0002},
            "shared_cores": False,
            "joint": None,
            "batch_bytes": 393_216,
            "alternatives": [
                {"overrides": ["loader=memory"], "side": "loader", "rate": 21_400.0, "interval": [21_000.0, 21_700.0]}
            ],
            "seconds": 14.2,
            "reason": None,
        },
        "efficiency": 0.985,
        "trace_evidence": {
            "steps": 6,
            "step_seconds": 0.0405,
            "device_busy": 0.4,
            "syncs": [{"name": "cudaStreamSynchronize", "seconds": 0.0011, "calls": 2.0}],
            "sync_seconds": 0.0011,
            "kernels_per_step": 812.0,
            "kernel_seconds_median": 1.4e-5,
            "tensor_core_share": 0.31,
            "copies": [{"kind": "HtoD pageable", "seconds": 0.0011, "bytes": 393_216.0}],
            "loader_workers": {"worker 0": 0.97, "worker 1": 0.96},
        },
        "memory": {"rss_peak_bytes": 4_100_000_000, "device_peak_bytes": 2_300_000_000},
        "findings": [
            {
                "cause": "loader",
                "title": "The loader is the limit",
                "evidence": "24.6 of 40.5 ms a step are spent waiting.",
                "advice": "Hold the decoded images in memory.",
                "overrides": ["loader=memory"],
                "predicted_speedup": {"median": 2.5, "low": 2.3, "high": 2.6},
            }
        ],
        "verdict": "61% of each step waits for data. Predicted: loader=memory -> 2.5x (2.3 to 2.6). "
        "Run: python train.py data=eurosat loader=memory",
        "traces": ["tensorboard/box_1_rank0.1.pt.trace.json.gz"],
        "metrics": {"train/loss": 1.5, "val/accuracy": 0.25, "test/accuracy": 0.5, "test/accuracy/River": 0.75},
    }


def steps(count: int, profiled: range = range(0)) -> list[dict[str, float]]:
    """Rows of steps.csv: 100 steps an epoch, each epoch with a validation at its end."""
    noise = random.Random(0)
    rows = []
    for step in range(count):
        total = noise.lognormvariate(-3.2, 0.2)
        end = step % 100 == 99
        rows.append(
            {"step": step, "epoch": step // 100, "images": 128, "profiled": int(step in profiled), "total": total}
            | {"validation": 2.0 * end, "between": 0.5 * end, "checkpoints": 0.0}
        )
    return rows


SLOWEST = Operators(
    "operators_by_device_time",
    (Operator("aten::convolution", 1.5, 1.75, 120, False), Operator("<range>", 0.5, 2.0, 6, True)),
    count=111,
    own=3.0,
    over="2 cycles and 6 steps",
)
FILES = [File("steps.csv", 1234), File("checkpoints/last 100%.ckpt", 5)]


def page_of(summary: dict[str, Any], *rest: Any, **more: Any) -> tuple[Page, str]:
    text = render(Record(summary), *rest, **more)
    return Page(text), text


def places(node: Any, *path: Any) -> Iterator[tuple[Any, ...]]:
    """The way to each value below a node."""
    if path:
        yield path
    for key in node if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ():
        yield from places(node[key], *path, key)


def test_everything_is_shown() -> None:
    page, text = page_of(complete(), steps(100, range(5, 8)), SLOWEST, name="outputs/runs/a run", files=FILES)
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
    links = [attributes["href"] for tag, attributes in page.tags if tag == "a"]
    assert "./tensorboard/box_1_rank0.1.pt.trace.json.gz" in links
    assert "./checkpoints/last%20100%25.ckpt" in links
    assert len(text) < 100_000


def test_pictures_are_well_formed_and_say_what_they_show() -> None:
    tree = ET.fromstring(render(Record(complete()), steps(500), SLOWEST))  # the whole page is XML, too
    pictures = [found for parent in tree.iter() if parent.tag != "svg" for found in parent.findall("svg")]
    assert len(pictures) > 10
    assert all(picture.get("aria-label") or picture.get("aria-hidden") for picture in pictures)


@pytest.mark.parametrize("count", [0, 1, 30, 500])
def test_nothing_is_fetched_and_only_its_own_script_runs(count: int) -> None:
    page, text = page_of(complete(), steps(count), SLOWEST, files=FILES)
    assert not re.search(r"(?:https?:)?//(?!\s)[a-z]", text.replace("outputs//", ""), re.IGNORECASE)
    assert "@import" not in STYLE
    assert "url(" not in STYLE
    assert not {"link", "img", "iframe", "object", "embed", "base"} & {tag for tag, _ in page.tags}
    assert [tag for tag, _ in page.tags].count("script") == 1
    assert f"<script>{SCRIPT}</script>" in text
    (policy,) = (a["content"] for t, a in page.tags if t == "meta" and a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert all(attributes["href"].startswith(("./", "tables/")) for tag, attributes in page.tags if tag == "a")
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]


def test_every_text_of_a_record_is_escaped() -> None:
    summary = complete()
    for path in list(places(summary)):
        node: Any = summary
        for key in path[:-1]:
            node = node[key]
        if isinstance(node[path[-1]], str) and path != ("status",):
            node[path[-1]] = HOSTILE
    for key in ("metrics", "step_seconds", "between_seconds"):
        summary[key][HOSTILE] = 0.001
    summary["trace_evidence"]["loader_workers"][HOSTILE] = 0.5
    summary["environment"]["versions"][HOSTILE] = HOSTILE
    slowest = Operators("operators_by_cpu_time", (Operator(HOSTILE, 1.0, 1.0, 1, False),), 1, 1.0, HOSTILE)
    page, text = page_of(summary, steps(3), slowest, name=HOSTILE, files=[File(HOSTILE, 1)])
    assert [tag for tag, _ in page.tags].count("script") == 1
    assert "alert(1)" in page.text
    assert "\x00" not in text
    assert text.encode()


def test_links_lead_nowhere_else() -> None:
    summary = complete() | {"traces": ["/etc/passwd", "../../other.json", "javascript:alert(1)", "//host/x"]}
    page, _ = page_of(summary)
    assert [attributes["href"] for tag, attributes in page.tags if tag == "a"] == ["./javascript%3Aalert%281%29"]


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
