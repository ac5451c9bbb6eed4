"""A trace of a GPU that is made by hand, so that each figure of it is known."""

from pathlib import Path
from typing import Any

from strobe.callbacks.tracefile import write_trace

STEP = 1000  # microseconds
MAIN, STREAM, NCCL = 7, 20, 21


def made(path: Path, steps: int = 4, *, rank: int | None = 0, slower: float = 0.0) -> Path:
    """Steps of 1,000 µs; each computes for 360 (and ``slower``), communicates for 80, of which 20 are hidden.

    It idles for data (200), after a synchronisation (40), queued (50), and before launches (290).
    """
    events: list[dict[str, Any]] = []

    def add(name: str, cat: str, start: float, end: float, tid: int = MAIN, **args: Any) -> None:
        where = {"pid": int(tid == MAIN), "tid": tid, "ts": start, "dur": end - start}
        events.append({"ph": "X", "cat": cat, "name": name, **where, "args": args})

    def launched(name: str, call: float, start: float, end: float, stream: int = STREAM) -> None:
        add("cudaLaunchKernel", "cuda_runtime", at + call, at + call + 5, correlation=at + call)
        add(name, "kernel", at + start, at + end, stream, device=0, stream=stream, correlation=at + call)

    for number in range(steps):
        at = 5_000 + STEP * number

        add(f"ProfilerStep#{10 + number}", "user_annotation", at, at + STEP)
        add("fetch", "user_annotation", at, at + 200)
        add("forward", "user_annotation", at + 200, at + 500)
        add("aten::linear", "cpu_op", at + 205, at + 305, **{"Input Dims": [[8, 4], [2, 4]]})
        add("aten::mm", "cpu_op", at + 210, at + 260)
        launched("gemm", 220, 250, 450)
        launched("add_kernel", 300, 500, 600)
        add("backward", "user_annotation", at + 500, at + 800)
        add("cudaStreamSynchronize", "cuda_runtime", at + 520, at + 610, correlation=at + 520)
        launched("gemm", 620, 640, 700)
        launched("ncclDevKernel_AllReduce", 660, 680, 760, NCCL)
        if slower:
            launched("gemm", 770, 771, 771 + slower)
        memory = {"Bytes": 64 * (number + 1), "Total Allocated": 64 * (number + 1), "Device Id": 0, "Device Type": 1}
        instant = {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": MAIN, "ts": at + 215}
        events.append({**instant, "args": memory})
    told = {} if rank is None else {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 2}}
    write_trace(path, {"schemaVersion": 1, **told, "traceEvents": events})
    return path
