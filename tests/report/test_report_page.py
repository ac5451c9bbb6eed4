"""``report.html``: what it says, what it lives without, and how it is written."""

import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from strobe.diagnose.rank import AGAIN
from strobe.measure.timing import WARMUP_STEPS
from strobe.present.format import TIMES
from strobe.records.files import write_summary
from strobe.records.run import Record
from strobe.records.step_table import StepTable
from strobe.records.tables import File
from strobe.report.page import render, write_report
from strobe.report.throughput import MOST_DOTS, Timeline, throughput, timeline
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
    steps,
    table_of,
    words_of,
)
from support.recorded import damages, example


def test_everything_is_shown() -> None:
    page = page_of(complete(), steps(100, range(5, 8)), SLOWEST, name="outputs/runs/a run", files=FILES)
    assert page.sections == SECTIONS
    for said in (
        "61% of each step waits for data.",
        "loader=memory → 2.5x (2.3 to 2.6).",
        "Training 1,463 images/s waiting, validation and saving included; the median step alone ran at "
        "3,180 (3,171 to 3,188) Share of the ceiling 45%",
        "40.5 ms of 94 steps",
        "data wait 24.6 ms 61%",
        "idle 24.3 ms 60%",
        "Pictures callback",
        "4 ms of checkpoints",
        "8,080 to 8,160",
        "45% of the lowest ceiling (loader alone)",
        f"loader=memory 21,400 21,000 to 21,700 6.63{TIMES} today's loader alone advised: 2.5x (2.3 to 2.6) as fast",
        "94 steps 3 profiled (left out) 3 warm-up (left out)",
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
        "strobe view 'outputs/runs/a run' --perfetto",
        "Overview needs the internet",
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
    rates = page.section("ceilings")
    bars = {name: of_class(rates, f"rate-{name}")[0] for name in ("loader", "model", "transfer", "measured")}
    widths = {name: numbers(bar, "width")[0] for name, bar in bars.items()}
    factors = math.log(61_000 / 8120) / math.log(3230 / 1463)  # each of them can be told from the others
    between = (widths["transfer"] - widths["model"], widths["loader"] - widths["measured"])
    assert between[0] == pytest.approx(between[1] * factors, abs=0.1)
    assert 0 < widths["measured"] < widths["loader"] < widths["model"] < widths["transfer"] < 100
    marks = [[len(of_class(row, kind)) for kind in ("whisker", "reference")] for row in of_class(rates, "rate")[:4]]
    assert marks == [[3, 1], [3, 1], [3, 1], [0, 0]]  # of the loader, the model, the transfer, this run
    near = page_of(complete() | {"ceilings": {"loader": 3230.0, "model": 5000.0}}).section("ceilings")
    width = {name: numbers(of_class(near, f"rate-{name}")[0], "width")[0] for name in ("loader", "measured")}
    assert width["measured"] / width["loader"] == pytest.approx(1463 / 3230, abs=0.001)  # evenly, from 0


def test_how_far_a_ceiling_drifted_is_told() -> None:
    def told(drift: float | None) -> str:
        return words_of(
            page_of(complete() | {"ceilings": complete()["ceilings"] | {"drift": drift}}).section("ceilings")
        )

    assert "from minute to minute: measured again, the same ceiling was 7% apart." in told(0.07)
    assert "measured again" not in told(None)


def test_what_the_storage_gives_is_drawn_beside_the_ceilings_and_is_none_of_their_lowest() -> None:
    stored = complete()["ceilings"] | {"storage": {"rate": 2900.0}}
    page = page_of(complete() | {"ceilings": stored})
    assert len(of_class(page.section("ceilings"), "rate-storage")) == 1
    for said in ("Storage alone the same objects, not decoded", "2,900", "45% of the lowest ceiling (loader alone)"):
        assert said in page.text, said
    several = page_of(complete() | {"ceilings": stored, "world_size": 2})  # only rank 0 fetched
    assert not of_class(several.section("ceilings"), "rate-storage")
    stored["storage"]["ranks"] = 2
    assert of_class(page_of(complete() | {"ceilings": stored, "world_size": 2}).section("ceilings"), "rate-storage")


SHARED = complete()["ceilings"] | {"shared_cores": True, "joint": 3100.0}
SLOW = complete()["ceilings"] | {"loader": 2000.0, "intervals": {"loader": [1950.0, 2050.0]}}
BUSY = {"others": 0.4, "stolen": 0.0, "delayed": 0.3, "busiest": [{"name": "stress", "pid": 1, "cores": 1.5}]}
TAKEN = {"cause": "shared_machine", "title": "Others took 40% of the cores", "evidence": "It waited for a core."}
FEW = f"Only 4 steps were measured, too few to be certain: {AGAIN} So far: A title."
UNMEASURED = {"loader": None, "model": None, "reason": "The run was <b>cut</b>."}
EARLY = {
    "status": "failed",
    "error": {"type": "DataError", "message": "data.root=/nowhere holds no tiles\nlook elsewhere"},
    "images_per_second": dict.fromkeys(["median", "low", "high"]),
    "step_seconds": dict.fromkeys(["total", *PHASES]),
    "findings": [],
}
LATE = {
    "status": "failed",
    "error": {"type": "RuntimeError", "message": "no such metric"},
    "verdict": "The run failed; until then: The loader is the limit (12 images/s). Predicted: 2x.",
}
STOPPED = {"status": "interrupted", "error": {"type": "KeyboardInterrupt", "message": ""}}
ASKED = {"status": "interrupted", "error": {"type": "SIGTERMException", "message": "It was ended by SIGTERM."}}
OLD = dict.fromkeys(complete().keys() - {"status", "overrides", "choices", "images_per_second", "step_seconds"})


@pytest.mark.parametrize(
    ("changes", "said", "unsaid"),
    [
        ({"ceilings": SHARED}, "together they can reach 3,100 images/s", ""),
        ({"ceilings": SHARED, "efficiency": 1.0}, "Share of the ceiling 100% 3,100 images/s: both on these cores", ""),
        ({"ceilings": SLOW}, "Share of the ceiling - not known: see Ceilings", "of the lowest ceiling"),
        ({"ceilings": SLOW}, "Loader alone was measured too low", ""),
        ({"ceilings": SLOW}, "Noisy: training was faster than a ceiling", "Quiet"),
        ({"efficiency": 1.08}, "100% of the lowest ceiling", "too low"),
        ({"ceilings": UNMEASURED}, "The run was <b>cut</b>.", "of the lowest ceiling"),
        (EARLY, " data.root=/nowhere holds no tiles", "DataError"),
        (EARLY, "What went wrong data.root=/nowhere holds no tiles look elsewhere", "Throughput"),
        (LATE, "RuntimeError: no such metric Until then: The loader is the limit. Predicted: 2x", "(12 images/s)"),
        (STOPPED, "What stopped it KeyboardInterrupt", "What went wrong"),
        (STOPPED, "1,463 images/s", ""),
        (ASKED, "What stopped it It was ended by SIGTERM.", "Exception"),
        ({"metrics": {"test/accuracy": 0.5, "test/accuracy/River": math.nan}}, "test River -", "nan"),
        ({"metrics": {"train/loss": None, "val/accuracy": 0.5}}, "train not a number", "None"),
        (OLD, "The longest phase of a step is data wait: 61% of it.", "Workers and device"),
        (OLD, "ceilings=true measures them", "of the lowest ceiling"),
        (dict.fromkeys(complete()), "No step was measured", "images/s"),
        ({"efficiency": math.nan, "first_step_seconds": math.inf}, "Training 1,463 images/s", "nan"),
        ({"verdict": "A title (measured 5 images/s). Try b=2."}, "A title. Try b=2.", "(measured"),
        ({"machine": {"others": 0.02, "stolen": 0.0, "idle": 0.5}}, "Quiet: 94 steps measured", "Noisy"),
        ({"machine": {"others": 0.4, "stolen": 0.0, "idle": 0.3}}, "Shared: 94 steps measured while", "Quiet"),
        ({"machine": BUSY, "findings": [TAKEN]}, "It waited for a core.", "Noisy"),
        ({"machine": BUSY}, "Noisy: other processes (stress 1.5 cores) kept training from its cores for 30%", "Quiet"),
        ({"steps": {"measured": 4}, "verdict": FEW}, "A title. Too short: only 4 steps measured. Train", "Only 4"),
    ],
)
def test_a_page_says_what_its_record_holds(changes: dict[str, Any], said: str, unsaid: str) -> None:
    page = page_of(complete() | changes)
    assert said in page.text
    assert not unsaid or unsaid not in page.text
    assert page.has("error", "bad") == (changes is EARLY)  # of the other the headline tells all
    assert page.has("error", "fair") == (changes in (STOPPED, ASKED))


@pytest.mark.parametrize(
    ("override", "rate", "why"),
    [
        ("engine.prefetch_factor=4", 3000.0, "not faster"),
        ("loader=native", 30_000.0, "another value is advised"),
        ("engine.num_workers=2", 4000.0, "fewer workers"),
        ("data.cached=true", 3235.0, "not measurably faster"),
        ("data.cached=true", 12_000.0, "another change gains more"),
    ],
)
def test_what_was_measured_and_is_not_advised_says_why(override: str, rate: float, why: str) -> None:
    summary = complete()
    measured = {"overrides": [override], "side": "loader", "rate": rate, "interval": [0.99 * rate, 1.01 * rate]}
    summary["ceilings"]["alternatives"].append(measured)
    *_, row = page_of(summary).rows("ceilings")
    assert words_of(row).endswith(f"today's loader alone {why}")


def test_a_tick_stands_only_where_all_is_fine() -> None:
    nothing = complete()["findings"][0] | {"cause": "nothing", "title": "Nothing to fix", "overrides": []}
    fast = complete() | {"findings": [nothing], "efficiency": 0.97}
    assert page_of(fast).has("fine")
    for change in ({"efficiency": 0.5}, {"machine": BUSY}, {"steps": {"measured": 3}}, {"status": "interrupted"}):
        assert not page_of(fast | change).has("fine"), change


@pytest.mark.parametrize("turn", [0, pytest.param(3, marks=pytest.mark.slow)])
def test_whatever_is_missing_or_wrong_the_rest_is_shown(turn: int) -> None:
    summary = complete()
    for place in damages(summary, WRONG, turn):
        text = render(Record(summary))
        assert '<section id="environment">' in text, place
        assert not re.search(r"\b(nan|inf)%", text), place


def drawn(rates: Sequence[float], profiled: range = range(0)) -> Timeline:
    """Steps of these rates, after a warm-up that is not drawn."""
    rows = [
        {"step": step, "images": rate, "total": 1.0, "profiled": step in profiled} for step, rate in enumerate(rates)
    ]
    warm = dict.fromkeys(rows[0], 0.0)
    found = timeline(table_of([*[warm] * WARMUP_STEPS, *rows]), "images/s")
    assert found is not None
    return found


def test_few_steps_are_dots_on_a_scale_that_a_few_far_ones_do_not_stretch() -> None:
    for count in (1, MOST_DOTS):
        plot = ET.fromstring(drawn([100.0 + step % 7 for step in range(count)], range(10, 12)).draw())
        assert len(list(plot.iter("circle"))) == count
        assert len(of_class(plot, "dot", "profiled")) == 2 * (count > 10)
        assert not list(plot.iter("path"))
    far = drawn([*[100.0] * 150, 1e7, *[100.0] * 49])
    assert far.draw().count("\u25b4") == 1
    assert "1 step beyond the scale, up to 10,000,000" in [key.text for key in far.legend()]


def test_many_steps_are_a_band_of_minimum_median_and_maximum() -> None:
    """Rates of 100, 200 and 600 images/s in turn, on a scale that ends a tenth above the highest."""
    plot = ET.fromstring(drawn([(100.0, 200.0, 600.0)[step % 3] for step in range(3000)]).draw())
    (band,), (median,) = of_class(plot, "band"), of_class(plot, "median")
    heights = [
        {round(float(point.split()[1])) for point in way.attrib["d"].strip("MZ").split("L")} for way in (band, median)
    ]
    assert heights[0] == {round(1000 * (1 - 1 / 1.1)), round(1000 * (1 - 1 / 6.6))}
    assert heights[1] == {round(1000 * (1 - 2 / 6.6))}
    page = page_of(complete(), steps(60_000, range(10_000, 10_100)))
    assert "59,897 steps 100 profiled (left out) 3 warm-up (left out)" in page.text
    assert "600 epochs" in page.text
    assert len(of_class(page.tree, "band")) == 2  # the drawing, and its key
    assert len(page.source) < 250_000


def test_steps_of_unknown_size_are_counted_as_steps() -> None:
    whole = steps(10)
    rows = StepTable({name: values for name, values in whole.columns.items() if name != "images"}, whole.places)
    assert "How many images a step held is unknown." in str(throughput(Record(complete()), rows).note)
    half = timeline(table_of([{"total": 0.5, "step": 3.0}]), "steps/s")
    assert half is not None
    assert half.rates.tolist() == [2.0]
    assert timeline(table_of([{"total": seconds} for seconds in (0.0, math.nan, 1e-13)]), "steps/s") is None


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
    assert not {"throughput", "operators"} & {*page.sections}


def stragglers(**changes: Any) -> dict[str, Any]:
    record = example("straggler").summary
    return record | {"ranks": record["ranks"] | changes}


def test_ranks_have_a_heat_map_and_a_table() -> None:
    page = page_of(stragglers())
    assert "ranks" in page.sections
    assert f"the slowest one works 1.28{TIMES} as long as the mean rank" in page.text
    assert "Rank 1 from step 3: 30% longer 137 ms own work" in page.text
    assert "Rank Waits for others Most of its own work 0 61 ms backward" in page.text
    boxes = [box.get("class", "") for box in page.tree.iter() if box.tag.endswith("rect")]
    boxes = [css for css in boxes if "heat" in css]
    assert boxes == ["heat-0", "heat-3"]  # neighbours of one shade are one box
    many = stragglers(
        ranks=list(range(64)),
        world_size=65,
        own_seconds={str(rank): 0.1 + rank / 1e3 for rank in range(64)},
        heat={"steps": [3, 9], "ranks": [[1.0, 1.5]] * 64},
        coverage=0.5,
    )
    text = page_of(many).text
    assert "and 48 more faster ranks" in text
    assert "1 rank left no rows here." in text
    assert "All have rows of 50% of the steps." in text


def test_of_rank_0_alone_the_page_says_what_is_not_known() -> None:
    alone = dict.fromkeys(stragglers()["ranks"]) | {"ranks": [0], "world_size": 2}
    assert "Only rank 0 was recorded: what" in page_of(stragglers() | {"ranks": alone}).text
    assert "How long ranks wait for each other" in page_of(stragglers() | {"ranks": alone | {"ranks": [0, 1]}}).text
    assert "Only rank 0 was recorded: what" in page_of(stragglers() | {"ranks": None}).text
    assert "ranks" not in page_of(complete()).sections


def test_wrong_values_of_ranks_break_no_page() -> None:
    record = stragglers()
    for place in chain.from_iterable(damages(record["ranks"], (None, "text", 0, -1), turn) for turn in range(5)):
        try:
            render(Record(record))
        except Exception as error:
            raise AssertionError(place) from error
