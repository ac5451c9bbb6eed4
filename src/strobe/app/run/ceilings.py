"""All ceilings of a run, and those of other loaders and model settings."""

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from copy import copy
from typing import Any

import torch
from hydra.errors import HydraException
from lightning import LightningModule, Trainer
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from strobe.app.build.instantiate import build_data, build_model, set_up_data
from strobe.app.build.trainer import lone_trainer
from strobe.app.config.compose import recomposed
from strobe.app.config.register import workers_beside
from strobe.app.data.base import ImageData
from strobe.app.engines.base import BatchLoader, WholeBatches
from strobe.app.engines.sampler import Indices
from strobe.app.loaders.base import Batch
from strobe.app.run.storage import STORAGE, measure_storage
from strobe.callbacks.accelerators import is_accelerator
from strobe.callbacks.batches import bytes_of
from strobe.errors import StrobeError
from strobe.measure.statistics import interval, paired
from strobe.measure.timing import Rate, by_turns
from strobe.measure.untouched import let_go, untouched
from strobe.overrides import applied
from strobe.present.terminal import clock
from strobe.probe.ceilings import SIDES, blank, enter, in_one_line, joint, share_cores
from strobe.probe.model import Standing, TooSlowError, measure_model, note_input
from strobe.probe.ranks import Ranks
from strobe.probe.sides import Sides
from strobe.records.run import alternative_of

log = logging.getLogger(__name__)

BATCH_KEYS = ("batch_size", "val_batch_size", "augment")  # of data; the images are the same whatever these are
PATIENCE, HOPELESS = 10.0, 10.0  # seconds of a step; times as long as the run's own, per image
APART = "the ranks could not measure together: they must outlive training, as those of trainer.strategy=ddp do"


