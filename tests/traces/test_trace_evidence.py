"""What traces tell of a run: small ones made by hand, real ones of GPUs where they are, and one of a real loader."""

import copy
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from strobe.attach.record import report
from strobe.callbacks.normalise import normalise
from strobe.callbacks.tracefile import read_trace, write_trace
from strobe.records.columns import columns_of, read_columns
from strobe.records.run import Record
from strobe.report.trace_page import first_trace
from strobe.traces import evidence as module
from strobe.traces import rank
from strobe.traces.evidence import read_evidence, trace_evidence
from strobe.traces.operators import uses_tensor_cores
from strobe.traces.rank import RankTrace
from support.pages import complete
from support.places import DATA
from support.runs import Ended

Event = dict[str, Any]
MAIN, AUTOGRAD, PINNING = 7, 8, 9
GEMM = "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64_16x6_nn_align4>(Params)"
ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4>(int)"


def event(name: str, cat: str, ts: float, dur: float, tid: int = MAIN, pid: int = 1, **args: Any) -> Event:  # noqa: PLR0917
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def step(number: int, ts: float, dur: float) -> Event:
    return event(f"ProfilerStep#{number}", "user_annotation", ts, dur)


def launched(name: str, cat: str, ts: float, dur: float, by: Event, **args: Any) -> list[Event]:
    """Work of the GPU and the call that submits it."""
    number = by["ts"]
    by["args"]["correlation"] = number
    return [by, event(name, cat, ts, dur, 20, 0, device=0, correlation=number, **args)]


def call(name: str, ts: float, dur: float, tid: int = MAIN, **args: Any) -> Event:
    return event(name, "cuda_runtime", ts, dur, tid, **args)


def copied(kind: str, ts: float, dur: float, by: float, lasting: float = 5, **args: Any) -> list[Event]:
    return launched(f"Memcpy {kind}", "gpu_memcpy", ts, dur, call("cudaMemcpyAsync", by, lasting), **args)


def seen(*events: Event) -> RankTrace:
    return RankTrace(columns_of(events, Path("made.json"), {}), 0)


def evidence(*events: Event) -> dict[str, Any]:
    found = trace_evidence(seen(*events))
    assert found is not None
    json.dumps(found, allow_nan=False)
    return found


def test_a_trace_without_steps_tells_nothing() -> None:
    assert trace_evidence() is None
    named = {"ph": "M", "name": "process_name"}
    assert trace_evidence(seen(event("aten::mm", "cpu_op", 0, 5), named)) is None
    assert trace_evidence(seen(step(1, 0, 0))) is None


def test_a_trace_of_a_cpu_has_no_figures_of_a_gpu() -> None:
    found = evidence(step(4, 100, 50), step(5, 150, 70), event("aten::item", "cpu_op", 110, 5))
    shares = ("device_busy", "tensor_core_share", "float32_product_share")
    absent = ("busy_seconds", "sync_seconds", "kernels_per_step", "kernel_seconds_median", *shares)
    known = {"steps": 2, "step_seconds": pytest.approx(60e-6), "syncs": [], "copies": [], "loader_workers": {}}
    assert found == known | dict.fromkeys(absent)


def test_a_gpu_is_busy_while_any_stream_works_within_the_steps() -> None:
    found = evidence(
        step(1, 1000, 100),
        step(2, 1150, 100),  # a validation lay between
        event(ELEMENTWISE, "kernel", 990, 20, 20, 0, device=0),  # 10 within
        event(ELEMENTWISE, "kernel", 1020, 30, 20, 0, device=0),
        event("Memset (Device)", "gpu_memset", 1030, 40, 21, 0, device=0),  # to 1070, overlaps
        event(ELEMENTWISE, "kernel", 1090, 80, 20, 0, device=0),  # 10 in the first, 20 in the second step
        event(ELEMENTWISE, "kernel", 1000, 60, 30, 1, device=1),  # another GPU, less busy
        event("forward", "gpu_user_annotation", 1000, 250, 20, 0),
    )
    assert found["device_busy"] == pytest.approx((10 + 50 + 10 + 20) / 200)
    assert found["busy_seconds"] == pytest.approx((50 + 80) / 2e6)  # what was submitted within them, to its end


