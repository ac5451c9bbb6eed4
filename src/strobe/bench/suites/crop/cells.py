"""What the cells of ``suite=crop`` do in their processes: decode and crop, or train on crops.

Training follows a published pipeline, of a study of decode-and-crop that saw its step go from 0.72 s to 0.48 s when
only the crop was decoded: a random mask, another colour space, scaling. Each part is a range of its own in a trace, as
in the study.
"""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from scipy import ndimage
from torch import Tensor
from torch.nn import functional as F
from torch.profiler import profile, record_function, schedule, tensorboard_trace_handler
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from strobe.bench.harness.declare import Done, Trial, Work
from strobe.bench.small import SmallNetwork
from strobe.bench.suites.crop.decoders import DECODERS, Decode, Places, decode_batches
from strobe.bench.suites.crop.suite import COLOUR, DECODE, MASK, PARTS, PIXELS, SCALE, STEP, WHOLE
from strobe.callbacks.accelerators import activities, synchronize
from strobe.measure.timing import clock

AHEAD = 2  # batches that each worker keeps ready
WAIT, WARMUP, ACTIVE = 1, 2, 10  # steps of the trace
CLASSES = 10
MASKED = 0.25  # of the pixels, before each grows to its four neighbours
COLOURS = torch.tensor([[0.299, 0.587, 0.114], [-0.168736, -0.331264, 0.5], [0.5, -0.418688, -0.081312]])
OFFSETS = torch.tensor([0.0, 128.0, 128.0]).view(3, 1, 1)


def prepare(crop: Tensor, generator: np.random.Generator) -> Tensor:
    """A crop (3, H, W) uint8, masked at random, as YCbCr in [0, 1]: (3, H, W) float32."""
    with record_function(MASK):
        chosen = generator.random(crop.shape[1:], dtype=np.float32) < MASKED
        grown = ndimage.binary_dilation(chosen)  # by its four neighbours
        masked = crop.float().masked_fill_(torch.from_numpy(grown), 0)
    with record_function(COLOUR):
        converted = torch.matmul(COLOURS, masked.view(3, -1)).view(crop.shape).add_(OFFSETS)
    with record_function(SCALE):
        return converted.div_(255)


class Prepared(IterableDataset[Tensor]):
    """Crops as the pipeline makes them, without an end; each worker process has its own order."""

    def __init__(self, places: Places, decode: Decode) -> None:
        self.places = places
        self.decode = decode

    def __iter__(self) -> Iterator[Tensor]:
        worker = get_worker_info()
        seed = worker.id if worker else 0
        generator = np.random.default_rng(seed)
        for place in self.places.drawn(seed):
            with record_function(DECODE):
                crop = self.decode(*place)
            yield prepare(crop, generator)


class Step:
    """A training step of a network so small that the loader sets the pace, as it did in the study."""

    def __init__(self, device: torch.device) -> None:
        torch.manual_seed(0)
        self.device = device
        self.network = SmallNetwork(3, CLASSES).to(device)
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr=0.01)

    def __call__(self, images: Tensor) -> None:
        """Train on every fourth pixel of images (N, 3, H, W)."""
        with record_function(STEP):
            images = images.to(self.device)
            labels = torch.arange(len(images), device=self.device) % CLASSES
            self.optimizer.zero_grad()
            torch.autograd.backward(F.cross_entropy(self.network(images[..., ::4, ::4]), labels))
            self.optimizer.step()
            synchronize(self.device)  # inside the range: else its time is that of sending the work off


@contextmanager
def decode(trial: Trial, *, decoder: str, batch: int | None) -> Iterator[Work]:
    """Crops from memory, one at a time, or so many in one call of the native operator."""
    places = _places(trial)
    figures = {PIXELS: places.pixels()}
    if batch is None:
        one, drawn = DECODERS[decoder](), places.drawn()
        yield Work(lambda: Done(len(one(*next(drawn)).contiguous()[None]), figures=figures))
    else:
        together = decode_batches(places, batch)
        yield Work(lambda: Done(len(together()), figures=figures))


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

    try:  # the warm-up takes what was prepared while nobody trained
        yield Work(repeat, warm_up=lambda: [repeat() for _ in range(AHEAD + 1)])
    finally:
        ready._shutdown_workers()  # type: ignore[attr-defined]  # else when its iterator is collected, some time


def trace(places: Places, one: Decode, step: Step, batch: int, folder: Path) -> dict[str, float]:
    """Train a few steps in this process, where the profiler sees loading too, and write them for TensorBoard.

    Returns:
        Seconds of each range in a step, and of the whole step: means over the recorded ones.
    """
    for earlier in folder.glob("*.pt.trace.json*"):
        earlier.unlink()
    write = tensorboard_trace_handler(str(folder), f"{socket.gethostname()}_{folder.name}", use_gzip=True)
    ranges: dict[str, float] = {}

    def keep(profiler: profile) -> None:
        for entry in profiler.key_averages():
            name = WHOLE if entry.key.startswith("ProfilerStep") else entry.key
            if name in (*PARTS, WHOLE):
                ranges[name] = max(ranges.get(name, 0.0), entry.cpu_time_total / 1e6 / ACTIVE)
        write(profiler)

    cycle = schedule(wait=WAIT, warmup=WARMUP, active=ACTIVE, repeat=1)
    ready = iter(DataLoader(Prepared(places, one), batch))
    with profile(activities=activities(step.device), schedule=cycle, on_trace_ready=keep) as profiler:
        for _ in range(WAIT + WARMUP + ACTIVE):
            step(next(ready))
            profiler.step()
    return ranges


def _places(trial: Trial) -> Places:
    return Places(trial.input.facts["paths"], trial.input.facts["sizes"])