class Ceilings(Sides):
    """Measures what loader and model of a configuration reach alone, each in at most ``cfg.ceilings_seconds``.

    It leaves the run's data (which must be set up), random numbers and threads as they are. With several ``ranks``,
    each makes one; all do what the first one is asked for, and rates are those of all ranks together.
    """

    sentences = (HydraException, StrobeError)

    def __init__(
        self, cfg: DictConfig, data: ImageData, overrides: Sequence[str] = (), ranks: Ranks | None = None
    ) -> None:
        super().__init__(cfg.ceilings_seconds, ranks)
        self.cfg = cfg
        self.data = data
        self.overrides = list(overrides)
        self.seconds = 0.0  # that all measurements took so far
        self._batch: Batch | None = None
        self._image_size: tuple[int, ...] | None = None
        self._own: Standing | None = None  # the run's own model, while others take turns with it
        self._turns: list[float] = []  # its rates in these

    def close(self) -> None:
        """Release the run's own model, if it still exists. A second call does nothing."""
        if self._own is not None:
            self._turns += self._own.rates
            self._own.close()
            self._own = None
            torch.set_num_threads(torch.get_num_threads())  # of threads that begin from now on

    def measure(self) -> dict[str, Any]:
        """The record's ``ceilings``, in images/s and core-seconds per image, without alternatives.

        What fails is null, and ``reason`` says why.
        """
        trainer = self.data.trainer or lone_trainer(self.cfg)
        if trainer.world_size > 1 and not self.ranks:
            return blank(APART)
        self.failures = []
        with self._measuring(self.cfg):
            rates = {side: self._attempt(side, self.cfg, self.data, trainer) for side in SIDES}
            shared = share_cores(
                trainer.strategy.root_device, ranks=trainer.num_devices, workers=workers_beside(self.cfg.engine)
            )
        record = self.ceilings = blank("; ".join(self.failures) or None)
        for side, rate in rates.items():
            if rate is not None:
                enter(record, side, rate)
        record["shared_cores"] = shared
        record["joint"] = self._joint(record)
        record["batch_bytes"] = bytes_of(self._batch)[0]
        record["image_size"] = self._image_size and list(self._image_size)
        record["seconds"] = self.seconds
        return record

    def take_part(self) -> None:
        """On each rank but the first: measure what that one asks for, until it has enough."""
        assert self.ranks is not None
        while told := self.ranks.next():
            side, *overrides = told
            if side in STORAGE:
                self._fetch(side)
                continue
            try:
                given = recomposed(applied(self.overrides, overrides)) if overrides else nullcontext(self.cfg)
                with given as cfg, self._measuring(cfg):
                    data = self._data(cfg) if overrides else self.data
                    self._attempt(side, cfg, data, lone_trainer(cfg))
            except (HydraException, OmegaConfBaseException, StrobeError) as error:
                self.why(error)

    def storage(self, rows: Sequence[Mapping[str, float]] = ()) -> dict[str, Any] | None:
        """The record's ``ceilings.storage``; None where images lie elsewhere, or, with a line in the log, if it fails.

        ``rows`` are of ``steps.csv``.
        """
        trainer = self.data.trainer or lone_trainer(self.cfg)
        if not self.data.in_storage or (trainer.world_size > 1 and not self.ranks):
            return None
        self.failures, found = [], dict[str, Any]()
        log.info("Measuring what the storage gives, about %s", clock(self.cfg.ceilings_seconds))
        for side in STORAGE:
            if (part := self._fetch(side, rows)) is None:
                log.info("What the storage gives was not measured: %s", "; ".join(self.failures))
                return None
            found |= part
        return found

    def _fetch(self, side: str, rows: Sequence[Mapping[str, float]] = ()) -> dict[str, Any] | None:
        workers, seconds = workers_beside(self.cfg.engine), self.cfg.ceilings_seconds / 2
        with self._measuring(self.cfg):
            return self.attempt(
                side, lambda: measure_storage(side, self, self.data, workers=workers, seconds=seconds, rows=rows)
            )

    def loading(self) -> dict[str, Any] | None:
        """Where the time of making a batch goes; None if that cannot be measured."""
        with self._measuring(self.cfg):
            return self.parts(self._batches(self.cfg, self.data))

    def alternative(self, side: str, overrides: Sequence[str]) -> dict[str, Any] | None:
        """The record of one side with further overrides; None, with a line in the log, if it cannot be measured.

        A model takes turns with the run's own, unless either is compiled, or there are several ranks. That one is kept
        until :meth:`close`: ``ratio`` says how many times as fast the other is, in images/s, even if the machine's
        speed changes meanwhile.
        """
        self.failures = []
        rate: Rate | None = None
        images: int | None = None
        ratio: list[float | None] | None = None
        if side == "model" and self._own is None and not (self.cfg.model.compile or self.ranks):
            with self._measuring(self.cfg):
                self._own = self._standing(self.cfg, self.data)
        try:
            with recomposed(applied(self.overrides, overrides)) as cfg, self._measuring(cfg):
                trainer = lone_trainer(cfg)
                if trainer.world_size > 1 and not self.ranks:
                    raise StrobeError(APART)
                data = self._data(cfg)
                images = cfg.data.batch_size * trainer.world_size
                if images > len(data.datasets["train"]):
                    raise StrobeError(f"data.batch_size={cfg.data.batch_size} is more than the training images")
                if side == "model" and self._own is not None and not cfg.model.compile:
                    rate, ratio = self._beside(self._own, cfg, data)
                if rate is None:
                    rate = self._attempt(side, cfg, data, trainer, overrides)
        except (HydraException, OmegaConfBaseException, StrobeError) as error:
            self.failures.append(in_one_line(error, self.sentences))
        if rate is None:
            log.info("Not measured with %s: %s", " ".join(overrides), "; ".join(self.failures) or "no GPU")
            return None
        return alternative_of(overrides, side, rate, images, ratio)

    def settle(self, record: dict[str, Any]) -> None:
        """Release the run's own model, add what it reached in its turns, and compute the others' rates from theirs."""
        self.close()
        if not self._turns or record["model"] is None:
            return
        found = interval(self._turns)
        self._merge("model", record, found.middle, found.low or found.middle, found.high or found.middle)
        self._turns = []
        for entry in record["alternatives"]:
            if entry["ratio"] is not None:
                middle, *ends = (record["model"] * value for value in entry["ratio"])
                entry["rate"], entry["interval"] = middle, ends

    def again(self, side: str, record: dict[str, Any]) -> None:
        """Measure the run's own ``loader`` or ``model`` again, after the alternatives.

        A machine's speed drifts: the ceiling becomes the mean of both, its interval covers both, and ``drift`` is their
        distance as a share.
        """
        with self._measuring(self.cfg):
            rate = self._attempt(side, self.cfg, self.data, lone_trainer(self.cfg))
        if rate is not None and record[side] is not None:
            self._merge(side, record, rate.median, rate.low, rate.high)

    def _merge(self, side: str, record: dict[str, Any], *again: float) -> None:
        """Merge a later measurement of a side (rate, low, high) into the record."""
        rate, low, high = again
        before = record["intervals"][side]
        record["drift"] = max(record["drift"] or 0.0, abs(math.log(rate / record[side])))
        record[side] = math.sqrt(record[side] * rate)
        record["intervals"][side] = [min(before[0], low), max(before[1], high)]
        record["joint"] = self._joint(record)

    def _standing(self, cfg: DictConfig, data: ImageData, longest: float = math.inf) -> Standing | None:
        """A warm model of this configuration; None if it cannot train, or not in this process alone.

        Raises a TooSlowError for a step that takes longer than ``longest``, in seconds.
        """
        try:
            if (trainer := lone_trainer(cfg)).world_size > 1:
                return None
            batch, settings = self._fitting(cfg, data), unweighted(cfg)
            model = Standing(lambda: build_model(settings, data), lambda: trainer, batch, data=data, longest=longest)
            return model.start()
        except TooSlowError:
            raise
        except Exception as error:
            let_go(error)
            return None

    def _beside(self, own: Standing, cfg: DictConfig, data: ImageData) -> tuple[Rate | None, list[float | None] | None]:
        """Another model in turns with the run's own: its rate, and the ratio of the two with its interval.

        None if the two cannot both exist, for lack of memory; the run's own is then released. Raises a TooSlowError for
        one so slow that its turns would take minutes.
        """
        longest = max(PATIENCE, HOPELESS * own.step * cfg.data.batch_size / self.cfg.data.batch_size)
        other = None
        try:
            if (other := self._standing(cfg, data, longest)) is not None:
                ratio = paired(by_turns((own.turn, other.turn), cfg.ceilings_seconds, step=max(own.step, other.step)))
                rate = interval(other.rates)
                found = Rate(rate.middle, rate.low or 0.0, rate.high or math.inf, None)
                return found, [ratio.middle, ratio.low, ratio.high]
        except TooSlowError:
            raise
        except Exception as error:
            let_go(error)
        finally:
            if other is not None:
                other.close()
        self.close()
        return None, None

    @contextmanager
    def _measuring(self, cfg: DictConfig) -> Iterator[None]:
        """Count the seconds, and restore what a measurement changes."""
        began = time.perf_counter()
        with untouched(cfg.threads):
            try:
                yield
            finally:
                self.seconds += time.perf_counter() - began

    def _joint(self, record: dict[str, Any]) -> float | None:
        return joint(record, workers=workers_beside(self.cfg.engine), nodes=self.cfg.trainer.num_nodes)

    def begin(self, side: str, changes: Sequence[str] = ()) -> None:
        """Begin a side; the other ranks have begun it, as the first one told them to."""
        if self.ranks and self.ranks.rank == 0:
            super().begin(side, changes)

    def _attempt(
        self, side: str, cfg: DictConfig, data: ImageData, trainer: Trainer, overrides: Sequence[str] = ()
    ) -> Rate | None:
        """The rate of one side; None, and an entry in ``failures``, if it cannot be measured.

        ``overrides``, in which ``cfg`` differs from the run's, tell the other ranks what to measure.
        """
        measure = {"loader": self._loader, "model": self._model, "transfer": self._transfer}[side]
        return self.attempt(side, lambda: measure(cfg, data, trainer), overrides)

    def _model(self, cfg: DictConfig, data: ImageData, _: Trainer) -> Rate:
        own = cfg is self.cfg and not cfg.model.compile  # which hooks would have to be compiled into
        note = self._note_size if own else None
        return self.of_all(train_on(self._fitting(cfg, data), cfg, data, note=note, ranks=self.ranks))

    def _note_size(self, size: tuple[int, ...]) -> None:
        self._image_size = size

    def _loader(self, cfg: DictConfig, data: ImageData, trainer: Trainer) -> Rate:
        data = copy(data)
        data.trainer = trainer  # by which it tells whether to pin
        loading = self.loader(self._batches(cfg, data), trainer.strategy.root_device)
        if cfg is self.cfg:
            self._batch = loading.batch
        return loading.rate

    def _batches(self, cfg: DictConfig, data: ImageData) -> BatchLoader:
        return data.batches("train", data.batch_size, shuffle=not cfg.trainer.overfit_batches, endless=True)

    def _transfer(self, cfg: DictConfig, data: ImageData, trainer: Trainer) -> Rate | None:
        device = trainer.strategy.root_device
        if not is_accelerator(device):
            return None
        batch = self._fitting(cfg, data)
        if batch[0].device == device:  # where a resident split gives it
            return None
        return self.transfer(batch, device, pinned=cfg.engine.get("pin_memory") is not False)

    def _fitting(self, cfg: DictConfig, data: ImageData) -> Batch:
        """A batch from this configuration's loader; one that was loaded before, if it has the same images."""
        if self._batch is None or not (cfg.loader == self.cfg.loader and same_images(cfg, self.cfg)):
            batch = load_batch(data)
            if cfg is self.cfg:
                self._batch = batch
            return batch
        return self._batch if cfg is self.cfg else repeat(self._batch, cfg.data.batch_size)

    def _data(self, cfg: DictConfig) -> ImageData:
        """The DataModule of another configuration, set up; it searches for files only if it has other images."""
        if same_images(cfg, self.cfg):
            return self.data.loaded_by(build_data(cfg))
        said = logging.getLogger("strobe.app.data")
        before = said.level
        said.setLevel(logging.ERROR)  # the run has said what there is to say of its files
        try:
            return set_up_data(cfg)
        finally:
            said.setLevel(before)


