"""What the cells of ``suite=crop`` do in their processes: decode and crop, or train on crops."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, schedule, tensorboard_trace_handler
from torch.utils.data import DataLoader

from strobe.bench.harness.declare import Done, Trial, Work
from strobe.bench.suites.crop.decoders import DECODERS, Decode, Places, decode_batches
from strobe.bench.suites.crop.pipeline import RANGES, Prepared, Step
from strobe.measure.timing import clock

AHEAD = 2  # batches that each worker keeps ready
WAIT, WARMUP, ACTIVE = 1, 2, 10  # steps of the trace
PIXELS = "photo_pixels"  # of a photo, in the median
WHOLE = "whole_step"  # beside the ranges: the mean of the traced steps


@contextmanager
def decode(trial: Trial, *, decoder: str, batch: int | None) -> Iterator[Work]:
    """Crops from memory, one at a time, or so many in one call of the native operator."""
    places = _places(trial)
    figures = {PIXELS: places.pixels()}
    if batch is not None:
        together = decode_batches(places, batch)
        yield Work(lambda: Done(len(together()), figures=figures))
        return
    one, drawn = DECODERS[decoder](), places.drawn()

    def repeat() -> Done:
        one(*next(drawn)).contiguous()
        return Done(1, figures=figures)

    yield Work(repeat)


@contextmanager
def train(trial: Trial, *, decoder: str, workers: int, batch: int, traced: bool) -> Iterator[Work]:
    """Training steps on what worker processes prepare; the first trial traces a few without workers before."""
    places, one = _places(trial), DECODERS[decoder]()
    device = torch.device(trial.input.facts["device"])
    step, now = Step(device), clock(device)
    figures = {PIXELS: places.pixels()}
    if traced and trial.number == 0:
        figures |= trace(places, one, step, batch, trial.folder.parents[1] / "tensorboard" / decoder)
    batches = DataLoader(
        Prepared(places, one), batch, num_workers=workers, prefetch_factor=AHEAD, multiprocessing_context="fork"
    )
    ready = iter(batches)

    def repeat() -> Done:
        """As many steps as there are workers, which deliver in turn; told is one of them."""
        began = now()
        for _ in range(workers):
            step(next(ready))
        return Done(batch, (now() - began) / workers, figures)

    def warm_up() -> None:
        for _ in range(AHEAD + 1):  # what was prepared while nobody trained
            repeat()

    try:
        yield Work(repeat, warm_up=warm_up)
    finally:
        ready._shutdown_workers()  # type: ignore[attr-defined]  # else when its iterator is collected, some time


def trace(places: Places, one: Decode, step: Step, batch: int, folder: Path) -> dict[str, float]:
    """Train a few steps in this process, loading included, and write them where TensorBoard finds them.

    The profiler sees ranges of its own process only, so nothing is loaded in workers.

    Returns:
        Seconds of each range in a step, and of the whole step: means over the recorded ones.
    """
    for earlier in folder.glob("*.pt.trace.json*"):
        earlier.unlink()
    write = tensorboard_trace_handler(str(folder), f"{socket.gethostname()}_{folder.name}", use_gzip=True)
    found: dict[str, float] = {}

    def keep(profiler: profile) -> None:
        for entry in profiler.key_averages():
            name = WHOLE if entry.key.startswith("ProfilerStep") else entry.key
            if name in (*RANGES, WHOLE):
                found[name] = max(found.get(name, 0.0), entry.cpu_time_total / 1e6 / ACTIVE)
        write(profiler)

    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (step.device.type == "cuda")
    cycle = schedule(wait=WAIT, warmup=WARMUP, active=ACTIVE, repeat=1)
    ready = iter(DataLoader(Prepared(places, one), batch))
    with profile(activities=activities, schedule=cycle, on_trace_ready=keep) as profiler:
        for _ in range(WAIT + WARMUP + ACTIVE):
            step(next(ready))
            profiler.step()
    return found


def _places(trial: Trial) -> Places:
    return Places(trial.input.facts["paths"], trial.input.facts["sizes"])
