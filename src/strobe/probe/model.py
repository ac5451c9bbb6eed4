"""The model's ceiling: Lightning's own loop over one batch that is already on the device."""

import contextlib
import copy
import ctypes
import math
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from queue import SimpleQueue
from typing import Any, Protocol, Self

import torch
from lightning_utilities.core.apply_func import apply_to_collection
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from strobe.callbacks.accelerators import empty_cache
from strobe.callbacks.lightnings import Callback, LightningDataModule, LightningModule, Trainer, move_data_to_device
from strobe.errors import StrobeError
from strobe.measure.timing import Block, Meter, Rate, Window, clock
from strobe.measure.untouched import kernels_kept, let_go
from strobe.present.format import duration
from strobe.probe.loader import Kind, samples_of
from strobe.probe.ranks import Ranks

WARMUP = 3  # steps, which pay for allocation, autotuning and compiling
AHEAD, ROOM = 8, 1 << 29  # copies of a batch that are made at once on a GPU, at most of so many bytes
LONG = 0.05  # seconds of a step; in a longer one cold caches do not matter
ENDLESS = 1_000_000_000  # steps; a learning-rate schedule needs a number
ALONE: dict[str, Any] = {  # arguments of a Trainer that neither logs, writes nor validates
    "logger": False,
    "profiler": None,
    "fast_dev_run": False,
    "overfit_batches": 0.0,
    "max_epochs": -1,
    "min_epochs": None,
    "max_steps": ENDLESS,
    "min_steps": None,
    "max_time": None,
    "limit_train_batches": None,
    "limit_val_batches": 0,
    "val_check_interval": 1.0,
    "check_val_every_n_epoch": 1,
    "num_sanity_val_steps": 0,
    "reload_dataloaders_every_n_epochs": 0,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "use_distributed_sampler": False,
}


class TooSlowError(StrobeError):
    """A step takes longer than is worth waiting for."""


