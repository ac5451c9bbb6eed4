"""The cells of the ground-truth grid: short runs, each with one bottleneck of a known cause, and clean controls.

The rules were tried on the ``developed`` half while they were written. On the ``held_out`` half no rule is tuned: its
cells are what people's trainings do, with the cause that docs/diagnosis.md has for it. Nobody who writes rules has seen
the ``fresh`` half, which is a third set of such cells and is reported apart.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from strobe.measure.environment import usable_cores
from strobe.overrides import joined

FAULTS = "strobe.validation.injected_faults"
PYTHON = "strobe.validation.injected_python"
HABITS = "strobe.validation.injected_habits"
KINDS = ("Small", "Pooled", "Wide", "Waiting", "WaitingUpdate", "WaitingHook", "Leaking", "ManyTensors", "SomeTensors")
SMALL, POOLED, WIDE, WAITING, UPDATE, HOOK, LEAKING, MANY_TENSORS, SOME_TENSORS, LOCKED, LOOP, NORMS, PENALTY = (
    f"model._target_={FAULTS}.{kind}Classifier"
    for kind in (*KINDS, "Locked", "MetricLoop", "GradientNorms", "LazyPenalty")
)
BASE = (
    "trainer.accelerator=cpu trainer.max_epochs=-1 trainer.max_time={seconds:8} trainer.limit_val_batches=2 "
    "trainer.check_val_every_n_epoch=10 trainer.num_sanity_val_steps=0 trainer.enable_progress_bar=false "
    "profiler=none test=false ceilings_seconds=1.5"
)
PHOTOS = "data=cifar10 data.verify=false data.batch_size=512"  # 3 x 32 x 32, in memory
TILES = "data=sample data.batch_size=32"  # 3 of 13 bands, 64 x 64, a file each
FULL = "data.batch_size=1024"  # so large that an epoch would hold too few of the next size
PLAIN = "data.augment=false"
SGD = "model.optimizer=sgd model.momentum=0"
SLOW_DISK = f"loader=tifffile loader._target_={FAULTS}.SlowDisk +loader.seconds"
LOCKED_DISK = f"loader=tifffile loader._target_={FAULTS}.LockedDisk +loader.seconds"
VALIDATED = "trainer.check_val_every_n_epoch=1 trainer.val_check_interval"
SLOW_CALLBACK = f"+callbacks.slow._target_={FAULTS}.SlowCallback +callbacks.slow.seconds"
SLOW_LOGGER = f"logger=csv trainer.log_every_n_steps=1 logger._target_={FAULTS}.SlowLogger +logger.seconds"
CLEAN = "trainer.enable_checkpointing=false"
BUSY_CALLBACK = f"+callbacks.slow._target_={FAULTS}.SlowCallback +callbacks.slow.busy=true +callbacks.slow.seconds"
UNEVEN_DISK = f"loader=tifffile loader._target_={FAULTS}.UnevenDisk +loader.seconds"
SMALL_PHOTOS = f"data=image_folder data._target_={FAULTS}.SmallPhotos data.root=. data.size=224"
HOARDING = f"loader=tifffile loader._target_={FAULTS}.HoardingTiles"
ENLARGING = f"model._target_={FAULTS}.EnlargingClassifier"
TINY = "data.batch_size=8"
RESNET18 = f"+model.small=false data.batch_size=128 {SGD}"  # in a class of faults
TRANSFORM = f"loader._target_={FAULTS}"
ADDED = "+callbacks.added._target_"
HALVES = ("developed", "held_out", "fresh")
SHOWN = ("too-few-threads-resnet18", "double-precision-resnet18")  # which showed that rules lacked, and so led to them


@dataclass(frozen=True)
class Cell:
    """A short run.

    Attributes:
        cause: what was injected, as a finding's ``cause`` names it; None in a control, into which nothing was.
        half: one of ``HALVES``.
        strength: ``mild``, about a quarter of training, or ``strong``, more than half of it; empty in a control.
        beside: other processes that compute meanwhile.
        also: causes that are right as well.
    """

    name: str
    cause: str | None
    given: tuple[str, ...]
    half: str = "developed"
    strength: str = ""
    beside: int = 0
    also: tuple[str, ...] = ()

    @property
    def size(self) -> str:
        """Of the model: ``small`` or ``resnet18``."""
        small = any(text.startswith("model._target_=") for text in self.given)
        return "small" if small and "+model.small=false" not in self.given else "resnet18"

    @property
    def overrides(self) -> list[str]:
        """All that the run is started with, except where it writes."""
        return joined(BASE.split(), self.given)


def cells(cores: int | None = None) -> tuple[Cell, ...]:
    """All cells, for a machine with so many cores for this process; None: for this machine.

    Transfers, kernel launches and synchronisation cost nothing that could be injected on a CPU: the grid leaves them
    out.
    """
    cores = cores or usable_cores()
    return (*developed(cores), *held_out(cores), *fresh(cores))


def developed(cores: int) -> Iterator[Cell]:
    """The half that rules were tried on."""
    many = 4 * cores
    mild = ("image-by-image", "many-workers", "slow-layout", "frequent-validation", "uneven-disk")
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
        ("slow-logger", "logging", f"{PHOTOS} {SMALL} {SLOW_LOGGER}=0.03"),
        ("frequent-checkpoints", "checkpoint", f"{PHOTOS} {WIDE} {SGD} checkpoint.every_n_steps=1"),
        ("epoch-checkpoints", "epoch_checkpoint", f"{PHOTOS} {WIDE} {SGD} trainer.limit_train_batches=3"),
        (
            "frequent-validation",
            "validation",
            f"{PHOTOS} {SMALL} trainer.val_check_interval=2 trainer.check_val_every_n_epoch=1",
        ),
        ("too-many-threads", "threads", f"{PHOTOS} {SMALL} threads={many}"),
        ("slow-layout", "memory_layout", f"{PHOTOS} {POOLED} {FULL} model.channels_last=false"),
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
        ("hoarding-workers", "growing_memory", f"{TILES} {SMALL} {HOARDING} engine.num_workers=1 {CLEAN}"),
        ("upsampled-photos", "upsampled", f"{SMALL_PHOTOS} {SMALL} data.batch_size=32 {CLEAN}"),
        ("upsampled-photos-resnet18", "upsampled", f"{SMALL_PHOTOS} data.batch_size=8 {CLEAN}"),
        ("upsampled-in-network", "upsampled", f"{PHOTOS} {ENLARGING} data.batch_size=256 {CLEAN}"),
        ("tiny-batch", "small_batch", f"{PHOTOS} {SMALL} data.batch_size=2 {CLEAN}"),
        ("busy-thread", "background_thread", f"{PHOTOS} {SMALL} {ADDED}={PYTHON}.BusyThread {CLEAN}"),
        ("python-loop", "single_thread", f"{PHOTOS} model._target_={PYTHON}.LoopingClassifier {CLEAN}"),
        ("littering", "garbage_collection", f"{PHOTOS} model._target_={PYTHON}.LitteringClassifier {CLEAN}"),
        (
            "slow-epochs",
            "between",
            f"{PHOTOS} {SMALL} {CLEAN} trainer.limit_train_batches=10 {ADDED}={PYTHON}.SlowEpochs "
            "+callbacks.added.seconds=1",
        ),
        ("control-photos", None, f"{CLEAN} {PHOTOS} {SMALL}"),
        ("control-large-batch", None, f"{CLEAN} {PHOTOS} {SMALL} {FULL} {PLAIN}"),
        ("control-accumulation", None, f"{CLEAN} {PHOTOS} {SMALL} trainer.accumulate_grad_batches=4"),
        ("control-resnet18-photos", None, f"{CLEAN} {PHOTOS} data.batch_size=64"),
        ("control-resnet18-tiles", None, f"{CLEAN} {TILES} engine.num_workers=1 loader=tifffile"),
    )
    for name, cause, given in found:
        strength = "" if cause is None else "mild" if name in mild else "strong"
        yield Cell(name, cause, tuple(given.split()), strength=strength)


def held_out(cores: int) -> Iterator[Cell]:
    """The half kept aside: each fault in one strength and one size, most causes in two."""
    photos, tiles = f"{CLEAN} {PHOTOS}", f"{CLEAN} {TILES}"
    batch = f"data.batch_size=128 {SGD}"  # at which resnet18 itself loses next to nothing
    found: tuple[tuple[str, str, str, str], ...] = (
        ("augmentation", "loader", "strong", f"{SMALL} {PLAIN} {TRANSFORM}.PythonAugmentation +loader.rounds=4"),
        ("augmentation-resnet18", "loader", "mild", f"{batch} {TRANSFORM}.PythonAugmentation +loader.rounds=10"),
        ("sleeping-transform", "loader", "strong", f"{SMALL} {TRANSFORM}.SlowTransform +loader.seconds=1e-4"),
        ("sleeping-transform-resnet18", "loader", "mild", f"{batch} {TRANSFORM}.SlowTransform +loader.seconds=6e-4"),
        ("paced-stream", "loader", "mild", f"{SMALL} {TRANSFORM}.PacedStream +loader.seconds=0.01"),
        ("held-lock", "stalled", "strong", f"{LOCKED} +model.seconds=0.06"),
        ("server-in-step-resnet18", "stalled", "mild", f"{WAITING} {RESNET18} +model.seconds=0.09"),
        ("metric-loop", "single_thread", "strong", f"{LOOP} +model.times=1000"),
        ("metric-loop-resnet18", "single_thread", "mild", f"{LOOP} {RESNET18} +model.times=60000"),
        ("every-50-steps", "callback", "mild", f"{SMALL} {BUSY_CALLBACK}=0.45 +callbacks.slow.every=50"),
        ("every-5-steps-resnet18", "callback", "strong", f"{batch} {SLOW_CALLBACK}=1.5 +callbacks.slow.every=5"),
        ("histograms-resnet18", "callback", "mild", f"{batch} {ADDED}={FAULTS}.WeightHistograms"),
        ("gradient-norms-resnet18", "callback", "mild", f"{NORMS} {RESNET18} +model.times=12"),
        ("many-tensors", "optimizer", "strong", MANY_TENSORS),
        ("some-tensors", "optimizer", "mild", SOME_TENSORS),
        ("accumulated-update", "optimizer", "mild", f"{UPDATE} +model.seconds=0.04 trainer.accumulate_grad_batches=4"),
        ("waiting-update-resnet18", "optimizer", "strong", f"{UPDATE} {RESNET18} +model.seconds=0.35"),
        ("logging-each-step", "logging", "mild", f"{SMALL} {SLOW_LOGGER}=0.01"),
        ("logging-each-step-resnet18", "logging", "strong", f"{batch} {SLOW_LOGGER}=0.35"),
        ("often-validated", "validation", "mild", f"{SMALL} {VALIDATED}=3"),
        ("often-validated-resnet18", "validation", "strong", f"{batch} {VALIDATED}=2 trainer.limit_val_batches=16"),
        ("medium-batch", "small_batch", "mild", f"{SMALL} data.batch_size=64"),
        ("small-batch-resnet18", "small_batch", "strong", f"data.batch_size=8 {SGD}"),
        ("lazy-penalty", "uneven_steps", "mild", f"{PENALTY} +model.seconds=0.15"),
        ("leak-resnet18", "slowing_down", "strong", f"{LEAKING} {RESNET18} +model.seconds=0.02"),
        ("too-few-threads-resnet18", "threads", "mild", f"{batch} threads=1"),
        ("too-many-threads-resnet18", "threads", "strong", f"{batch} threads={6 * cores}"),
        ("double-precision-resnet18", "precision", "strong", f"{batch} trainer.precision=64-true"),
    )
    saved: tuple[tuple[str, str, str, str], ...] = (
        ("saved-each-5", "checkpoint", "mild", f"{PHOTOS} {WIDE} {SGD} checkpoint.every_n_steps=5"),
        ("saved-each-step-resnet18", "checkpoint", "strong", f"{PHOTOS} {batch} checkpoint.every_n_steps=1"),
        ("short-epochs-resnet18", "epoch_checkpoint", "mild", f"{PHOTOS} {batch} trainer.limit_train_batches=4"),
        ("locked-disk", "loader", "strong", f"{tiles} {SMALL} engine.num_workers=2 {LOCKED_DISK}=0.003"),
        (
            "few-workers-resnet18",
            "loader",
            "mild",
            f"{tiles} {SGD} data.batch_size=16 engine.num_workers=1 {SLOW_DISK}=0.025",
        ),
        (
            "restarted-workers-resnet18",
            "workers_restart",
            "mild",
            f"{tiles} {SGD} loader=tifffile data.batch_size=16 engine.num_workers={2 * cores} "
            "engine.persistent_workers=false trainer.limit_train_batches=2 trainer.check_val_every_n_epoch=1000",
        ),
    )
    whole = [(name, cause, strength, f"{photos} {given}") for name, cause, strength, given in found]
    for name, cause, strength, text in (*whole, *saved):
        yield Cell(name, cause, tuple(text.split()), "developed" if name in SHOWN else "held_out", strength)
    yield Cell("neighbour", "shared_machine", (*photos.split(), SMALL), "held_out", "mild", beside=1)
    large = (*photos.split(), *batch.split())
    yield Cell("neighbours-resnet18", "shared_machine", large, "held_out", "strong", beside=2 * cores)
    controls = (
        ("control-resnet18-sgd", f"{photos} data.batch_size=128 {SGD}"),
        ("control-resnet18-clipped", f"{photos} data.batch_size=128 trainer.gradient_clip_val=1"),
        ("control-saved-seldom", f"{PHOTOS} {SMALL} checkpoint.every_n_epochs=10"),
        ("control-workers", f"{photos} {SMALL} {FULL} engine.num_workers=1"),
        ("control-monitors", f"{photos} {SMALL} logger=csv {ADDED}=lightning.pytorch.callbacks.LearningRateMonitor"),
        ("control-validated-seldom", f"{photos} data.batch_size=64 {VALIDATED}=50"),
        ("control-tiles", f"{tiles} data.batch_size=64 loader=packed engine=resident"),
    )
    for name, text in controls:
        yield Cell(name, None, tuple(text.split()), "held_out")


def fresh(cores: int) -> Iterator[Cell]:
    """The half that nobody who writes rules has seen; where two causes are honest answers, either is right."""
    photos, tiles = f"{CLEAN} {PHOTOS}", f"{CLEAN} {TILES}"
    large, short = f"{photos} data.batch_size=128 {SGD}", "trainer.limit_train_batches"
    kind, resnet18 = f"model._target_={HABITS}", f"{photos} {RESNET18}"
    added = f"{large} {ADDED}={HABITS}"
    large_photos = f"{CLEAN} data=image_folder data._target_={HABITS}.LargePhotos data.root=. data.size=96 {SGD}"
    reloaded = f"{tiles} {SMALL} loader=packed engine.num_workers={2 * cores} {short}=6"
    plotted = f"logger=csv trainer.log_every_n_steps=1 logger._target_={HABITS}.PlottingLogger"
    found: tuple[tuple[str, str | tuple[str, ...], str, str], ...] = (
        ("averaged-weights-resnet18", "callback", "mild", f"{added}.WeightAverages"),
        ("image-grids", "callback", "mild", f"{photos} {SMALL} {ADDED}={HABITS}.ImageGrids"),
        ("clipped-by-hand-resnet18", "callback", "mild", f"{resnet18} {kind}.HandClippedClassifier"),
        ("collected-each-step-resnet18", ("callback", "garbage_collection"), "strong", f"{added}.Collecting"),
        ("plotted-losses-resnet18", "logging", "mild", f"{large} {plotted}"),
        ("npz-files", "loader", "strong", f"{tiles} {SMALL} loader=tifffile loader._target_={HABITS}.NpzTiles"),
        ("large-photos-resnet18", "loader", "strong", f"{large_photos} data.batch_size=16"),
        (
            "weighted-order",
            ("loader", "uneven_steps"),
            "mild",
            f"{photos} {SMALL} engine._target_={HABITS}.WeightedEngine {short}=5",
        ),
        ("reloaded-workers", "workers_restart", "strong", f"{reloaded} trainer.reload_dataloaders_every_n_epochs=1"),
        ("similarity-by-pair-resnet18", "single_thread", "mild", f"{resnet18} {kind}.SimilarityClassifier"),
        ("scores-by-image", "callback", "strong", f"{photos} {kind}.ScoringClassifier"),
        ("scores-so-far", ("slowing_down", "callback"), "strong", f"{photos} {kind}.ScoringSoFarClassifier"),
        ("orthogonal-updates-resnet18", "optimizer", "strong", f"{resnet18} {kind}.OrthogonalClassifier"),
        (
            "bootstrapped-validation",
            "validation",
            "strong",
            f"{photos} {kind}.BootstrapClassifier trainer.check_val_every_n_epoch=1",
        ),
        ("weights-each-epoch-resnet18", "between", "mild", f"{added}.WeightFiles {short}=2"),
        ("history-thread-resnet18", "background_thread", "strong", f"{added}.HistoryThread"),
        (
            "accumulated-small-batches",
            "small_batch",
            "strong",
            f"{photos} {SMALL} data.batch_size=16 trainer.accumulate_grad_batches=32",
        ),
        ("polled-program", "stalled", "strong", f"{photos} {kind}.PollingClassifier"),
    )
    for name, causes, strength, given in found:
        first, *others = (causes,) if isinstance(causes, str) else causes
        yield Cell(name, first, tuple(given.split()), "fresh", strength, also=tuple(others))
    controls = (
        ("control-packed-resnet18", f"{tiles} {SGD} loader=packed"),
        ("control-accumulated-resnet18", f"{large} trainer.accumulate_grad_batches=4"),
        ("control-averaged-seldom", f"{photos} {SMALL} {ADDED}={HABITS}.WeightAverages +callbacks.added.every=50"),
        (
            "control-validated-twice",
            f"{photos} {SMALL} trainer.check_val_every_n_epoch=null trainer.val_check_interval=100",
        ),
    )
    for name, text in controls:
        yield Cell(name, None, tuple(text.split()), "fresh")
