"""The cells of the ground-truth grid: short runs, each with one bottleneck of a known cause, and clean controls.

The rules were tried on the ``developed`` part while they were written. On the ``held_out`` part no rule is tuned: its
cells are what people's trainings do, with the cause that docs/diagnosis.md has for it. Nobody who writes rules has seen
the ``fresh`` part, a third set of such cells; its figures have led to rules since. The ``unseen`` part was written
after that, from public reports and without knowledge of the rules. The ``stored`` part reads its tiles from storage
over slow lines. Each part is reported apart.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from strobe.measure.environment import usable_cores
from strobe.overrides import joined
from strobe.validation.lines import LINES, Line

FAULTS = "strobe.validation.injected_faults"
PYTHON = "strobe.validation.injected_python"
HABITS = "strobe.validation.injected_habits"
MISTAKES = "strobe.validation.injected_mistakes"
OPERATIONS = "strobe.validation.injected_operations"
NAMES = ("Small", "Waiting", "Leaking", "ManyTensors", "Locked", "MetricLoop", "GradientNorms", "LazyPenalty")
SMALL, WAITING, LEAKING, MANY_TENSORS, LOCKED, LOOP, NORMS, PENALTY, ENLARGING = (
    f"model._target_={FAULTS}.{name}Classifier" for name in (*NAMES, "Enlarging")
)
UPDATE, HOOK = f"{WAITING} +model.place=update", f"{WAITING} +model.place=hook"
KIND = f"{SMALL} +model.kind"  # another small network
POOLED, WIDE = f"{KIND}={FAULTS}.PooledNetwork", f"{KIND}={FAULTS}.WideNetwork"
BASE = (
    "trainer.accelerator=cpu trainer.max_epochs=-1 trainer.max_time={seconds:8} trainer.min_steps=15 "
    "trainer.limit_val_batches=2 trainer.check_val_every_n_epoch=10 trainer.num_sanity_val_steps=0 "
    "trainer.enable_progress_bar=false profiler=none test=false ceilings_seconds=1.5"
)
BATCH = "data.batch_size"
PHOTOS = "data=cifar10 data.verify=false data.batch_size=512"  # 3 x 32 x 32, in memory
TILES = "data=sample data.batch_size=32"  # 3 of 13 bands, 64 x 64, a file each
FULL = f"{BATCH}=1024"  # so large that an epoch would hold too few of the next size
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
TINY = f"{BATCH}=8"
RESNET18 = f"+model.small=false {BATCH}=128 {SGD}"  # in a class of faults
TRANSFORM = f"loader._target_={FAULTS}"
ADDED = "+callbacks.added._target_"
HALVES = ("developed", "held_out", "fresh", "unseen", "stored")
AT_ONCE = "engine.persistent_workers=false trainer.check_val_every_n_epoch=1000 trainer.limit_train_batches"
SHOWN = ("too-few-threads-resnet18", "double-precision-resnet18")  # which showed that rules lacked, and so led to them


@dataclass(frozen=True)
class GridCell:
    """A short run."""

    name: str
    cause: str | None  # that was injected, as a finding's ``cause`` names it; None in a control
    given: tuple[str, ...]  # overrides
    half: str = "developed"  # one of HALVES
    strength: str = ""  # mild: about a quarter of training is lost; strong: more than half of it; empty in a control
    beside: int = 0  # other processes that compute meanwhile
    also: tuple[str, ...] = ()  # causes that are right as well
    remedy: tuple[str, ...] = ()  # overrides that take the fault out again; none where they were not written down
    line: Line | None = None  # over which it reads tiles that lie in storage; None: they are here

    @property
    def size(self) -> str:
        """Of the model: ``small`` or ``resnet18``."""
        small = any(text.startswith("model._target_=") for text in self.given)
        return "small" if small and "+model.small=false" not in self.given else "resnet18"

    @property
    def overrides(self) -> list[str]:
        """All that the run is started with, except where it writes."""
        return joined(BASE.split(), self.given)


def cells(cores: int | None = None) -> tuple[GridCell, ...]:
    """All cells, for a machine with so many cores for this process; None: for this machine.

    Transfers, kernel launches and synchronisation cost nothing that could be injected on a CPU: the grid leaves them
    out.
    """
    cores = cores or usable_cores()
    beside = {"neighbour": 1, "neighbours-resnet18": 2 * cores}
    parts = developed(cores), held_out(cores), fresh(cores), unseen(cores), stored()
    return tuple(
        cell_of(row, half, beside)
        for half, rows in zip(HALVES, parts, strict=True)
        for row in rows.strip().splitlines()
    )


def cell_of(row: str, half: str, beside: Mapping[str, int]) -> GridCell:
    """The cell of one row of a part: ``name | causes | strength | overrides | remedy``.

    Of several causes, all of which are right, the first is the one that was injected. A control has neither causes nor
    a strength. The remedy may be left out. ``beside``: how many other processes compute, by the cell's name.
    """
    name, causes, strength, overrides, remedy = (column.strip() for column in f"{row}|".split("|")[:5])
    right = tuple(causes.split())
    return GridCell(
        name,
        cause=right[0] if right else None,
        given=tuple(overrides.split()),
        half="developed" if name in SHOWN else half,
        strength=strength,
        beside=beside.get(name, 0),
        also=right[1:],
        remedy=tuple(remedy.split()),
        line=LINES.get(name),
    )


def developed(cores: int) -> str:
    """The part that rules were tried on."""
    photos, tiles, quick, slow = f"{CLEAN} {PHOTOS}", f"{CLEAN} {TILES}", f"{PHOTOS} {SMALL}", f"{TILES} {SLOW_DISK}"
    restarted = f"{CLEAN} engine.num_workers={2 * cores} {AT_ONCE}"
    network, model = f"{photos} {KIND}={OPERATIONS}", f"{photos} model._target_={OPERATIONS}"
    epochs = f"{ADDED}={PYTHON}.SlowEpochs +callbacks.added.seconds=1 trainer.limit_train_batches=10"
    return f"""
        slow-decoder | loader | strong | {TILES} {SMALL} loader=rasterio loader.scale=numpy
        image-by-image | loader | mild | {quick} {PLAIN} loader.batched=false loader.scale=numpy
        slow-disk | loader | strong | {slow}=0.002 {SMALL}
        many-workers | workers_hurt | mild | {quick} {PLAIN} engine.num_workers={4 * cores}
        restarted-workers | workers_restart | strong | {slow}=0.002 {SMALL} {restarted}=6
        small-batch | small_batch | strong | {quick} {BATCH}=16
        slow-optimizer | optimizer | strong | {photos} {WIDE} {FULL}
        slow-callback | callback | strong | {quick} {SLOW_CALLBACK}=0.04
        slow-logger | logging | strong | {quick} {SLOW_LOGGER}=0.03
        frequent-checkpoints | checkpoint | strong | {PHOTOS} {WIDE} {SGD} checkpoint.every_n_steps=1
        epoch-checkpoints | epoch_checkpoint | strong | {PHOTOS} {WIDE} {SGD} trainer.limit_train_batches=3
        frequent-validation | validation | mild | {quick} {VALIDATED}=2
        too-many-threads | threads | strong | {quick} threads={4 * cores}
        slow-layout | memory_layout | mild | {PHOTOS} {POOLED} {FULL} model.channels_last=false
        waiting-step | stalled | strong | {photos} {WAITING}
        waiting-step-tiny | stalled | strong | {photos} {WAITING} {TINY}
        waiting-update | optimizer | strong | {photos} {UPDATE}
        waiting-update-tiny | optimizer | strong | {photos} {UPDATE} {TINY}
        waiting-hook-tiny | callback | strong | {photos} {HOOK} {TINY}
        busy-callback-tiny | callback | strong | {photos} {SMALL} {TINY} {BUSY_CALLBACK}=0.1
        busy-callback-resnet18 | callback | strong | {photos} {BATCH}=16 {BUSY_CALLBACK}=0.2
        slow-callback-resnet18 | callback | strong | {photos} {BATCH}=16 {SLOW_CALLBACK}=0.4
        uneven-disk | uneven_steps | mild | {tiles} {UNEVEN_DISK}=0.4 {SMALL}
        leak | slowing_down | strong | {photos} {LEAKING} {TINY}
        slow-disk-resnet18 | loader | strong | {tiles} {BATCH}=8 {SLOW_DISK}=0.02
        hoarding-workers | growing_memory | strong | {tiles} {SMALL} {HOARDING} engine.num_workers=1
        upsampled-photos | upsampled | strong | {CLEAN} {SMALL_PHOTOS} {SMALL} {BATCH}=32
        upsampled-photos-resnet18 | upsampled | strong | {CLEAN} {SMALL_PHOTOS} {BATCH}=8
        upsampled-in-network | upsampled | strong | {photos} {ENLARGING} {BATCH}=256
        tiny-batch | small_batch | strong | {photos} {SMALL} {BATCH}=2
        busy-thread | background_thread | strong | {photos} {SMALL} {ADDED}={PYTHON}.BusyThread
        python-loop | single_thread | strong | {photos} model._target_={PYTHON}.LoopingClassifier
        drawn-by-numpy | outside_torch single_thread | strong | {photos} model._target_={PYTHON}.SamplingClassifier
        littering | garbage_collection | strong | {photos} model._target_={PYTHON}.LitteringClassifier
        slow-epochs | between | strong | {photos} {SMALL} {epochs}
        filters-each-step | constant_results | strong | {network}.FilteringNetwork
        predicted-again | repeated_forward | strong | {model}.AgainClassifier
        unused-decoder | unused_results | strong | {network}.DecodingNetwork {BATCH}=128
        one-hot-product | zeros | strong | {model}.OneHotClassifier {BATCH}=128
        repeated-context | alike_rows | strong | {network}.ContextNetwork {BATCH}=128
        fading-edges | denormals | strong | {network}.FadingNetwork {BATCH}=128
        mixed-by-numpy | dtype | strong | {network}.DoubleNetwork {BATCH}=128
        prime-transforms | fft_length | strong | {network}.SpectralNetwork {BATCH}=128
        adapter-merged-each-step | product_order | strong | {network}.AdaptedNetwork {BATCH}=128
        nearest-codes | large_temporary | strong | {model}.CodebookClassifier {BATCH}=128
        queue-copied | copied_again | strong | {model}.QueueClassifier
        graph-by-coordinates | sparse_layout | strong | {network}.GraphNetwork {BATCH}=128
        large-activations | page_faults | strong | {network}.FullSizeNetwork
        attention-by-hand | unfused_attention | strong | {network}.AttentiveNetwork {BATCH}=128
        image-by-image-in-step | unbatched_loop | strong | {model}.ImageByImageClassifier
        teacher-with-gradients | unused_gradients | mild | {model}.TeacherClassifier {BATCH}=128
        control-photos | | | {photos} {SMALL}
        control-large-batch | | | {photos} {SMALL} {FULL} {PLAIN}
        control-accumulation | | | {photos} {SMALL} trainer.accumulate_grad_batches=4
        control-resnet18-photos | | | {photos} {BATCH}=64
        control-resnet18-tiles | | | {tiles} engine.num_workers=1 loader=tifffile
    """


def held_out(cores: int) -> str:
    """The part kept aside: each fault in one strength and one size, most causes in two."""
    photos, tiles = f"{CLEAN} {PHOTOS}", f"{CLEAN} {TILES}"
    batch = f"{BATCH}=128 {SGD}"  # at which resnet18 itself loses next to nothing
    small, large, saved = f"{photos} {SMALL}", f"{photos} {batch}", f"{PHOTOS} {batch}"
    few, restarted = f"{tiles} {SGD} {BATCH}=16", f"engine.num_workers={2 * cores} {AT_ONCE}"
    return f"""
        augmentation | loader | strong | {small} {PLAIN} {TRANSFORM}.PythonAugmentation +loader.rounds=4
        augmentation-resnet18 | loader | mild | {large} {TRANSFORM}.PythonAugmentation +loader.rounds=10
        sleeping-transform | loader | strong | {small} {TRANSFORM}.SlowTransform +loader.seconds=1e-4
        sleeping-transform-resnet18 | loader | mild | {large} {TRANSFORM}.SlowTransform +loader.seconds=6e-4
        paced-stream | loader | mild | {small} {TRANSFORM}.PacedStream +loader.seconds=0.01
        held-lock | stalled | strong | {photos} {LOCKED} +model.seconds=0.06
        server-in-step-resnet18 | stalled | mild | {photos} {WAITING} {RESNET18} +model.seconds=0.09
        metric-loop | python_code single_thread | strong | {photos} {LOOP} +model.times=1000
        metric-loop-resnet18 | python_code single_thread | mild | {photos} {LOOP} {RESNET18} +model.times=60000
        every-50-steps | callback | mild | {small} {BUSY_CALLBACK}=0.45 +callbacks.slow.every=50
        every-5-steps-resnet18 | callback | strong | {large} {SLOW_CALLBACK}=1.5 +callbacks.slow.every=5
        histograms-resnet18 | callback | mild | {large} {ADDED}={FAULTS}.WeightHistograms
        gradient-norms-resnet18 | callback | mild | {photos} {NORMS} {RESNET18} +model.times=12
        many-tensors | optimizer | strong | {photos} {MANY_TENSORS}
        some-tensors | optimizer | mild | {photos} {MANY_TENSORS} +model.times=300
        accumulated-update | optimizer | mild | {photos} {UPDATE} +model.seconds=0.04 trainer.accumulate_grad_batches=4
        waiting-update-resnet18 | optimizer | strong | {photos} {UPDATE} {RESNET18} +model.seconds=0.35
        logging-each-step | logging | mild | {small} {SLOW_LOGGER}=0.01
        logging-each-step-resnet18 | logging | strong | {large} {SLOW_LOGGER}=0.35
        often-validated | validation | mild | {small} {VALIDATED}=3
        often-validated-resnet18 | validation | strong | {large} {VALIDATED}=2 trainer.limit_val_batches=16
        medium-batch | small_batch | mild | {small} {BATCH}=64
        small-batch-resnet18 | small_batch | strong | {photos} {BATCH}=8 {SGD}
        lazy-penalty | uneven_steps | mild | {photos} {PENALTY} +model.seconds=0.15
        leak-resnet18 | slowing_down | strong | {photos} {LEAKING} {RESNET18} +model.seconds=0.02
        too-few-threads-resnet18 | threads | mild | {large} threads=1
        too-many-threads-resnet18 | threads | strong | {large} threads={6 * cores}
        double-precision-resnet18 | precision | strong | {large} trainer.precision=64-true
        saved-each-5 | checkpoint | mild | {PHOTOS} {WIDE} {SGD} checkpoint.every_n_steps=5
        saved-each-step-resnet18 | checkpoint | strong | {saved} checkpoint.every_n_steps=1
        short-epochs-resnet18 | epoch_checkpoint | mild | {saved} trainer.limit_train_batches=4
        locked-disk | loader | strong | {tiles} {SMALL} engine.num_workers=2 {LOCKED_DISK}=0.003
        few-workers-resnet18 | loader | mild | {few} engine.num_workers=1 {SLOW_DISK}=0.025
        restarted-workers-resnet18 | workers_restart | mild | {few} loader=tifffile {restarted}=2
        neighbour | shared_machine | mild | {small}
        neighbours-resnet18 | shared_machine | strong | {large}
        control-resnet18-sgd | | | {large}
        control-resnet18-clipped | | | {photos} {BATCH}=128 trainer.gradient_clip_val=1
        control-saved-seldom | | | {PHOTOS} {SMALL} checkpoint.every_n_epochs=10
        control-workers | | | {small} {FULL} engine.num_workers=1
        control-monitors | | | {small} logger=csv {ADDED}=lightning.pytorch.callbacks.LearningRateMonitor
        control-validated-seldom | | | {photos} {BATCH}=64 {VALIDATED}=50
        control-tiles | | | {tiles} {BATCH}=64 loader=packed engine=resident
    """


def fresh(cores: int) -> str:
    """The part that nobody who wrote rules had seen; where two causes are honest answers, either is right."""
    photos, tiles = f"{CLEAN} {PHOTOS}", f"{CLEAN} {TILES}"
    small, large, short = f"{photos} {SMALL}", f"{photos} {BATCH}=128 {SGD}", "trainer.limit_train_batches"
    kind, resnet18 = f"model._target_={HABITS}", f"{photos} {RESNET18} model._target_={HABITS}"
    added = f"{large} {ADDED}={HABITS}"
    camera = f"{CLEAN} data=image_folder data._target_={HABITS}.LargePhotos data.root=. data.size=96 {SGD}"
    reloaded = f"{tiles} {SMALL} loader=packed engine.num_workers={2 * cores} {short}=6"
    plotted = f"logger=csv trainer.log_every_n_steps=1 logger._target_={HABITS}.PlottingLogger"
    npz, averaged = f"loader=tifffile loader._target_={HABITS}.NpzTiles", f"{ADDED}={HABITS}.WeightAverages"
    loops = "single_thread small_operations unbatched_loop"
    summed, once = "trainer.accumulate_grad_batches", "trainer.check_val_every_n_epoch"
    return f"""
        averaged-weights-resnet18 | callback | mild | {large} {averaged}
        image-grids | callback | mild | {small} {ADDED}={HABITS}.ImageGrids +callbacks.added.every=6
        clipped-by-hand-resnet18 | callback | mild | {resnet18}.HandClippedClassifier
        collected-each-step-resnet18 | callback garbage_collection | strong | {added}.Collecting
        plotted-losses-resnet18 | logging | mild | {large} {plotted}
        npz-files | loader | strong | {tiles} {SMALL} {npz}
        large-photos-resnet18 | loader | strong | {camera} {BATCH}=16
        weighted-order | loader uneven_steps | mild | {small} engine._target_={HABITS}.WeightedEngine {short}=5
        reloaded-workers | workers_restart | strong | {reloaded} trainer.reload_dataloaders_every_n_epochs=1
        similarity-by-pair-resnet18 | {loops} | mild | {resnet18}.SimilarityClassifier
        scores-by-image | callback | strong | {photos} {kind}.ScoringClassifier
        scores-so-far | slowing_down callback | strong | {photos} {kind}.ScoringSoFarClassifier
        orthogonal-updates-resnet18 | optimizer | strong | {resnet18}.OrthogonalClassifier
        bootstrapped-validation | validation | strong | {photos} {kind}.BootstrapClassifier {once}=1
        weights-each-epoch-resnet18 | between | mild | {added}.WeightFiles {short}=2
        history-thread-resnet18 | background_thread | strong | {added}.HistoryThread
        accumulated-small-batches | small_batch | strong | {small} {BATCH}=16 {summed}=32
        polled-program | stalled | strong | {photos} {kind}.PollingClassifier
        control-packed-resnet18 | | | {tiles} {SGD} loader=packed
        control-accumulated-resnet18 | | | {large} {summed}=4
        control-averaged-seldom | | | {small} {averaged} +callbacks.added.every=50
        control-validated-twice | | | {small} {once}=null trainer.val_check_interval=100
    """


def unseen(cores: int) -> str:
    """The part of public reports; each injected cell says what undoes its fault."""
    photos, tiles = f"{CLEAN} {PHOTOS}", f"{CLEAN} {TILES} loader=tifffile"
    small, large = f"{photos} {SMALL}", f"{photos} {BATCH}=128 {SGD}"
    kind, resnet18 = f"{photos} model._target_={MISTAKES}", f"{photos} {RESNET18} model._target_={MISTAKES}"
    loader, added = f"loader._target_={MISTAKES}", f"{ADDED}={MISTAKES}"
    saved = f"checkpoint.save=none {ADDED}=lightning.pytorch.callbacks.ModelCheckpoint +callbacks.added"
    each, small_batch = "logger=csv trainer.log_every_n_steps=1", "small_batch small_operations single_thread"
    views = f"{VALIDATED}=10 trainer.limit_val_batches=1"
    spawned = f"engine.num_workers={cores} engine.multiprocessing_context=spawn {AT_ONCE}=40"
    stopping = f"{ADDED}=lightning.pytorch.callbacks.EarlyStopping +callbacks.added.monitor=train/step_loss"
    array, file, gone, kept = "loader=memory", "loader=tifffile", "~callbacks.added", "engine.persistent_workers=true"
    return f"""
        pixels-as-text | loader | strong | {small} {loader}.TextPhotos {BATCH}=128 | {array}
        zip-opened-each-time | loader | strong | {tiles} {SMALL} {loader}.ZippedTiles | {file}
        listed-collate | loader | strong | {small} {loader}.ListedPhotos | {array}
        packed-shards | uneven_steps loader | strong | {small} {loader}.ShardedPhotos {BATCH}=128 | {array}
        spawned-workers | workers_restart | strong | {small} {PLAIN} {spawned} trainer.max_time={{seconds:16}} | {kept}
        spectral-norms-resnet18 | callback | strong | {large} {added}.SpectralNorms +callbacks.added.every=2 | {gone}
        statistics-logged-resnet18 | callback logging | mild | {resnet18}.StatisticsClassifier {each} | {SMALL}
        image-losses-logged | logging single_thread | strong | {kind}.ImageLossesClassifier {each} {BATCH}=128 | {SMALL}
        adam-by-hand-resnet18 | optimizer | mild | {resnet18}.HandWrittenAdamClassifier {BATCH}=64 | {SMALL}
        own-checkpoints-resnet18 | checkpoint | strong | {PHOTOS} {BATCH}=64 {saved}.every_n_train_steps=1 | {gone}
        clusters-each-epoch | between | strong | {kind}.ClusteringClassifier trainer.limit_train_batches=20 | {SMALL}
        views-validated-resnet18 | validation | mild | {resnet18}.ViewsClassifier {views} | {SMALL}
        cell-by-cell | {small_batch} | strong | {photos} {KIND}={MISTAKES}.CellByCellNetwork {BATCH}=16 | {BATCH}=512
        matched-by-image | single_thread | strong | {kind}.MatchingClassifier | {SMALL}
        simulator-in-step | stalled | strong | {kind}.SimulatorClassifier | {SMALL}
        plotted-by-thread | background_thread | strong | {small} {added}.PlotThread | {gone}
        double-weights-resnet18 | precision | strong | {resnet18}.DoubleClassifier {BATCH}=64 | {SMALL}
        one-thread-resnet18 | threads | mild | {resnet18}.OneThreadClassifier | {SMALL}
        enlarged-tiles-resnet18 | upsampled | strong | {tiles} {SGD} {loader}.EnlargedTiles {BATCH}=16 | {file}
        endless-bank | slowing_down | strong | {kind}.BankClassifier | {SMALL}
        control-momentum-resnet18 | | | {photos} {BATCH}=256 model.optimizer=sgd model.label_smoothing=0.1
        control-early-stopping | | | {small} {stopping} +callbacks.added.patience=1000
        control-photos-as-stored-resnet18 | | | {CLEAN} {SMALL_PHOTOS} data.size=64 {BATCH}=64 {SGD}
        control-monitor-thread | | | {small} {added}.MonitorThread
    """


def stored() -> str:
    """The part whose tiles lie in storage, behind ``LINES``."""
    tiles, ahead = f"{CLEAN} data=eurosat loader=native {BATCH}=32", "engine=litdata engine.num_workers=4"
    small, large, alone = f"{tiles} {SMALL}", f"{tiles} {SGD} {ahead}", "engine=torch engine.num_workers=0"
    return f"""
        latency-20 | storage_latency | strong | {small} {alone}
        latency-100 | storage_latency | strong | {small} {alone}
        few-requests-20 | too_few_requests | strong | {small} {ahead} data.requests=4
        few-requests-100 | too_few_requests | strong | {small} {ahead} data.requests=8
        narrow-10 | storage_bandwidth | strong | {small} {ahead}
        narrow-5-far | storage_bandwidth | strong | {small} {ahead}
        cold-cache-20 | cold_cache | strong | {small} {alone}
        cold-cache-narrow | cold_cache | strong | {small} {ahead}
        control-stored-20-resnet18 | | | {large}
        control-stored-100-resnet18 | | | {large}
    """