def train_on(
    batch: Batch,
    cfg: DictConfig,
    data: ImageData,
    note: Callable[[tuple[int, ...]], None] | None = None,
    ranks: Ranks | None = None,
) -> Rate:
    """Train a new model of this configuration on the same batch, prepared by ``data``, again and again.

    ``note`` is called with the height and width of the first convolution's input.
    """
    if cfg.model.compile:
        torch.compiler.reset()  # or another batch size would be compiled as one that varies
    settings = unweighted(cfg)

    def make() -> LightningModule:
        model = build_model(settings, data)
        if note is not None:
            note_input(model, note)
        return model

    seconds = cfg.ceilings_seconds
    return measure_model(make, lambda: lone_trainer(cfg), batch, data=data, seconds=seconds, ranks=ranks)


def unweighted(cfg: DictConfig) -> DictConfig:
    """The configuration with random weights, because what they are makes no difference to speed."""
    settings = cfg.copy()
    settings.model.weights = None
    return settings


def load_batch(data: ImageData) -> Batch:
    """One batch of the training images, loaded in this process."""
    dataset = data.datasets["train"]
    count = min(data.batch_size, len(dataset))
    return WholeBatches(dataset).__getitems__(Indices(range(count), split="train", epoch=0, number=0))


def repeat(batch: Batch, size: int) -> Batch:
    """A batch of ``size`` images, made by repeating those of another one."""
    pixels, labels = batch
    times = -(-size // len(labels))
    return pixels.repeat(times, *(1 for _ in pixels.shape[1:]))[:size].contiguous(), labels.repeat(times)[:size]


def same_images(cfg: DictConfig, other: DictConfig) -> bool:
    """Whether both read the same images, in whatever batches."""
    first, second = ({key: value for key, value in c.data.items() if key not in BATCH_KEYS} for c in (cfg, other))
    return first == second
