"""Records of runs, whole ones and wrong values, and a page taken apart, for the tests of the report."""

import math
import random
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from strobe.records.run import Record
from strobe.records.step_table import StepTable
from strobe.records.tables import File, Operator, Operators
from strobe.report.page import render
from support.run_folders import summary_of

SECTIONS = ["findings", "step", "ceilings", "throughput", "operators", "trace", "memory", "metrics"]
SECTIONS += ["traces", "environment", "files"]
HOSTILE = "<script>alert(1)</script>&\"'\x00\ud800" + "x" * 300
WRONG = ({"a": 1}, math.nan, HOSTILE, None, -1, [None, {}], 1e300)  # values that belong nowhere
PHASES = {"data_wait": 24.6, "transfer": 0.8, "forward": 5.2, "backward": 6.1, "optimizer": 2.1}
PHASES |= {"callbacks": 1.0, "other": 0.7}  # ms


class Page:
    """A page taken apart; it must be well-formed XML, its drawings too."""

    def __init__(self, text: str) -> None:
        self.source = text
        self.tree = ET.fromstring(re.sub(r"(?s)(<(script|style)[^>]*>).*?(</\2>)", r"\1\3", text))

    @property
    def text(self) -> str:
        """What a reader sees."""
        return words_of(self.tree.find("body"))

    @property
    def sections(self) -> list[str | None]:
        return [section.get("id") for section in self.tree.iter("section")]

    @property
    def links(self) -> list[str | None]:
        return [link.get("href") for link in self.tree.iter("a")]

    def section(self, name: str) -> ET.Element:
        (found,) = (section for section in self.tree.iter("section") if section.get("id") == name)
        return found

    def rows(self, name: str) -> list[ET.Element]:
        """Of the first table of a section."""
        return list(next(self.section(name).iter("tbody")))

    def has(self, *css: str) -> bool:
        return bool(of_class(self.tree, *css))


def words_of(element: ET.Element | None) -> str:
    assert element is not None
    return " ".join(" ".join(element.itertext()).replace("\u00a0", " ").split())


def of_class(element: ET.Element, *css: str) -> list[ET.Element]:
    return [one for one in element.iter() if {*css} <= set((one.get("class") or "").split())]


def numbers(element: ET.Element, *attributes: str) -> tuple[float, ...]:
    """Attributes of an element of a drawing, without their signs for percent."""
    return tuple(float(element.attrib[name].rstrip("%")) for name in attributes)


def complete() -> dict[str, Any]:
    """The record of a run on a GPU with everything that a record can hold."""
    seconds = {name: value / 1e3 for name, value in PHASES.items()}
    given = ["data=eurosat", "loader=skimage", "engine.num_workers=4"]
    run = summary_of(
        given, 1463.0, data="EuroSAT", batch_size=128, accelerator="cuda", precision="bf16-mixed", threads=2
    )
    del run["train_images"]  # which no page tells of
    return run | {
        "choices": {"data": "eurosat", "loader": "skimage", "model": "resnet18", "profiler": "trace"},
        "environment": run["environment"]
        | {
            "usable_cores": 16,
            "memory_bytes": 128_000_000_000,
            "gpu": "NVIDIA H200",
            "shm_free_bytes": 64_000_000_000,
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
        "efficiency": 0.453,
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


def table_of(rows: Sequence[dict[str, float]]) -> StepTable:
    """Rows of steps.csv, with the columns of the first."""
    columns = {name: np.array([row[name] for row in rows], float) for name in rows[0]}
    return StepTable(columns, np.arange(len(rows)))


def steps(count: int, profiled: range = range(0)) -> StepTable:
    """The steps of a steps.csv: 100 steps an epoch, each epoch with a validation at its end."""
    noise = random.Random(0)
    rows = []
    for step in range(count):
        total = noise.lognormvariate(-3.2, 0.2)
        end = step % 100 == 99
        rows.append(
            {"step": step, "epoch": step // 100, "images": 128, "profiled": int(step in profiled), "total": total}
            | {"validation": 2.0 * end, "between": 0.5 * end, "checkpoints": 0.0}
        )
    return table_of(rows)


SLOWEST = Operators(
    "operators_by_device_time",
    (Operator("aten::convolution", 1.5, 1.75, 120, False), Operator("<range>", 0.5, 2.0, 6, True)),
    count=111,
    own=3.0,
    over="2 cycles and 6 steps",
)
FILES = [File("steps.csv", 1234), File("checkpoints/last 100%.ckpt", 5)]


def page_of(summary: dict[str, Any], *rest: Any, **more: Any) -> Page:
    return Page(render(Record(summary), *rest, **more))


def spoilt() -> str:
    """The report of a record in which every text, and some names, are markup."""
    summary = complete()
    for path in list(places(summary)):
        node, key = holder(summary, path), path[-1]
        if isinstance(node[key], str) and path != ("status",):
            node[key] = HOSTILE
    for key in ("metrics", "step_seconds", "between_seconds"):
        summary[key][HOSTILE] = 0.001
    summary["trace_evidence"]["loader_workers"][HOSTILE] = 0.5
    summary["environment"]["versions"][HOSTILE] = HOSTILE
    slowest = Operators("operators_by_cpu_time", (Operator(HOSTILE, 1.0, 1.0, 1, False),), 1, 1.0, HOSTILE)
    return render(Record(summary), steps(3), slowest, name=HOSTILE, files=[File(HOSTILE, 1)])


def places(node: Any, *path: Any) -> Iterator[tuple[Any, ...]]:
    """The way to each value below a node."""
    if path:
        yield path
    for key in node if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ():
        yield from places(node[key], *path, key)


def holder(node: Any, path: Sequence[Any]) -> Any:
    """What holds the value at a path: ``holder(node, path)[path[-1]]``."""
    for key in path[:-1]:
        node = node[key]
    return node
