"""The cells of the ground-truth grid: short runs, each with one bottleneck of a known cause, and clean controls."""

from dataclasses import dataclass

from strobe.measure.environment import usable_cores
from strobe.overrides import joined

FAULTS = "strobe.validation.injected_faults"
SMALL = f"model._target_={FAULTS}.SmallClassifier"
POOLED = f"model._target_={FAULTS}.PooledClassifier"
WIDE = f"model._target_={FAULTS}.WideClassifier"

BASE = (
    "trainer.accelerator=cpu",
    "trainer.max_epochs=-1",
    "trainer.max_time={seconds:15}",
    "trainer.limit_val_batches=2",
    "trainer.check_val_every_n_epoch=10",
    "trainer.num_sanity_val_steps=0",
    "trainer.enable_progress_bar=false",
    "profiler=none",
    "test=false",
    "ceilings_seconds=3",
)
PHOTOS = ("data=cifar10", "data.verify=false", "data.batch_size=512")  # 3 x 32 x 32, in memory
TILES = ("data=sample", "data.batch_size=32")  # 3 of 13 bands, 64 x 64, a file each
FULL = "data.batch_size=1024"  # so large that an epoch would hold too few of the next size
SLOW_DISK = ("loader=tifffile", f"loader._target_={FAULTS}.SlowDisk", "+loader.seconds=0.002")
CLEAN = ("trainer.enable_checkpointing=false",)
FITTING = ("nothing", "small_batch", "memory_layout", "threads", "optimizer", "first_step")


@dataclass(frozen=True)
class Cell:
    """A short run.

    ``cause`` is what was injected, as a finding's ``cause`` names it; None in a control, whose first finding may be
    any of ``FITTING``: that there is nothing to fix, or that its computing could be faster.
    """

    name: str
    cause: str | None
    given: tuple[str, ...]

    @property
    def overrides(self) -> list[str]:
        """All that the run is started with, except where it writes."""
        return joined(BASE, self.given)

    def accepts(self, cause: str | None) -> bool:
        """Whether this is the right first finding; None: there was none."""
        return cause in FITTING if self.cause is None else cause == self.cause


def cells(cores: int | None = None) -> tuple[Cell, ...]:
    """All cells, for a machine with so many cores for this process; None: for this machine.

    Transfers, kernel launches, synchronisation and low precision cost nothing that could be injected on a CPU: the
    grid leaves them out.
    """
    cores = cores or usable_cores()
    many = 4 * cores
    slow = f"+callbacks.slow._target_={FAULTS}.SlowCallback"
    return (
        Cell("slow-decoder", "loader", (*TILES, SMALL, "loader=rasterio", "loader.scale=numpy")),
        Cell(
            "image-by-image",
            "loader",
            (*PHOTOS, SMALL, "data.augment=false", "loader.batched=false", "loader.scale=numpy"),
        ),
        Cell(
            "slow-disk",
            "loader",
            (*TILES, *SLOW_DISK, SMALL),
        ),
        Cell("many-workers", "workers_hurt", (*PHOTOS, SMALL, "data.augment=false", f"engine.num_workers={many}")),
        Cell(
            "restarted-workers",
            "workers_restart",
            (
                *TILES,
                *SLOW_DISK,
                SMALL,
                f"engine.num_workers={2 * cores}",
                "engine.persistent_workers=false",
                "trainer.limit_train_batches=6",
                "trainer.check_val_every_n_epoch=1000",
                "trainer.enable_checkpointing=false",
            ),
        ),
        Cell("small-batch", "small_batch", (*PHOTOS, SMALL, "data.batch_size=16")),
        Cell(
            "slow-optimizer",
            "optimizer",
            (*PHOTOS, WIDE, FULL, "trainer.enable_checkpointing=false"),
        ),
        Cell("slow-callback", "callback", (*PHOTOS, SMALL, slow, "+callbacks.slow.seconds=0.04")),
        Cell(
            "slow-logger",
            "logging",
            (
                *PHOTOS,
                SMALL,
                "logger=csv",
                f"logger._target_={FAULTS}.SlowLogger",
                "+logger.seconds=0.03",
                "trainer.log_every_n_steps=1",
            ),
        ),
        Cell(
            "frequent-checkpoints",
            "checkpoint",
            (*PHOTOS, WIDE, "model.optimizer=sgd", "model.momentum=0", "checkpoint.every_n_steps=1"),
        ),
        Cell(
            "epoch-checkpoints",
            "epoch_checkpoint",
            (*PHOTOS, WIDE, "model.optimizer=sgd", "model.momentum=0", "trainer.limit_train_batches=3"),
        ),
        Cell(
            "frequent-validation",
            "validation",
            (*PHOTOS, SMALL, "trainer.val_check_interval=2", "trainer.check_val_every_n_epoch=1"),
        ),
        Cell("too-many-threads", "threads", (*PHOTOS, SMALL, f"threads={many}")),
        Cell("slow-layout", "memory_layout", (*PHOTOS, POOLED, FULL, "model.channels_last=false")),
        Cell("control-photos", None, (*CLEAN, *PHOTOS, SMALL)),
        Cell("control-large-batch", None, (*CLEAN, *PHOTOS, SMALL, "data.batch_size=1024", "data.augment=false")),
        Cell("control-accumulation", None, (*CLEAN, *PHOTOS, SMALL, "trainer.accumulate_grad_batches=4")),
        Cell("control-resnet18-photos", None, (*CLEAN, *PHOTOS, "data.batch_size=64")),
        Cell("control-resnet18-tiles", None, (*CLEAN, *TILES, "engine.num_workers=1", "loader=tifffile")),
    )
