"""What follows when the runs of a sweep have ended: their comparison, and the command's exit code."""

import sys
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from strobe.config import register
from strobe.errors import StrobeError
from strobe.sweep.record import read_sweep

LAUNCHER = "processes"


def conclude(folder: Path) -> None:
    """Compare the runs in a sweep's directory: a table, and files beside them; or say why that cannot be."""
    from strobe.compare.command import conclude as compare

    try:
        compare(folder)
    except StrobeError as error:
        print(error, file=sys.stderr)


class Ending(Callback):
    """Compares the runs of a sweep when they have ended, whichever launcher ran them."""

    def on_run_start(self, config: DictConfig, **_: Any) -> None:
        """Refuse what only a sweep can do."""
        if config.sweep.repeats != 1:
            sys.exit(f"sweep.repeats={config.sweep.repeats} is for a sweep; add -m, or leave it out")

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        """Refuse what only the launcher of this project can do."""
        launcher = config.hydra.runtime.choices.get("hydra/launcher")
        if launcher != LAUNCHER and config.sweep.repeats != 1:
            sys.exit(
                f"sweep.repeats={config.sweep.repeats} is for hydra/launcher={LAUNCHER}; "
                f"with hydra/launcher={launcher} give seed=1,2,3 for three runs of each cell"
            )

    def on_multirun_end(self, config: DictConfig, **_: Any) -> None:
        """Compare; exit with code 1 if no run completed."""
        folder = Path(config.hydra.sweep.dir)
        sweep = read_sweep(folder)
        if sweep is None and not any(folder.glob("*/summary.json")):
            return
        conclude(folder)
        if sweep is not None and not any(run.status == "completed" for run in sweep.runs()):
            sys.exit(1)

    def __reduce__(self) -> Any:
        """In a process of another launcher nobody else makes the schemas and resolvers known."""
        return _registered, ()


def _registered() -> Ending:
    register()
    return Ending()
