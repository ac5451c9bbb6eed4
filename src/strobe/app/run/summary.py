"""The record of a run, from its configuration, its parts and the steps that it recorded."""

from pathlib import Path
from typing import Any

import torch
from hydra.core.hydra_config import HydraConfig
from lightning import Trainer
from omegaconf import DictConfig

from strobe.app.build.instantiate import Parts
from strobe.app.config.checks import loaders_for
from strobe.app.config.register import workers_beside
from strobe.measure import environment
from strobe.records.run import SCHEMA
from strobe.records.steps import measure_steps

CHOICES = ("data", "loader", "engine", "model", "trainer", "profiler")
ASYNC_BLOCK = 20  # steps; on a GPU the host runs ahead, and a single step's time is that of its submission


def summarise(
    cfg: DictConfig,
    parts: Parts | None,
    run_dir: Path,
    *,
    status: str,
    error: BaseException | None,
    metrics: dict[str, float],
) -> dict[str, Any]:
    """``summary.json`` as far as training goes; ceilings and findings come after it. See docs/runs.md."""
    hydra = HydraConfig.get()
    trainer = parts.trainer if parts else None
    device = trainer and trainer.strategy.root_device.type
    steps = measure_steps(run_dir / "steps.csv", block=1 if device == "cpu" else ASYNC_BLOCK)
    for one in steps["callbacks"]:
        one["kind"] = _kind(one["name"], trainer)
    return {
        "schema": SCHEMA,
        "status": status,
        "error": error and {"type": type(error).__name__, "message": str(error)},
        "verdict": None,
        "data": parts.data.title if parts else None,
        "overrides": list(hydra.overrides.task),
        "choices": {group: hydra.runtime.choices[group] for group in CHOICES},
        "loaders": loaders_for(cfg.data.form, unasked=True),
        "batch_size": cfg.data.batch_size,
        "num_workers": workers_beside(cfg.engine),
        "threads": torch.get_num_threads(),
        "accelerator": device,
        "devices": trainer and trainer.num_devices,
        "world_size": trainer and trainer.world_size,
        "precision": str(cfg.trainer.precision),
        "train_images": len(parts.data.datasets["train"]) if parts else None,
        "batches_per_epoch": _batches_per_epoch(trainer),
        "environment": environment.describe(),
        **steps,
        "ceilings": None,
        "efficiency": None,
        "memory": environment.peak_memory(),
        "trace_evidence": None,
        "findings": [],
        "traces": sorted(str(path.relative_to(run_dir)) for path in run_dir.rglob("*.pt.trace.json*")),
        "metrics": metrics,
    }


def _kind(name: str, trainer: Trainer | None) -> str:
    if trainer is None:
        return "callback"
    if name in {type(logger).__name__ for logger in trainer.loggers}:
        return "logger"
    return "module" if name == type(trainer.lightning_module).__name__ else "callback"


def _batches_per_epoch(trainer: Trainer | None) -> int | None:
    batches = trainer and trainer.num_training_batches
    return int(batches) if batches and batches != float("inf") else None
