"""Which checkpoints a run writes and keeps, which one it resumes from, and whether that fits."""

import contextlib
import logging
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch
from lightning import Trainer
from lightning.fabric.plugins.io import TorchCheckpointIO
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning_utilities.core.apply_func import apply_to_collection
from omegaconf import DictConfig
from torch import Tensor, nn

from strobe.app.config.compose import in_sweep
from strobe.app.config.resuming import OUTPUTS, last_checkpoint
from strobe.errors import ConfigError, DataError
from strobe.present.format import counted
from strobe.records.files import whole

BEST, LAST = "best.ckpt", "last.ckpt"
# Seconds of training, from which on a completed run keeps each of the two, and any other both from the first on.
KEEP_BEST, KEEP_LAST = 60.0, 600.0
WRITE_EVERY = 60.0  # seconds between two writes of what is held in memory
MEGABYTES = {"none": 4, "weights": 90, "auto": 320, "resume": 420}  # of resnet18 with Adam; with one being written
RESNET18 = 11.2e6  # parameters

log = logging.getLogger(__name__)


class Checkpoints(ModelCheckpoint):
    """Lightning's, with two differences.

    It remembers the best score when a run is resumed into another directory, and one that saves every few epochs also
    saves at the end of training.
    """

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Keep the weights of the last epoch, whatever its number."""
        due = (self._every_n_epochs or 0) > 1 and self._last_global_step_saved != trainer.global_step
        if due and not trainer.fast_dev_run:
            self._save_topk_checkpoint(trainer, self._monitor_candidates(trainer))
        super().on_train_end(trainer, pl_module)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the best score so far; its file stays where it is."""
        super().load_state_dict(state_dict | {"dirpath": self.dirpath})


