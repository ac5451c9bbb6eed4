"""What looking costs: the profilers' effect on the training that they watch, each against the same steps unwatched.

    python -m strobe.bench.profiling [PART ...] [KEY=VALUE ...]

Parts (default: all): `timers` (the phase timers that are always on), `idle` (a trace callback that waits), `active`
(recorded steps with each option, bytes a step, the stall at a cycle's end), `spans` (loader workers' spans), `python`
(what event and sampling profiles do to a step's shares). Watched and unwatched pieces take turns in one process; ratios
are of medians within a round, and the interval is over rounds. KEY=VALUE goes to the configuration, as in train.py.
"""

import sys
import tempfile
import time
import timeit
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import torch
from lightning import Trainer
from lightning.pytorch.callbacks import Callback
from omegaconf import DictConfig
from rich.console import Console
from rich.table import Table
from torch.utils.data import DataLoader, TensorDataset

from strobe.app.build.instantiate import build
from strobe.app.config.compose import configure
from strobe.app.run.train import quieten
from strobe.bench.watching import Blocks, Switched, Timed, Times, Tiny
from strobe.callbacks import PythonProfiler, StepRecorder, TraceProfiler
from strobe.callbacks.spans import SpanFolder, span
from strobe.measure import environment
from strobe.measure.statistics import median_interval
from strobe.process.launch import quieten_kineto
from strobe.records.steps import read_rows

ROUNDS = 5
CYCLE: dict[str, Any] = {"skip_first": 2, "wait": 3, "warmup": 1, "active": 3, "repeat": 2}
STEPS = 2 + 2 * 7  # first steps that pay for allocation, and two cycles
OPTIONS: dict[str, dict[str, Any]] = {
    "nothing more": {"record_shapes": False},
    "record_shapes (default)": {},
    "+ with_flops": {"with_flops": True},
    "+ profile_memory": {"profile_memory": True},
    "+ with_stack": {"with_stack": True},
    "all": {"with_flops": True, "profile_memory": True, "with_stack": True},
}
NEVER = 10**9  # steps


def timers(cfg: DictConfig, folder: Path, console: Console) -> None:
    """The phase timers and their row a step, in short trainings with and without them by turns."""
    pairs = []
    for turn in range(6 * ROUNDS):
        seconds = {}
        for present in (turn % 2 == 0, turn % 2 == 1):
            watch = Blocks()
            train_tiny(10 * Blocks.block, watch, *([StepRecorder(folder / "steps.csv")] if present else []))
            seconds[present] = median(watch.seconds)
        pairs.append((seconds[True], seconds[False]))
    report_cost("timers", pairs, cfg, folder, console)


def idle(cfg: DictConfig, folder: Path, console: Console) -> None:
    """A waiting trace callback: microseconds a step in a tiny training, as a share of the configured one's step."""
    profiler = TraceProfiler(folder / "idle", skip_first=NEVER)
    switched = Switched(profiler)
    train_tiny(80 * ROUNDS * Switched.block, switched, profiler)
    pairs = zip(switched.seconds[True], switched.seconds[False], strict=False)
    report_cost("idle", list(pairs), cfg, folder, console)


def report_cost(name: str, pairs: list[tuple[float, float]], cfg: DictConfig, folder: Path, console: Console) -> None:
    """Print what a step costs more with something than without, also as a share of the configured training's step."""
    cost = median_interval([1e6 * (present - absent) for present, absent in pairs])
    step = 1e6 * median(run_traced(cfg, folder, {}).unwatched)
    shares = {key: 100 * value / step for key, value in cost.items() if value is not None}
    console.print(
        f"{name}: {cost['median']:.1f} us a step ({cost['low']:.1f} to {cost['high']:.1f}), "
        f"{shares['median']:.3f}% ({shares['low']:.3f} to {shares['high']:.3f}) of a step of {step / 1e3:.1f} ms"
    )


def train_tiny(steps: int, *callbacks: Callback) -> None:
    """So many steps of a training that does next to nothing."""
    quiet: dict[str, Any] = dict.fromkeys(
        ("enable_progress_bar", "enable_model_summary", "enable_checkpointing"), False
    )
    trainer = Trainer(accelerator="cpu", max_epochs=1, logger=False, callbacks=list(callbacks), **quiet)
    trainer.fit(Tiny(), DataLoader(TensorDataset(torch.randn(4 * steps, 4)), batch_size=4))


def active(cfg: DictConfig, folder: Path, console: Console) -> None:
    """Recorded steps against the waiting ones of the same runs, for each option."""
    found: dict[str, list[Times]] = {name: [] for name in OPTIONS}
    for turn in range(ROUNDS):
        for name in sorted(OPTIONS, reverse=turn % 2 == 1):
            found[name].append(run_traced(cfg, folder / f"{turn}-{name}", OPTIONS[name]))
    table = Table("trace with", "recorded / waiting step", "kB a step", "stall a cycle, ms", title="active")
    for name, runs in found.items():
        ratio = median_interval([median(run.watched) / median(run.unwatched) for run in runs])
        size = median(run.step_bytes for run in runs) / 1e3
        stall = median_interval([1e3 * median(run.stalls) for run in runs])
        table.add_row(
            name,
            _interval(ratio, ".3f"),
            f"{size:.0f}",
            f"{stall['median']:.0f} ({stall['low']:.0f} to {stall['high']:.0f})",
        )
    console.print(table)


