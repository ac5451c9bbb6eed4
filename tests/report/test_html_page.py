"""``report.html``: its structure, and what it escapes."""

import re
import xml.etree.ElementTree as ET
from typing import Any

import pytest

from strobe.records.run import Record
from strobe.records.tables import File, Operator, Operators
from strobe.report.html import render
from strobe.report.html.page import SCRIPT, STYLE
from strobe.report.html.text import TIMES
from support.pages import FILES, HOSTILE, SECTIONS, SLOWEST, complete, page_of, places, steps


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