class OtherRanks(Callback):
    """Resumes within an epoch with other ranks, or another batch size, so that each image is still seen once.

    Of Lightning's progress, which counts batches, it makes that of the new batches.
    """

    def on_load_checkpoint(self, trainer: Trainer, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Before Lightning restores its loops."""
        data: Any = getattr(trainer, "datamodule", None)
        state = checkpoint.get(type(data).__qualname__)
        if not isinstance(state, dict) or not isinstance(state.get("seen"), int):  # an earlier version's
            return
        progress = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]
        more = data.resume(state) - progress["current"]["ready"]
        progress["current"] = {name: count + more for name, count in progress["current"].items()}


class Whole(TorchCheckpointIO):
    """Writes each checkpoint beside its place, so that an earlier one stays until the new one stands.

    Lightning writes to the folder for temporary files first. Where that lies on another disk, moving the file from
    there empties the earlier one, and is not done at once.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Write the file, whole or not at all; a URL is left to Lightning. Raises an OSError, also of a full disk."""
        if storage_options is not None or "://" in str(path):
            super().save_checkpoint(checkpoint, path, storage_options)
            return
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with whole(Path(path)) as partial, partial.open("wb") as file:
            try:
                torch.save(checkpoint, file)
            except RuntimeError as error:  # of ending an archive that could not be written
                raise (full if isinstance(full := error.__context__, OSError) else error) from None


class Held(Whole):
    """Keeps Strobe's own checkpoints in memory and writes them once a minute, so a short run never waits for the disk.

    Those are ``best.ckpt`` and ``last.ckpt`` in ``folder``; what a user's callback saves is written at once.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.held: dict[str, dict[str, Any]] = {}  # path, checkpoint
        self._written = time.monotonic()

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Keep a copy; write what is in memory if the last write was a minute ago."""
        if Path(path) not in (self.folder / BEST, self.folder / LAST):
            super().save_checkpoint(checkpoint, path, storage_options)
            return
        self.held[str(path)] = apply_to_collection(checkpoint, Tensor, lambda tensor: tensor.to("cpu", copy=True))
        if time.monotonic() - self._written >= WRITE_EVERY:
            self.write()

    def load_checkpoint(self, path: Any, *given: Any, **options: Any) -> dict[str, Any]:
        """The checkpoint in memory, or else the one in the file."""
        return self.held.get(str(path)) or super().load_checkpoint(path, *given, **options)

    def remove_checkpoint(self, path: Any) -> None:
        """Remove the file and the copy in memory."""
        self.held.pop(str(path), None)
        super().remove_checkpoint(path)

    def write(self) -> None:
        """Write every checkpoint that is still in memory."""
        for path in list(self.held):
            super().save_checkpoint(self.held[path], path)
            del self.held[path]
        self._written = time.monotonic()


def write_whole(trainer: Trainer, *, hold: Path | None) -> None:
    """Let all checkpoints be written whole, those in the folder ``hold`` from memory.

    Not with several ranks, where only one saves but all load.
    """
    if type(trainer.strategy.checkpoint_io) is TorchCheckpointIO:
        trainer.strategy.checkpoint_io = Held(hold) if hold and trainer.world_size == 1 else Whole()


def write_held(trainer: Trainer, *, but: Collection[str] = ()) -> None:
    """Write the checkpoints that are in memory, except those named in ``but``, which are dropped."""
    if isinstance(held := trainer.strategy.checkpoint_io, Held):
        for name in but:
            held.held.pop(str(held.folder / name), None)
        held.write()


def best_of(trainer: Trainer) -> str | None:
    """The path of the best checkpoint, on disk or still in memory; None if there is no such checkpoint."""
    path = getattr(trainer.checkpoint_callback, "best_model_path", "")
    held = trainer.strategy.checkpoint_io
    there = path and (Path(path).is_file() or (isinstance(held, Held) and path in held.held))
    return path if there else None


def wanted(cfg: DictConfig) -> str:
    """What ``checkpoint.save`` means for this run; ``auto`` if its length decides, which is known only at its end."""
    if not cfg.trainer.enable_checkpointing:
        return "none"
    if cfg.checkpoint.save != "auto":
        return str(cfg.checkpoint.save)
    if cfg.checkpoint.every_n_steps is not None or cfg.ckpt_path is not None:
        return "resume"
    return "none" if in_sweep() else "auto"


def megabytes(cfg: DictConfig, model: nn.Module | None = None) -> float:
    """About what a run writes at most; that of resnet18 without a ``model``, or for a smaller one."""
    parameters = sum(weight.numel() for weight in model.parameters()) if model else 0
    return MEGABYTES[wanted(cfg)] * max(parameters / RESNET18, 1)


def checkpoints(cfg: DictConfig, folder: Path) -> list[Checkpoints]:
    """``best.ckpt`` by a validation metric, and ``last.ckpt`` after each epoch and, if wanted, in the middle of one."""
    monitor, steps, epochs = cfg.checkpoint.monitor, cfg.checkpoint.every_n_steps, cfg.checkpoint.every_n_epochs
    if (save := wanted(cfg)) == "none":
        return []
    common: dict[str, Any] = {"dirpath": folder, "enable_version_counter": False}
    best: dict[str, Any] = {
        "filename": "best",
        "monitor": monitor,
        "mode": "min" if monitor.endswith("loss") else "max",
    }
    best |= {"save_on_train_epoch_end": False, "save_weights_only": save != "resume"}
    callbacks = [Checkpoints(every_n_epochs=epochs, **best, **common)]
    if save != "weights":
        callbacks.append(Checkpoints(filename="last", save_on_train_epoch_end=True, every_n_epochs=epochs, **common))
        if steps is not None:
            callbacks.append(Checkpoints(filename="last", every_n_train_steps=steps, **common))
    return callbacks


def unkept(seconds: float, *, completed: bool = True) -> list[str]:
    """The files that a run of this many seconds need not keep with ``checkpoint.save=auto``."""
    return [LAST] * (seconds < (KEEP_LAST if completed else KEEP_BEST)) + [BEST] * (seconds < KEEP_BEST)


def tidy(folder: Path, seconds: float, began: float, *, completed: bool = True) -> None:
    """Remove what a run need not keep.

    ``began``: its start, as Unix time; an earlier run's files in the same folder stay.
    """
    for path in (folder / name for name in unkept(seconds, completed=completed)):
        if path.is_file() and path.stat().st_mtime >= began:
            path.unlink()
    if seconds < KEEP_BEST:
        with contextlib.suppress(OSError):  # an earlier run's may lie there
            folder.rmdir()
        keeps = "weights keeps the best" if completed else "resume keeps one to go on from"
        text = f"Training took %.0f s, so no checkpoint is kept; checkpoint.save={keeps}"
        if any(path.stat().st_mtime < began for path in folder.glob("*.ckpt")):
            text += f". {folder.name}/ still holds those of an earlier run"
        log.info(text, seconds)


def find_checkpoint(cfg: DictConfig, run_dir: Path, outputs: Path = OUTPUTS) -> Path | None:
    """The file that ``ckpt_path`` means; ``last``: this run's own, else that of the same training, which is logged."""
    if cfg.ckpt_path != "last":
        return None if cfg.ckpt_path is None else Path(cfg.ckpt_path)
    last = last_checkpoint(cfg, run_dir, outputs)
    if run_dir in last.parents:
        return last
    saved = last.stat().st_mtime
    newer = [path.parent for path in outputs.glob("**/summary.json") if path.stat().st_mtime > saved]
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(saved))
    others = sum(run != last.parents[1] for run in newer)
    more = f"; {counted(others, 'newer run')} kept none, or trained something else" if others else ""
    log.log(logging.WARNING if others else logging.INFO, "ckpt_path=last takes %s of %s%s", last, when, more)
    return last


def require_fitting(path: Path, model: nn.Module) -> None:
    """Raise a DataError for a file that is not a checkpoint, a ConfigError for one of another model."""
    try:
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        state, classes = content["state_dict"], content.get("hyper_parameters", {}).get("classes")
    except Exception as error:
        raise DataError(
            f"ckpt_path={path} cannot be read as a checkpoint ({type(error).__name__}); give a file that a run wrote"
        ) from error
    model_classes = list(getattr(model, "classes", ())) or classes
    if classes is not None and list(classes) != model_classes:
        raise ConfigError(
            f"ckpt_path={path} tells apart {', '.join(classes)}; the data has {', '.join(model_classes)}; "
            "give the data that it was trained on, or another checkpoint"
        )
    model_state = model.state_dict()
    for name in [*model_state, *state]:
        here, there = (
            "missing" if name not in weights else "x".join(map(str, weights[name].shape)) or "a number"
            for weights in (model_state, state)
        )
        if here != there:
            raise ConfigError(
                f"ckpt_path={path} is of another model: {name} is {there} there and {here} here; "
                "give the data and model settings that it was trained with, or another checkpoint"
            )
    if "optimizer_states" not in content:
        raise ConfigError(
            f"ckpt_path={path} holds weights only, so it cannot be resumed; give a last.ckpt (a run keeps it with "
            f"checkpoint.save=resume), or start anew from these weights with model.weights={path}"
        )