def run_traced(cfg: DictConfig, folder: Path, options: dict[str, Any]) -> Times:
    """Train with a trace callback."""
    profiler = Timed(folder / "traces", **CYCLE, **options)
    train(cfg, folder, profiler)
    profiler.times.step_bytes = median(path.stat().st_size / CYCLE["active"] for path in profiler.traces)
    return profiler.times


def spans(cfg: DictConfig, folder: Path, console: Console) -> None:
    """Loading alone, in this process, where every microsecond counts: batch by batch with and without spans."""
    parts = build(cfg, folder)
    parts.data.trainer = parts.trainer
    batches = parts.data.batches("train", parts.data.batch_size, shuffle=True)

    def load() -> Iterator[float]:
        while True:
            since = time.perf_counter()
            for _ in batches:
                yield time.perf_counter() - since
                since = time.perf_counter()

    times, recorder = load(), SpanFolder(folder)
    for name in ("switched off / absent", "recorded / switched off"):
        ratios: list[float] = []
        for turn in range(4 * ROUNDS):
            seconds: dict[bool, list[float]] = {True: [], False: []}
            for block in range(4):
                with_it = (turn + block) % 2 == 0
                if name.startswith("recorded"):
                    recorder.start()
                    recorder.switch(with_it)
                elif with_it:
                    recorder.start()
                else:
                    recorder.close()
                next(times)  # pays for the change
                seconds[with_it] += [next(times) for _ in range(8)]
            ratios.append(median(seconds[True]) / median(seconds[False]))
        console.print(f"spans, loading {name}: {_interval(median_interval(ratios), '.4f')}")
    for on in (False, True):
        recorder.start()
        recorder.switch(on)
        each = min(timeit.repeat(_mark, number=10_000, repeat=7)) / 10_000
        batch = median(next(times) for _ in range(20))
        share = 2 * parts.data.batch_size * each / batch  # read and decode, for each file
        console.print(
            f"a span switched {'on' if on else 'off'}: {1e6 * each:.2f} us, two a file: {share:.2%} of loading"
        )
    recorder.close()


def _mark() -> None:
    with span("read", 1):
        pass


def python(cfg: DictConfig, folder: Path, console: Console) -> None:
    """What a Python profile does to a step, and to the share of it that loading seems to take."""
    seconds: dict[str, list[float]] = {kind: [] for kind in ("no", "sampling", "events")}
    shares: dict[str, list[float]] = {kind: [] for kind in seconds}
    for turn in range(ROUNDS):
        for kind in sorted(seconds, reverse=turn % 2 == 1):
            place = folder / f"{kind}-{turn}"
            place.mkdir()
            profiler = [] if kind == "no" else [PythonProfiler(place, kind=kind, skip_first=2, steps=NEVER)]
            train(cfg, place, *profiler, StepRecorder(place / "steps.csv"))
            rows = read_rows(place / "steps.csv")[4:]
            seconds[kind].append(median(row["total"] for row in rows))
            shares[kind].append(100 * median(row["data_wait"] / row["total"] for row in rows))
    table = Table("Python profile", "step / free step", "loading's share of a step", title="python")
    for kind, found in seconds.items():
        ratio = median_interval([with_it / without for with_it, without in zip(found, seconds["no"], strict=True)])
        table.add_row(kind, _interval(ratio, ".3f"), f"{_interval(median_interval(shares[kind]), '.1f')} %")
    console.print(table)


def train(cfg: DictConfig, folder: Path, *callbacks: Callback) -> None:
    """The application's training with further callbacks, the last of which does not see itself profiled."""
    torch.manual_seed(0)
    parts = build(cfg, folder)
    parts.trainer.callbacks = [c for c in parts.trainer.callbacks if not isinstance(c, StepRecorder)]  # type: ignore[attr-defined]
    parts.trainer.callbacks += callbacks  # type: ignore[attr-defined]
    parts.trainer.fit(parts.model, datamodule=parts.data)


def _interval(values: dict[str, float | None], form: str) -> str:
    return f"{values['median']:{form}} ({values['low']:{form}} to {values['high']:{form}})"


PARTS: dict[str, Callable[[DictConfig, Path, Console], None]] = {
    "timers": timers,
    "idle": idle,
    "active": active,
    "spans": spans,
    "python": python,
}


def main() -> None:
    """Measure and print."""
    overrides = [argument for argument in sys.argv[1:] if "=" in argument]
    names = [argument for argument in sys.argv[1:] if "=" not in argument] or list(PARTS)
    if unknown := [name for name in names if name not in PARTS]:
        sys.exit(f"{unknown[0]} is not a part of this benchmark; choose from {', '.join(PARTS)}")
    cfg = configure([f"trainer.max_steps={STEPS}", "logger=csv", "trainer.enable_progress_bar=false", *overrides])
    quieten()
    quieten_kineto()
    warnings.simplefilter("ignore")
    console = Console()
    with tempfile.TemporaryDirectory() as scratch:
        for name in names:
            folder = Path(scratch, name)
            folder.mkdir()
            PARTS[name](cfg, folder, console)
    machine = environment.describe()
    console.print(f"{machine['cpu']}, {machine['usable_cores']} cores, torch {machine['versions']['torch']}")


if __name__ == "__main__":
    main()