def test_work_counts_for_the_step_that_submits_it() -> None:
    found = evidence(
        step(1, 1000, 100),
        *launched(GEMM, "kernel", 1200, 30, call("cudaLaunchKernel", 1010, 5)),  # done after the step
        *launched(ELEMENTWISE, "kernel", 1240, 10, call("cudaLaunchKernel", 1020, 5)),
        *launched(ELEMENTWISE, "kernel", 1010, 500, call("cudaLaunchKernel", 900, 5)),  # of an earlier one
        *copied("HtoD (Pageable -> Device)", 1300, 8, 1030, bytes=64),
        *copied("HtoD (Pageable -> Device)", 1310, 4, 1040, bytes=32),
        *copied("HtoD (Pinned -> Device)", 1320, 20, 1050, bytes=9),
        *copied("DtoD (Device -> Device)", 1340, 1, 1060),
    )
    assert found["kernels_per_step"] == 2
    assert found["kernel_seconds_median"] == pytest.approx(20e-6)
    assert found["tensor_core_share"] == pytest.approx(0.75)
    assert found["float32_product_share"] == 0
    kinds = [(copy["kind"], round(1e6 * copy["seconds"], 3), copy["bytes"], copy["calls"]) for copy in found["copies"]]
    assert kinds == [("HtoD pinned", 20, 9, 1), ("HtoD pageable", 12, 96, 2), ("DtoD", 1, 0, 1)]


