"""The schema of ``tune``: what ``python -m strobe.tune`` searches, and for how long."""

from dataclasses import dataclass

from strobe.app.config.schema import knob

OVER: dict[str, tuple[str, ...]] = {  # what is searched, and the keys that belong to it
    "loader": ("loader", "loader.batched", "loader.scale", "loader.threads"),
    "engine": ("engine",),
    "workers": ("engine.num_workers", "engine.persistent_workers"),
    "prefetch": ("engine.prefetch_factor",),
    "batch_size": ("data.batch_size", "trainer.accumulate_grad_batches"),
    "precision": ("trainer.precision",),
    "channels_last": ("model.channels_last",),
    "compile": ("model.compile",),
    "pinning": ("engine.pin_memory",),
    "threads": ("threads",),
    "fused": ("model.fused",),
}


@dataclass
class TuneConfig:
    """What is searched, and how long."""

    budget: str = "10m"  # of measuring: 120s, 10m, 1h
    over: list[str] | None = knob(None, choices=list(OVER))  # null: all that applies here
    save: str | None = None  # write conf/experiment/NAME.yaml with what was found
    look_seconds: float = knob(6.0, above=0, max=3600)  # of training, before ceilings are measured
    ceilings_seconds: float = knob(1.5, above=0, max=3600)  # at most for each of these measurements
    turns: int = knob(6, min=4, max=100)  # of each side in a comparison; up to three times as many if it is close
    turn_seconds: float = knob(2.0, above=0, max=600)  # of a turn; two steps at least
    timeout_seconds: float = knob(600.0, above=0, max=86400)  # of one training, or of what it prepares
