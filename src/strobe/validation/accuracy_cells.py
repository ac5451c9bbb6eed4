"""The cells of the ground-truth grid: short runs, each with one bottleneck of a known cause, and clean controls."""

from dataclasses import dataclass

from strobe.measure.environment import usable_cores
from strobe.overrides import joined

FAULTS = "strobe.validation.injected_faults"
SMALL, POOLED, WIDE, WAITING, UPDATE, HOOK, LEAKING = (
    f"model._target_={FAULTS}.{kind}Classifier"
    for kind in ("Small", "Pooled", "Wide", "Waiting", "WaitingUpdate", "WaitingHook", "Leaking")
)
BASE = (
    "trainer.accelerator=cpu trainer.max_epochs=-1 trainer.max_time={seconds:15} trainer.limit_val_batches=2 "
    "trainer.check_val_every_n_epoch=10 trainer.num_sanity_val_steps=0 trainer.enable_progress_bar=false "
    "profiler=none test=false ceilings_seconds=3"
)
PHOTOS = "data=cifar10 data.verify=false data.batch_size=512"  # 3 x 32 x 32, in memory
TILES = "data=sample data.batch_size=32"  # 3 of 13 bands, 64 x 64, a file each
FULL = "data.batch_size=1024"  # so large that an epoch would hold too few of the next size
PLAIN = "data.augment=false"
SGD = "model.optimizer=sgd model.momentum=0"
SLOW_DISK = f"loader=tifffile loader._target_={FAULTS}.SlowDisk +loader.seconds"
SLOW_CALLBACK = f"+callbacks.slow._target_={FAULTS}.SlowCallback +callbacks.slow.seconds"
SLOW_LOGGER = f"logger=csv logger._target_={FAULTS}.SlowLogger +logger.seconds=0.03"
CLEAN = "trainer.enable_checkpointing=false"
BUSY_CALLBACK = f"+callbacks.slow._target_={FAULTS}.SlowCallback +callbacks.slow.busy=true +callbacks.slow.seconds"
UNEVEN_DISK = f"loader=tifffile loader._target_={FAULTS}.UnevenDisk +loader.seconds"
SMALL_PHOTOS = f"data=image_folder data._target_={FAULTS}.SmallPhotos data.root=data/small_photos"
ENLARGING = f"model._target_={FAULTS}.EnlargingClassifier"
TINY = "data.batch_size=8"


@dataclass(frozen=True)
class Cell:
    """A short run.

    ``cause`` is what was injected, as a finding's ``cause`` names it; None in a control, into which nothing was.
    """

    name: str
    cause: str | None
    given: tuple[str, ...]

    @property
    def overrides(self) -> list[str]:
        """All that the run is started with, except where it writes."""
        return joined(BASE.split(), self.given)