class Stepping(Callback):
    """Passes the images of each finished step to ``add``, and ends training when that returns True."""

    def __init__(self, add: Callable[[int], bool]) -> None:
        self._add = add

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count a step."""
        if self._add(samples_of(batch)):
            trainer.should_stop = True


def measure_model(
    make_model: Callable[[], LightningModule],
    make_trainer: Callable[[], Trainer],
    batch: Any,
    *,
    data: LightningDataModule,
    seconds: float,
    ranks: Ranks | None = None,
) -> Rate:
    """Train a new model on the same batch repeatedly.

    A step is that of the training: Lightning's loop, the data's hooks on the device, forward, backward and update, in
    the trainer's precision, with gradient clipping if set. Fetching the batch is not counted.

    Args:
        make_model: its model is released when this returns.
        make_trainer: its trainer has the arguments ``ALONE`` among its own.
        batch: as the loader gives it; not changed.
        seconds: at most, from the end of the first step.
        ranks: all train as many steps, because each waits for the others' gradients.

    Raises:
        KeyboardInterrupt: after Ctrl-C, which Lightning would turn into ``SystemExit``.
    """
    trainer = make_trainer()
    device = trainer.strategy.root_device
    try:
        model = make_model()
        if ranks:
            ranks.regroup()
        meter = Meter(
            seconds,
            multiple=trainer.accumulate_grad_batches,
            warmup=WARMUP,
            clock=clock(device),
            agree=ranks.in_step() if ranks else None,
        )
        trainer.callbacks.append(Stepping(meter.add))  # type: ignore[attr-defined]
        with _lightnings_interrupt():
            trainer.fit(model, datamodule=_Replay(data, batch, meter))
        del model
    except BaseException as error:
        let_go(error)
        raise
    finally:
        del trainer
        empty_cache(device)
    return meter.rate()


class Standing:
    """A model that trains on one batch on request, as :func:`measure_model` does.

    It trains in its own thread, so that several can exist and take turns; one trains at a time. Its operators use as
    many threads as in the thread that makes it, and kernels as its trainer has torch choose them.

    Attributes:
        step: seconds of the last warm-up step; one of more than ``longest`` ends training with a TooSlowError.
        rates: of its turns, in images/s.
    """

    def __init__(
        self,
        make_model: Callable[[], LightningModule],
        make_trainer: Callable[[], Trainer],
        batch: Any,
        *,
        data: LightningDataModule,
        longest: float = math.inf,
    ) -> None:
        trainer = make_trainer()
        self.step, self.rates = 0.0, list[float]()
        self._longest, self._since = longest, math.inf  # which is when the step began
        self._choose_kernels = kernels_kept()
        self._threads, self._multiple = torch.get_num_threads(), trainer.accumulate_grad_batches
        self._device = trainer.strategy.root_device
        self._clock = clock(self._device)
        self._told: SimpleQueue[float | None] = SimpleQueue()
        self._answers: SimpleQueue[Block | BaseException] = SimpleQueue()
        self._window = Window(0.0, warmup=WARMUP, least=1, clock=self._clock)
        trainer.callbacks.append(Stepping(self._add))  # type: ignore[attr-defined]
        given = (trainer, make_model(), _Replay(data, batch, self))
        self._thread = threading.Thread(target=self._train, args=given, daemon=True)

    def start(self) -> Self:
        """Train until it is warm; raises what training raises, which ends it."""
        end_threads()
        self._thread.start()
        try:
            self.step = self._answer().seconds
        except BaseException:
            self.close()
            raise
        return self

    def turn(self, seconds: float) -> Block:
        """Train for so many seconds, at least a step; raises what training raises."""
        self._choose_kernels()
        end_threads()
        self._told.put(seconds)
        block = self._answer()
        self.rates.append(block.rate)
        return block

    def close(self) -> None:
        """End training, at the end of any current turn. A second call does nothing."""
        self._told.put(None)
        self._thread.join()
        empty_cache(self._device)

    def exclude(self, seconds: float) -> None:
        """Take time out of the turn."""
        self._window.exclude(seconds)

    def _answer(self) -> Block:
        answer = self._answers.get()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def _train(self, trainer: Trainer, model: LightningModule, data: LightningDataModule) -> None:
        torch.set_num_threads(self._threads)
        self._since = time.perf_counter()
        try:
            trainer.fit(model, datamodule=data)
            self._answers.put(RuntimeError("training ended by itself"))
        except BaseException as error:
            self._answers.put(error)

    def _add(self, images: int) -> bool:
        since, self._since = self._since, time.perf_counter()
        if self._since - since > self._longest:
            raise TooSlowError(f"a step takes {duration(self._since - since)}")
        if not self._window.add(images):
            return False
        assert self._window.block is not None
        end_threads()
        self._answers.put(self._window.block)
        if (seconds := self._told.get()) is None:
            return True
        torch.set_num_threads(self._threads)
        self._since = time.perf_counter()
        cold = int(self.step < LONG or self._clock is not time.perf_counter)
        self._window = Window(seconds, warmup=cold, multiple=self._multiple, least=self._multiple, clock=self._clock)
        return False


def end_threads() -> None:
    """End the threads that operators of this thread have used; the next one starts new ones.

    OpenMP keeps them for each thread that runs operators. GCC's, while there are more of all together than cores, lets
    one that waits sleep at once, and small operators take several times as long (``GOMP_SPINCOUNT`` in its manual).
    """
    openmp = ctypes.CDLL(torch._C.__file__)  # and what it is linked with
    if pause := getattr(openmp, "omp_pause_resource_all", None):  # since OpenMP 5.0
        pause(1)  # omp_pause_soft


class _Excluding(Protocol):
    def exclude(self, seconds: float) -> None: ...


def note_input(model: nn.Module, note: Callable[[tuple[int, ...]], None]) -> None:
    """Call ``note`` once with the height and width that the first convolution gets; never if there is none."""

    def told(_: nn.Module, given: tuple[Any, ...]) -> None:
        for handle in handles:
            handle.remove()
        note(tuple(given[0].shape[-2:]))

    handles = [each.register_forward_pre_hook(told) for each in model.modules() if isinstance(each, nn.Conv2d)]


class _Replay(LightningDataModule):
    """The same batch repeatedly, prepared on the device by the hooks of ``data``."""

    def __init__(self, data: LightningDataModule, batch: Any, meter: _Excluding) -> None:
        super().__init__()
        self.data = copy.copy(data)  # it gets another trainer
        self.batch = batch
        self.meter = meter

    def train_dataloader(self) -> "Again":
        assert self.trainer is not None
        self.data.trainer = self.trainer
        return Again([Kind(self.batch)], self.trainer.strategy.root_device, self.meter)

    def val_dataloader(self) -> list[Any]:
        return []

    def on_before_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        return self.data.on_before_batch_transfer(batch, dataloader_idx)

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        return self.data.transfer_batch_to_device(batch, device, dataloader_idx)

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        return self.data.on_after_batch_transfer(batch, dataloader_idx)


class Again:
    """Batches on a device endlessly, each as often as its kind came; copies, because hooks may change them in place.

    A GPU copies later than the host asks for it: there several copies are made at once, between readings of the clock,
    which wait for it, and the steps that use them follow each other without copying.

    Attributes:
        meter: from which the time of copying is excluded.
    """

    def __init__(self, kinds: Sequence[Kind], device: torch.device, meter: _Excluding) -> None:
        self._batches = [move_data_to_device(kind.batch, device) for kind in kinds]
        whole = sum(kind.count for kind in kinds)
        self._shares = [kind.count / whole for kind in kinds]
        size = max(sum(part.nbytes for part in tree_leaves(one) if isinstance(part, Tensor)) for one in self._batches)
        self._clock, self._ahead = (
            clock(device),
            1 if device.type == "cpu" else max(1, min(AHEAD, ROOM // max(1, size))),
        )
        self.meter = meter

    def __iter__(self) -> Iterator[Any]:
        places, copies = self._places(), deque[Any]()
        while True:
            if not copies:
                began = self._clock()
                batches = (self._batches[place] for place in islice(places, self._ahead))
                copies.extend(apply_to_collection(batch, Tensor, Tensor.clone) for batch in batches)
                self.meter.exclude(self._clock() - began)
            yield copies.popleft()

    def _places(self) -> Iterator[int]:
        due = [0.0] * len(self._shares)
        while True:
            due = [before + share for before, share in zip(due, self._shares, strict=True)]
            yield (place := due.index(max(due)))
            due[place] -= 1


@contextlib.contextmanager
def _lightnings_interrupt() -> Iterator[None]:
    """Let Ctrl-C in a Lightning training raise ``KeyboardInterrupt``, and work again afterwards.

    Lightning turns it into ``SystemExit``, and ignores it from then on.
    """
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    except SystemExit as error:
        if isinstance(error.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt(*error.__context__.args) from None
        raise
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)
