"""What a search may change: dimensions by name, and the keys that belong to each."""

from strobe.probe.takeover import LOGGING, VALIDATION

OVER: dict[str, tuple[str, ...]] = {
    "loader": ("loader", "loader.batched", "loader.scale", "loader.threads"),
    "engine": ("engine",),
    "workers": ("engine.num_workers", "engine.persistent_workers", "engine.multiprocessing_context"),
    "prefetch": ("engine.prefetch_factor",),
    "batch_size": ("data.batch_size", "trainer.accumulate_grad_batches"),
    "precision": ("trainer.precision",),
    "channels_last": ("model.channels_last",),
    "compile": ("model.compile",),
    "pinning": ("engine.pin_memory",),
    "threads": ("threads",),
    "keep_memory": ("keep_memory",),
    "fused": ("model.fused",),
    "matmul": ("matmul_precision",),
    "benchmark": ("trainer.benchmark",),
}
OF_SCRIPTS: dict[str, tuple[str, ...]] = {  # these are searched in somebody else's script only
    "debugging": ("trainer.detect_anomaly",),
    "blas_threads": ("environment.OPENBLAS_NUM_THREADS",),
    "malloc": ("environment.MALLOC_MMAP_MAX_", "environment.MALLOC_TRIM_THRESHOLD_"),
    LOGGING: ("trainer.log_every_n_steps",),
    VALIDATION: ("trainer.val_check_interval", "trainer.check_val_every_n_epoch"),
}
ON_REQUEST = (LOGGING, VALIDATION)  # only where asked for by name; trainings in turns then log or validate, too
OWN = ("loader", "engine", "keep_memory")  # and these only in the application
ALL = OVER | OF_SCRIPTS
DIMENSIONS = {key: name for name, keys in ALL.items() for key in keys}