def cells(cores: int | None = None) -> tuple[Cell, ...]:
    """All cells, for a machine with so many cores for this process; None: for this machine.

    Transfers, kernel launches, synchronisation and low precision cost nothing that could be injected on a CPU: the
    grid leaves them out.
    """
    cores = cores or usable_cores()
    many = 4 * cores
    found: tuple[tuple[str, str | None, str], ...] = (
        ("slow-decoder", "loader", f"{TILES} {SMALL} loader=rasterio loader.scale=numpy"),
        ("image-by-image", "loader", f"{PHOTOS} {SMALL} {PLAIN} loader.batched=false loader.scale=numpy"),
        ("slow-disk", "loader", f"{TILES} {SLOW_DISK}=0.002 {SMALL}"),
        ("many-workers", "workers_hurt", f"{PHOTOS} {SMALL} {PLAIN} engine.num_workers={many}"),
        (
            "restarted-workers",
            "workers_restart",
            f"{TILES} {SLOW_DISK}=0.002 {SMALL} {CLEAN} engine.num_workers={2 * cores} engine.persistent_workers=false "
            "trainer.limit_train_batches=6 trainer.check_val_every_n_epoch=1000",
        ),
        ("small-batch", "small_batch", f"{PHOTOS} {SMALL} data.batch_size=16"),
        ("slow-optimizer", "optimizer", f"{PHOTOS} {WIDE} {FULL} {CLEAN}"),
        ("slow-callback", "callback", f"{PHOTOS} {SMALL} {SLOW_CALLBACK}=0.04"),
        ("slow-logger", "logging", f"{PHOTOS} {SMALL} {SLOW_LOGGER} trainer.log_every_n_steps=1"),
        ("frequent-checkpoints", "checkpoint", f"{PHOTOS} {WIDE} {SGD} checkpoint.every_n_steps=1"),
        ("epoch-checkpoints", "epoch_checkpoint", f"{PHOTOS} {WIDE} {SGD} trainer.limit_train_batches=3"),
        (
            "frequent-validation",
            "validation",
            f"{PHOTOS} {SMALL} trainer.val_check_interval=2 trainer.check_val_every_n_epoch=1",
        ),
        ("too-many-threads", "threads", f"{PHOTOS} {SMALL} threads={many}"),
        ("slow-layout", "memory_layout", f"{PHOTOS} {POOLED} {FULL} model.channels_last=false"),
        # From here to the controls: causes, strengths and sizes that the first ones do not have.
        ("waiting-step", "stalled", f"{PHOTOS} {WAITING} {CLEAN}"),
        ("waiting-step-tiny", "stalled", f"{PHOTOS} {WAITING} {TINY} {CLEAN}"),
        ("waiting-update", "optimizer", f"{PHOTOS} {UPDATE} {CLEAN}"),
        ("waiting-update-tiny", "optimizer", f"{PHOTOS} {UPDATE} {TINY} {CLEAN}"),
        ("waiting-hook-tiny", "callback", f"{PHOTOS} {HOOK} {TINY} {CLEAN}"),
        ("busy-callback-tiny", "callback", f"{PHOTOS} {SMALL} {TINY} {BUSY_CALLBACK}=0.1 {CLEAN}"),
        ("busy-callback-resnet18", "callback", f"{PHOTOS} data.batch_size=16 {BUSY_CALLBACK}=0.2 {CLEAN}"),
        ("slow-callback-resnet18", "callback", f"{PHOTOS} data.batch_size=16 {SLOW_CALLBACK}=0.4 {CLEAN}"),
        ("uneven-disk", "uneven_steps", f"{TILES} {UNEVEN_DISK}=0.4 {SMALL} {CLEAN}"),
        ("leak", "slowing_down", f"{PHOTOS} {LEAKING} {TINY} {CLEAN}"),
        ("slow-disk-resnet18", "loader", f"{TILES} data.batch_size=8 {SLOW_DISK}=0.02 {CLEAN}"),
        ("upsampled-photos", "upsampled", f"{SMALL_PHOTOS} {SMALL} data.batch_size=32 {CLEAN}"),
        ("upsampled-photos-resnet18", "upsampled", f"{SMALL_PHOTOS} data.batch_size=8 {CLEAN}"),
        ("upsampled-in-network", "upsampled", f"{PHOTOS} {ENLARGING} data.batch_size=256 {CLEAN}"),
        ("tiny-batch", "small_batch", f"{PHOTOS} {SMALL} data.batch_size=2 {CLEAN}"),
        ("control-photos", None, f"{CLEAN} {PHOTOS} {SMALL}"),
        ("control-large-batch", None, f"{CLEAN} {PHOTOS} {SMALL} {FULL} {PLAIN}"),
        ("control-accumulation", None, f"{CLEAN} {PHOTOS} {SMALL} trainer.accumulate_grad_batches=4"),
        ("control-resnet18-photos", None, f"{CLEAN} {PHOTOS} data.batch_size=64"),
        ("control-resnet18-tiles", None, f"{CLEAN} {TILES} engine.num_workers=1 loader=tifffile"),
    )
    return tuple(Cell(name, cause, tuple(given.split())) for name, cause, given in found)
