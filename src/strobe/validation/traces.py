"""The page of traces against HolisticTraceAnalysis and torch: the same figures, side by side.

python -m strobe.validation.traces TRACE...     Strobe's figures beside the recorded ones of HTA
python -m strobe.validation.traces --hta TRACE...   HTA's own, recorded anew: needs pip install HolisticTraceAnalysis
python -m strobe.validation.traces --gloo 4     operators of so many ranks, recorded now, against key_averages()
"""

import argparse
import importlib
import json
import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from strobe.traces.compared import hidden
from strobe.traces.operators import kernels, operators
from strobe.traces.rank import RankTrace, read_ranks

HTA = Path(__file__).with_name("traces_hta.json")
TOP = 10  # kernels


def in_terms_of_hta(rank: RankTrace) -> dict[str, float]:
    """What both define: temporal breakdown and overlap from the first to the last work on a device; sums of kernels."""
    busy = rank.busy
    span = float(busy["any"].ends[-1] - busy["any"].starts[0])
    computing = busy["computing"].total
    figures = {"idle_us": span - busy["any"].total, "computing_us": computing, "whole_us": span}
    figures["other_us"] = busy["any"].total - computing
    if (share := hidden(rank)) is not None:
        figures["overlap_percent"] = 100 * share
    return figures | {f"kernel {row.name[:100]}": row.total for row in kernels([rank])[:TOP]}


def of_hta(path: Path) -> dict[str, float]:
    """The same, by HTA, with times as they are in the file and without leaving out the last step."""
    os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"
    analysis: Any = importlib.import_module("hta.trace_analysis").TraceAnalysis

    trace = analysis(trace_files={0: str(path)}, include_last_profiler_step=True)
    (whole,) = trace.get_temporal_breakdown(visualize=False).to_dict("records")
    names = {"idle_time(us)": "idle_us", "compute_time(us)": "computing_us", "kernel_time(us)": "whole_us"}
    figures = {ours: float(whole[theirs]) for theirs, ours in names.items()}
    figures["other_us"] = float(whole["non_compute_time(us)"])
    (overlap,) = trace.get_comm_comp_overlap(visualize=False)["comp_comm_overlap_pctg"]
    if not math.isnan(overlap):  # there is communication
        figures["overlap_percent"] = float(overlap)
    each = trace.get_gpu_kernel_breakdown(False, 1.0, 10**6, include_memory_kernels=True)[1]
    for row in each.sort_values("sum (us)", ascending=False).head(TOP).to_dict("records"):
        figures[f"kernel {row['name'][:100]}"] = float(row["sum (us)"])
    return figures


def of_gloo(ranks: int) -> float:
    """Record so many gloo ranks; the largest relative difference of an operator's calls, own and total time."""
    spawn: Any = importlib.import_module("torch.multiprocessing.spawn").spawn

    with TemporaryDirectory(prefix="strobe-") as folder:
        spawn(_train, (ranks, folder), ranks)
        worst = 0.0
        for place in range(ranks):
            (rank,) = read_ranks([Path(folder, f"{place}.json")])
            ours = {row.name: (row.calls, row.own, row.total) for row in operators([rank])}
            for name, asynchronous, *theirs in json.loads(Path(folder, f"{place}.averages.json").read_text()):
                for here, there in zip(ours[name], theirs, strict=True) if not asynchronous else ():
                    worst = max(worst, abs(here - there) / max(there, 1.0))
    return worst


def _train(rank: int, ranks: int, folder: str) -> None:
    import torch
    from torch.distributed import destroy_process_group, init_process_group

    torch.set_num_threads(1)
    init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        for _ in range(4):
            model(torch.ones(16, 64)).sum().backward()
            optimizer.step()
            profiler.step()
    profiler.export_chrome_trace(f"{folder}/{rank}.json")
    rows: list[Any] = []
    for row in profiler.key_averages():
        if not row.key.startswith("ProfilerStep"):  # torch gives what ends on another thread no own time
            rows.append((row.key, row.key.startswith("gloo:"), row.count, row.self_cpu_time_total, row.cpu_time_total))
    Path(folder, f"{rank}.averages.json").write_text(json.dumps(rows))
    destroy_process_group()


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures side by side; returns 1 if one differs by more than 1%."""
    parser = argparse.ArgumentParser(
        prog="python -m strobe.validation.traces", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("traces", nargs="*", type=Path, metavar="TRACE")
    parser.add_argument("--hta", action="store_true", help=f"ask HTA itself, and record its answers in {HTA.name}")
    parser.add_argument("--gloo", type=int, metavar="RANKS", help="record so many, and compare with key_averages()")
    options = parser.parse_args(arguments)
    worst = 0.0
    if options.gloo:
        worst = of_gloo(options.gloo)
        print(f"{options.gloo} ranks: operators differ from key_averages() by at most {worst:.2%}")
    recorded: dict[str, Any] = json.loads(HTA.read_text()) if HTA.is_file() else {"made_by": "", "traces": {}}
    for path in options.traces:
        if options.hta:
            recorded["made_by"] = "python -m strobe.validation.traces --hta TRACE..."
            recorded["traces"][path.name] = of_hta(path)
            HTA.write_text(json.dumps(recorded, indent=1) + "\n")
        (rank,) = read_ranks([path])
        ours = in_terms_of_hta(rank)
        for name, theirs in recorded["traces"][path.name].items():
            differ = abs(ours[name] - theirs) / max(abs(theirs), 1e-9)
            worst = max(worst, differ)
            print(f"{path.name[:28]:<30}{name[:46]:<48}{ours[name]:>14,.1f}{theirs:>14,.1f}{differ:>9.3%}")
    return int(worst > 0.01)


if __name__ == "__main__":
    sys.exit(main())
