"""What is read off traces: of one made by hand, of public ones as HTA has it, of a recorded one as torch has it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from strobe.callbacks.tracefile import Scan
from strobe.diagnose.traced import places, traced_record
from strobe.records.columns import read_columns
from strobe.traces.compared import changes, compared, hidden
from strobe.traces.flame import in_time, merged
from strobe.traces.memory import memory
from strobe.traces.operators import kernels, operators
from strobe.traces.rank import read_ranks
from strobe.traces.slowest import slowest
from strobe.validation.traces import HTA, main, of_gloo
from support.made_traces import STEP, made
from support.places import DATA


def test_each_part_of_a_step_has_a_cause(tmp_path: Path) -> None:
    (rank,) = read_ranks([made(tmp_path / "made.json.gz")])
    numbers, *_ = rank.windows
    assert list(numbers) == [10, 11, 12, 13]
    first = {name: values[0] for name, values in rank.uses.items()}
    known = {"computing": 360, "communication": 60, "copies": 0, "data": 200, "synchronisation": 40, "launch": 290}
    assert first == pytest.approx(known | {"queued": 50, "unknown": 0})
    assert rank.uses["unknown"][-1] == pytest.approx(240)  # after the last kernel
    assert sum(rank.uses.values()) == pytest.approx(rank.lengths)
    phases = {name: list(values) for name, values in rank.phases.items()}
    assert phases == {
        name: [value] * 4 for name, value in (("data_wait", 200), ("forward", 300), ("backward", 300))
    } | {"other": [200] * 4}
    assert hidden(rank) == pytest.approx(0.25)


def test_operators_kernels_memory_and_flames(tmp_path: Path) -> None:
    (rank,) = read_ranks([made(tmp_path / "made.json.gz")])
    rows = {row.name: row for row in operators([rank])}
    linear, mm = rows["aten::linear"], rows["aten::mm"]
    assert (linear.calls, linear.own, linear.total, linear.device) == (4, 4 * (100 - 50 - 5), 400, 400)
    assert (mm.own, mm.device, linear.shapes) == (4 * 45, 800, {"[[8, 4], [2, 4]]": 4})
    (gemm, *_) = kernels([rank])
    assert (gemm.name, gemm.calls, gemm.total, gemm.by) == ("gemm", 8, 4 * 260, {"aten::mm": 4, "backward": 4})
    (held,) = memory(rank)
    assert (held.device, list(held.held)) == ("device 0", [64, 128, 192, 256])
    assert held.largest == (("aten::mm", 256, 4, 640),)
    host, device = merged(rank)
    assert {host.names.keys() >= {"fetch", "aten::mm"}, device.total == 4 * 440} == {True}
    step = in_time(rank, 1, "one")
    assert (step.total, [name for _, name in step.lanes]) == (STEP, ["training thread", "stream 20", "stream 21"])


def test_ranks_and_baselines_are_compared(tmp_path: Path) -> None:
    paths = [made(tmp_path / f"{rank}.json.gz", rank=rank, slower=200.0 * rank) for rank in (1, 0)]
    ranks = read_ranks(paths)
    assert [rank.number for rank in ranks] == [0, 1]
    assert compared(ranks).work == pytest.approx(np.array([[940.0] * 4] * 2))
    (change, *_) = changes([ranks[0]], [ranks[1]])
    assert (change.name, change.more, change.calls) == ("gemm", pytest.approx(200), (2, 3))
    unknown = read_ranks([made(tmp_path / f"x{place}.json", rank=None) for place in range(2)])
    assert [rank.number for rank in unknown] == [0, 1]


def test_rules_find_their_evidence_in_the_trace(tmp_path: Path) -> None:
    (rank,) = read_ranks([made(tmp_path / "made.json.gz", steps=8)])
    causes = [found["cause"] for found in traced_record(rank).items("findings")]
    assert "loader" in causes
    assert places(rank)["synchronisation"] == (520, 610)
    assert [slow.length for slow in slowest(rank)] == [STEP] * 3


@pytest.mark.parametrize(("major", "found"), [(8, True), (7, False), (None, False), ("8", False)])
def test_float32_products_are_told_by_the_gpu_that_a_trace_names(tmp_path: Path, major: Any, found: bool) -> None:
    trace = json.loads(made(tmp_path / "made.json", steps=8).read_text().replace('"gemm"', '"ampere_sgemm_128x64_tn"'))
    trace["deviceProperties"] = [{"id": 1, "computeMajor": 9}, {"id": 0, "computeMajor": major, "computeMinor": 0}]
    path = tmp_path / "products.json"
    path.write_text(json.dumps(trace))
    (rank,) = read_ranks([path])
    assert ("precision" in [one["cause"] for one in traced_record(rank).items("findings")]) == found


def test_a_cut_file_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    whole = made(tmp_path / "made.json").read_bytes()
    events = list(Scan(tmp_path / "made.json"))
    path = tmp_path / "cut.json"
    for length in range(60, len(whole) - 3, 997):
        path.write_bytes(whole[:length])
        scan = Scan(path)
        found = list(scan)
        assert found == events[: len(found)]
        assert abs(len(found) - len(events) * length / len(whole)) < 4
        assert scan.fault
    path.write_bytes(whole[:5000] + b"\xff%%{" + whole[5000:])
    scan = Scan(path)
    assert 0 < len(list(scan)) < len(events)
    assert scan.fault == "is cut off or damaged"


@pytest.mark.skipif(not (DATA / "traces").exists(), reason="needs real data: the public traces")
@pytest.mark.parametrize("name", sorted(json.loads(HTA.read_text())["traces"]))
def test_figures_are_those_of_hta(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert main([str(DATA / "traces" / name)]) == 0
    recorded = json.loads(HTA.read_text())
    of_kernels = [figure for figure in recorded["traces"][name] if figure.startswith("kernel")]
    assert len(of_kernels) == 10
    recorded["traces"][name][of_kernels[-1]] *= 1.02
    other = tmp_path / "other.json"
    other.write_text(json.dumps(recorded))
    monkeypatch.setattr("strobe.validation.traces.HTA", other)
    assert main([str(DATA / "traces" / name)]) == 1


def test_operators_are_those_of_key_averages(tmp_path: Path) -> None:
    model, batch = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)), torch.ones(4, 8)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profiler:
        for _ in range(3):
            model(batch).sum().backward()
            profiler.step()
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    (rank,) = read_ranks([tmp_path / "trace.json"])
    ours = {row.name: (row.calls, row.own, row.total) for row in operators([rank])}
    averages = [row for row in profiler.key_averages() if not row.key.startswith("ProfilerStep")]
    assert len(averages) > 10
    for row in averages:
        theirs = (row.count, row.self_cpu_time_total, row.cpu_time_total)
        assert ours[row.key] == pytest.approx(theirs, rel=0.01, abs=0.5)
    assert read_columns(tmp_path / "trace.json").rank is None


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_operators_of_several_ranks_are_those_of_torch(ranks: int) -> None:
    assert of_gloo(ranks) < 0.01
