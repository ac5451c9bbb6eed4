"""Which checkpoint ``ckpt_path`` means, and whether it leaves anything to train. Imports torch only to read one."""

from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from strobe.errors import ConfigError
from strobe.present.format import counted
from strobe.records.run import CONFIG, read_yaml

OUTPUTS, CHECKPOINTS = Path("outputs"), "checkpoints"  # where runs lie, and in a run its checkpoints
MAY_CHANGE = {  # keys of data and model that leave what is trained as it was
    *("batch_size", "val_batch_size", "download", "verify", "endpoint", "requests", "timeout_seconds", "cache"),
    *("cache_gb", "channels_last", "compile", "fused", "weights"),
}


def last_checkpoint(cfg: DictConfig, run_dir: Path, outputs: Path) -> Path:
    """What ``ckpt_path=last`` means: this run's own ``last.ckpt``, else the newest of this training in ``outputs``."""
    file = run_dir / CHECKPOINTS / "last.ckpt"
    if file.is_file():
        return file
    others = sorted(outputs.glob(f"**/{CHECKPOINTS}/last.ckpt"), key=lambda path: path.stat().st_mtime, reverse=True)
    differing = ((path, _difference(path.parents[1], cfg)) for path in others)
    if (last := next((path for path, key in differing if not key), None)) is not None:
        return last
    if others:
        raise ConfigError(
            f"ckpt_path=last: no last.ckpt below {outputs} is of this data and model (the newest, {others[0]}, was "
            f"saved {_difference(others[0].parents[1], cfg)}); give the same settings, or ckpt_path=FILE, or start "
            "anew without ckpt_path"
        )
    raise ConfigError(
        f"ckpt_path=last: no {CHECKPOINTS}/last.ckpt in {run_dir} or below {outputs} (a run keeps it with "
        "checkpoint.save=resume, or after ten minutes of training, an interrupted one after a minute); give a "
        "checkpoint file, or start anew without ckpt_path"
    )


def _difference(run: Path, cfg: DictConfig) -> str:
    """``with model.lr=0.1``: what shows that an earlier run trained another model, or on other data; else empty."""
    try:
        theirs: Any = OmegaConf.to_container(OmegaConf.create(read_yaml(run / CONFIG) or {}), resolve=True)
    except OmegaConfBaseException:
        theirs = {}
    if not all(isinstance(theirs.get(group), dict) for group in ("data", "model")):
        return f"without a readable {CONFIG}"
    for group in ("data", "model"):
        ours: Any = OmegaConf.to_container(cfg[group], resolve=True)
        for key, value in ours.items():
            if key not in MAY_CHANGE and (other := theirs[group].get(key, value)) != value:
                return f"with {group}.{key}={other}"
    return ""


def check_unfinished(path: Path, trainer: DictConfig) -> None:
    """Raise a :class:`ConfigError` for a checkpoint with nothing left to train. Imports torch, to read the file.

    ``require_fitting``, which has the model, refuses a file from which nothing can be resumed.
    """
    import torch

    try:
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        epochs = content["loops"]["fit_loop"]["epoch_progress"]["current"]["processed"]
        done = {"max_epochs": epochs, "max_steps": content["global_step"]} if "optimizer_states" in content else {}
    except Exception:
        return
    for key, count in done.items():
        most, what = trainer.get(key), counted(count, key.removeprefix("max_").removesuffix("s"))
        if most is not None and count >= most != -1:
            raise ConfigError(
                f"ckpt_path={path} has trained {what} already, and trainer.{key}={most}; give "
                f"trainer.{key}={count + 1} or more, or start anew without ckpt_path"
            )