def test_a_gpu_behind_a_host_that_runs_ahead_is_busy_with_all_that_steps_gave_it() -> None:
    """Three steps are submitted in 12 each; the GPU works on each for 100 of 100, on two streams."""
    steps = [step(number, 1000 + 12 * number, 12) for number in range(3)]
    work = [
        one
        for number in range(3)
        for start, length in ((0, 60), (60, 40))
        for one in launched(
            GEMM,
            "kernel",
            1005 + 100 * number + start,
            length,
            call("cudaLaunchKernel", 1002 + 12 * number + start // 10, 1),
        )
    ]
    beside = launched("Memset (Device)", "gpu_memset", 1010, 30, call("cudaMemsetAsync", 1003, 1))
    earlier = launched(GEMM, "kernel", 990, 15, call("cudaLaunchKernel", 980, 1))
    found = evidence(*steps, *work, *beside, *earlier)
    assert found["step_seconds"] == pytest.approx(12e-6)
    assert found["device_busy"] == 1
    assert found["busy_seconds"] == pytest.approx(100e-6)
    cut = evidence(*steps, *earlier, *launched(GEMM, "kernel", 1005, 31, call("cudaLaunchKernel", 985, 1)))
    assert cut["busy_seconds"] == pytest.approx(12e-6)  # no less than in the steps, where a recorder stopped early


@pytest.mark.parametrize(
    ("kernel", "used"),
    [
        ("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4>>(Flash_fwd_params)", True),
        ("void pytorch_flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<64>>(Flash_fwd_params)", True),
        ("void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Traits>(Flash_bwd_params)", True),
        ("void pytorch_flash::flash_bwd_dot_do_o_kernel<true, Traits>(Flash_bwd_params)", False),
        ("void pytorch_flash::flash_fwd_splitkv_combine_kernel<Traits>(Flash_fwd_params)", False),
        ("fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::Params)", True),
        ("fmha_cutlassB_f16_aligned_64x64_k64_sm75(PyTorchMemEffAttention::Params)", True),
        ("fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::Params)", True),
        ("fmha_cutlassF_f32_aligned_64x64_rf_sm75(PyTorchMemEffAttention::Params)", False),
        ("fmha_cutlassF_f16_aligned_64x64_rf_sm50(PyTorchMemEffAttention::Params)", False),
        ("triton_tem_fused__to_copy_addmm_relu_3", True),
        ("triton_tem_fused_bmm_1", True),
        ("triton_poi_fused_add_mul_0", False),
        ("triton_red_fused__softmax_2", False),
    ],
)
def test_kernels_of_attention_and_of_compiled_products_use_tensor_cores(kernel: str, used: bool) -> None:
    assert uses_tensor_cores(kernel) is used


def synchronising() -> list[Event]:
    """Two steps: `.item()` in each forward, a mask in one backward, a bare wait, and others that do not count."""
    found = []
    for number, start in enumerate((1000, 2000)):
        found += [
            step(number, start, 900),
            event("forward", "user_annotation", start + 100, 300),
            event("mine", "user_annotation", start + 110, 200),
            event("aten::item", "cpu_op", start + 120, 100),
            event("aten::_local_scalar_dense", "cpu_op", start + 121, 98),
            *copied("DtoH (Device -> Pageable)", start + 190, 2, start + 130, lasting=65),
            call("cudaStreamSynchronize", start + 200, 5),
        ]
    return [
        *found,
        event("backward", "user_annotation", 1400, 300),
        event("autograd::engine::evaluate_function: IndexBackward0", "cpu_op", 1410, 200, AUTOGRAD),
        event("IndexBackward0", "cpu_op", 1411, 190, AUTOGRAD),
        event("aten::index", "cpu_op", 1420, 100, AUTOGRAD),
        event("aten::nonzero", "cpu_op", 1430, 60, AUTOGRAD),
        call("cudaStreamSynchronize", 1440, 30, AUTOGRAD),
        call("hipDeviceSynchronize", 2800, 11),
        call("cudaEventSynchronize", 1100, 400, PINNING),  # of a thread that training does not wait for
        call("cudaStreamSynchronize", 1950, 30),  # between the steps
        call("cudaMemcpyAsync", 1710, 30),
        call("cudaEventQuery", 1750, 30),
    ]


def test_waits_are_told_by_operator_and_phase() -> None:
    found = evidence(*synchronising())
    syncs = [(s["name"], s["phase"], round(1e6 * s["seconds"], 3), s["calls"]) for s in found["syncs"]]
    assert syncs == [
        ("aten::item", "forward", 100, 1),  # with its own time: without the call, that would be saved too
        ("aten::index", "backward", 50, 0.5),
        ("hipDeviceSynchronize", None, 5.5, 0.5),
    ]
    assert found["sync_seconds"] == pytest.approx(90.5e-6)


def test_calls_for_memory_are_told_by_themselves_whatever_operator_needs_it() -> None:
    """As after `torch.cuda.empty_cache()`: it waits for the device, and each size is then asked for anew."""
    found = evidence(
        step(1, 1000, 900),
        call("cudaFree", 1010, 50),
        call("cudaFree", 1070, 30),
        event("forward", "user_annotation", 1100, 300),
        event("aten::linear", "cpu_op", 1110, 100),
        event("aten::empty", "cpu_op", 1120, 40),
        call("cudaMalloc", 1125, 30),
        event("aten::relu", "cpu_op", 1300, 50),
        call("cudaMalloc", 1310, 10),
        *launched(ELEMENTWISE, "kernel", 1360, 10, call("cudaLaunchKernel", 1340, 5)),
    )
    assert [(sync["name"], sync["phase"], sync["calls"]) for sync in found["syncs"]] == [
        ("cudaFree", None, 2),
        ("cudaMalloc", "forward", 2),
    ]
    assert [round(1e6 * sync["seconds"]) for sync in found["syncs"]] == [80, 40]


def test_a_trace_tells_the_same_when_it_was_normalised() -> None:
    events = synchronising()
    for number, each in enumerate(events):
        each["args"]["External id"] = number + 1
    trace = {"traceEvents": copy.deepcopy(events)}
    assert normalise(trace)
    assert evidence(*trace["traceEvents"]) == evidence(*events)


def test_old_categories_count_too() -> None:
    old = {"kernel": "Kernel", "gpu_memcpy": "Memcpy", "cuda_runtime": "Runtime", "cpu_op": "Operator"}
    events = [event | {"cat": old.get(event["cat"], event["cat"])} for event in synchronising()]
    assert evidence(*events) == evidence(*synchronising())


def worker(pid: int, title: str, *batches: tuple[float, float]) -> list[Event]:
    named = {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": title}}
    spans = [event("batch", "loader", start, end - start, pid, pid) for start, end in batches]
    reads = [event("read", "loader", start, (end - start) / 2, pid, pid) for start, end in batches]
    return [named, *spans, *reads, event("batch 3 waiting", "loader", 0, 5000, pid + 1, pid)]


def test_workers_are_busy_while_they_have_a_training_batch() -> None:
    found = evidence(
        step(1, 1000, 100),
        step(2, 1100, 100),
        *worker(50, "loader worker 0", (900, 1020), (1050, 1130), (1190, 1500)),
        *worker(60, "loader worker 1 (val), 3 spans lost", (1000, 1200)),
        *worker(70, "loader worker 0", (1010, 1030)),  # one that was started anew
        *worker(80, "loader in the training process", (1000, 1010)),
        event("batch (val)", "loader", 1000, 200, 90, 60),
        event("batch", "loader", 1000, 200, 90, 91),  # of a process without a name
    )
    assert found["loader_workers"] == pytest.approx({"worker 0": 0.6, "worker 1": 1.0, "training process": 0.05})


def test_traces_of_a_run_are_taken_together() -> None:
    first, second = (seen(step(1, 0, length), *worker(50, "loader worker 0", (0, 100))) for length in (100, 300))
    found = trace_evidence(first, second)
    assert found is not None
    assert found["steps"] == 2
    assert found["step_seconds"] == pytest.approx(200e-6)
    assert found["loader_workers"] == pytest.approx({"worker 0": 0.5})


@pytest.mark.parametrize(
    "odd",
    [
        {"ph": "X", "cat": "kernel", "name": None, "ts": 1010, "dur": 5},
        {"ph": "X", "cat": "gpu_memcpy", "name": "CopyDeviceToHost", "ts": 1010, "dur": 5, "args": {"bytes": "many"}},
        {"ph": "X", "cat": "kernel", "name": "k", "ts": "soon", "dur": 5},
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaStreamSynchronize", "ts": 1010, "dur": 5, "args": [1]},
        {"ph": "M", "name": "process_name", "pid": 1},
        {"cat": ["kernel"]},
        {"ph": "X", "cat": "kernel", "name": "k", "pid": [0], "ts": 1010, "dur": 5},
        {"ph": "X", "cat": "kernel", "name": "k", "ts": 1010, "dur": float("inf")},
    ],
)
def test_odd_events_do_no_harm(odd: Event) -> None:
    assert evidence(*synchronising(), odd)["syncs"] == evidence(*synchronising())["syncs"]


def written(folder: Path, number: int, *events: Event) -> Path:
    path = folder / f"host_1_rank0.{number:019d}.pt.trace.json.gz"
    write_trace(path, {"traceEvents": list(events)})
    return path


def test_the_newest_traces_are_read(tmp_path: Path) -> None:
    paths = [written(tmp_path, number, step(number, 0, 10 * number)) for number in (9, 1, 2, 3, 10)]
    found = read_evidence(paths)
    assert found is not None
    assert found["steps"] == module.NEWEST == 3
    assert found["step_seconds"] == pytest.approx((10 + 9 + 3) * 10e-6 / 3)
    assert read_evidence([]) is None


def test_damaged_and_huge_traces_are_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = written(tmp_path, 1, step(1, 0, 50))
    cut = written(tmp_path, 2, step(2, 0, 50))
    cut.write_bytes(cut.read_bytes()[:-20])
    huge = written(tmp_path, 3, *(step(number, 100 * number, 100) for number in range(1000)))
    monkeypatch.setattr(module, "MOST_BYTES", 10_000)
    caplog.set_level(logging.WARNING)
    found = read_evidence([good, cut, huge])
    assert found is not None
    assert found["steps"] == 1
    half = written(tmp_path, 4, *({"name": str(number)} for number in range(5000)))
    half.write_bytes(half.read_bytes()[: half.stat().st_size // 2])
    assert module.text_bytes(half) > 10_000  # is what its last bytes tell
    assert read_evidence([half]) is None
    told = [next(line for line in caplog.messages if path.name in line) for path in (cut, huge, half)]
    assert ["too large" in line for line in told] == [False, True, False]
    assert "incomplete" in told[2]
    assert len(caplog.messages) == 3
    assert read_evidence([cut, tmp_path / "absent.json"]) is None


def test_a_run_s_end_reads_each_trace_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the diagnosis, for what TensorBoard shows, and for the page."""
    paths = [written(tmp_path, number, step(1, 0, 50)) for number in (1, 2)]
    read: list[Path] = []
    monkeypatch.setattr(rank, "read_columns", lambda path: read.append(path) or read_columns(path))
    summary = complete() | {"traces": [path.name for path in paths], "script": None}
    shown: list[object] = []
    report(summary, {}, tmp_path, show=lambda again: shown.append(first_trace(tmp_path, Record(summary), again)))
    assert sorted(read) == paths
    assert (tmp_path / "traces.html").is_file()
    assert shown != [None]


real = pytest.mark.skipif(not (DATA / "traces").exists(), reason="needs real data: the public traces")


@real
def test_a_real_trace_of_a_gpu() -> None:
    a100 = DATA / "traces" / "gpu_training_a100.json.gz"
    found = read_evidence([a100])
    assert found is not None
    ranges = [event for event in read_trace(a100)["traceEvents"] if event.get("ph") == "X"]
    steps = [event for event in ranges if event["name"].startswith("ProfilerStep#")]
    assert found["steps"] == len(steps) == 6
    assert found["step_seconds"] == pytest.approx(sum(step["dur"] for step in steps) / 6e6)
    assert found["kernels_per_step"] == sum(event["cat"] == "kernel" for event in ranges) / 6

    # A point in time at each microsecond, against the union of intervals.
    busy: set[int] = set()
    for each in ranges:
        if each["cat"] in {"kernel", "gpu_memcpy", "gpu_memset"}:
            busy.update(range(each["ts"], each["ts"] + each["dur"]))
    during = [point for step in steps for point in range(step["ts"], step["ts"] + step["dur"])]
    assert found["device_busy"] == pytest.approx(len(busy.intersection(during)) / len(during))
    assert found["busy_seconds"] == pytest.approx(found["device_busy"] * found["step_seconds"], rel=0.01)  # it waits

    assert {(sync["name"], sync["phase"]) for sync in found["syncs"]} == {
        ("aten::item", "## sparse_data_dist ##"),
        ("aten::to", "## sparse_data_dist ##"),
        ("aten::to", "## wait_sparse_data_dist ##"),
    }
    copies = {e["args"]["correlation"] for e in ranges if e["name"] == "Memcpy DtoH (Device -> Pageable)"}
    waits = [
        event
        for event in ranges
        if event["name"] == "cudaStreamSynchronize"
        or (event["name"] == "cudaMemcpyAsync" and event["args"]["correlation"] in copies)
    ]
    assert found["sync_seconds"] == pytest.approx(sum(event["dur"] for event in waits) / 6e6)
    assert sum(sync["calls"] for sync in found["syncs"]) == len(copies) / 6
    assert 0.1 < found["tensor_core_share"] < 0.2


@real
def test_real_traces_of_another_gpu_and_of_a_cpu() -> None:
    found = read_evidence([DATA / "traces" / "gpu_rank0_no_dataloader.json.gz"])
    assert found is not None
    assert found["device_busy"] > 0.95
    assert found["busy_seconds"] > 1.15 * found["step_seconds"]  # its host runs ahead
    assert found["syncs"] == []  # that of the profiler itself, which ends the recording, is none of the steps'
    assert found["tensor_core_share"] == 0  # Volta in full precision
    assert 0.2 < found["float32_product_share"] < 0.3
    assert [copy["kind"] for copy in found["copies"]] == ["DtoD"]
    found = read_evidence([DATA / "traces" / "cpu_only.json.gz"])
    assert found is not None
    assert (found["steps"], found["device_busy"]) == (1, None)


def test_a_runs_own_trace_shows_its_workers(train: Any) -> None:
    profiled = ("profiler=trace", "profiler.active=2", "profiler.repeat=1")
    ended: Ended = train(*profiled, "engine.num_workers=1", "trainer.limit_train_batches=5")
    assert ended.code == 0
    found = read_evidence([ended.directory / path for path in ended.summary["traces"]])
    assert found is not None
    assert found["steps"] == 2
    assert found["loader_workers"].keys() == {"worker 0"}
    assert 0 < found["loader_workers"]["worker 0"] <= 1
    assert found["device_busy"] is None
