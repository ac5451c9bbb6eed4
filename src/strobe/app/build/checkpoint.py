"""Which checkpoint a run resumes from, and whether it fits."""

from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn

from strobe.errors import ConfigError, DataError

FOLDER = "checkpoints"


class Checkpoints(ModelCheckpoint):
    """Lightning's, but for two things.

    It remembers the best score also when a run is resumed into another directory. One that saves every few epochs
    saves at the end of training too.
    """

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Keep the weights of the last epoch, whatever its number."""
        due = (self._every_n_epochs or 0) > 1 and self._last_global_step_saved != trainer.global_step
        if due and not trainer.fast_dev_run:
            self._save_topk_checkpoint(trainer, self._monitor_candidates(trainer))
        super().on_train_end(trainer, pl_module)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what was best so far; its file stays where it is."""
        super().load_state_dict(state_dict | {"dirpath": self.dirpath})


def find_checkpoint(wanted: str | None, run_dir: Path, outputs: Path = Path("outputs")) -> Path | None:
    """The file that ``ckpt_path`` means: ``last`` is this run's own, else the newest ``last.ckpt`` in ``outputs``."""
    if wanted != "last":
        return None if wanted is None else Path(wanted)
    own = run_dir / FOLDER / "last.ckpt"
    if own.is_file():
        return own
    found = sorted(outputs.glob(f"**/{FOLDER}/last.ckpt"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise DataError(
            f"ckpt_path=last: no {FOLDER}/last.ckpt in {run_dir} or below {outputs}; "
            "give a checkpoint file, or start anew without ckpt_path"
        )
    return found[-1]


def require_fitting(path: Path, model: nn.Module) -> None:
    """Refuse a file that is no checkpoint (a DataError), or one of another model (a ConfigError)."""
    try:
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        state, classes = content["state_dict"], content.get("hyper_parameters", {}).get("classes")
    except Exception as error:
        raise DataError(
            f"ckpt_path={path} cannot be read as a checkpoint ({type(error).__name__}); give a file that a run wrote"
        ) from error
    wanted = list(getattr(model, "classes", ())) or classes
    if classes is not None and list(classes) != wanted:
        raise ConfigError(
            f"ckpt_path={path} tells apart {', '.join(classes)}; the data has {', '.join(wanted)}; "
            "give the data that it was trained on, or another checkpoint"
        )
    own = model.state_dict()
    for name in [*own, *state]:
        here, there = (
            "missing" if name not in weights else "x".join(map(str, weights[name].shape)) or "a number"
            for weights in (own, state)
        )
        if here != there:
            raise ConfigError(
                f"ckpt_path={path} is of another model: {name} is {there} there and {here} here; "
                "give the data and model settings that it was trained with, or another checkpoint"
            )
