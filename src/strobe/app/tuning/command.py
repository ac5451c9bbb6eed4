"""One search, from the configuration that was given to the command with which to train."""

import shlex
import shutil
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from strobe.app.config.checks import check
from strobe.app.config.compose import endings, require_one_device
from strobe.app.tuning import saving
from strobe.app.tuning.measuring import Measuring
from strobe.overrides import command_of, key_of
from strobe.present.terminal import console as output
from strobe.present.terminal import say
from strobe.process.locks import alone_in
from strobe.records.places import OUTPUTS, discard
from strobe.tune.page import write_page
from strobe.tune.record import NAME, Tuning, begin
from strobe.tune.script import seconds
from strobe.tune.session import begun, search
from strobe.tune.table import print_tuning, times

OWN = ("tune.", "hydra.", "sweep.")  # keys that train.py is not given


def run(cfg: DictConfig, measuring: Callable[..., AbstractContextManager[Measuring]] = Measuring) -> None:
    """Search, and show and keep what was found, also where Ctrl-C ends it; ``measuring`` makes the machine."""
    console = output()
    check(cfg)
    require_one_device(cfg.trainer.devices)
    preset = saving.destination(cfg.tune.save) if cfg.tune.save is not None else None
    task = list(HydraConfig.get().overrides.task)
    base = [override for override in task if not key_of(override).startswith(OWN)]
    over = None if cfg.tune.over is None else list(cfg.tune.over)
    places = [text for text in HydraConfig.get().overrides.hydra if key_of(text) == "hydra.run.dir"]
    command = shlex.join(["strobe", "tune", *task, *places])  # as it goes on where it was broken off
    folder = Path(HydraConfig.get().runtime.output_dir)
    budget = seconds(cfg.tune.budget, "tune.budget=")
    fresh = begin(folder, base, over, command=command, budget=budget)
    tuning = begun(fresh, OUTPUTS / "tune", "hydra.run.dir=" if places else None, console)
    if tuning.folder != folder:
        shutil.rmtree(folder, ignore_errors=True)  # Hydra has just made it, and nothing will lie there
    with alone_in(tuning.folder, "hydra.run.dir"):
        config: Any = OmegaConf.to_object(cfg.tune)
        deadline = time.monotonic() + tuning.header["budget"] - tuning.seconds
        machine = measuring(tuning.folder, config, deadline=deadline, without=endings(cfg.callbacks))
        try:
            search(tuning, machine, console)
        finally:
            if not tuning.probes:
                discard(tuning.folder, NAME, "looks", ".hydra", "tune.log", ".lock", made=not places)
    print_tuning(console, tuning)
    if preset is not None:
        _save(preset, tuning, console)
    say(console, str(write_page(tuning)))


def _save(preset: Path, tuning: Tuning, console: Console) -> None:
    if not tuning.changes or tuning.recommended != tuning.best:
        say(console, f"tune.save={preset.stem}: nothing is measurably faster, so nothing was written.")
        return
    ratio, command = (tuning.proof or {}).get("ratio"), command_of(tuning.best)
    saving.save(preset, tuning.best, f"{times(ratio)} as fast: {command}" if ratio else command)
    say(console, f"Saved: python train.py experiment={preset.stem}")
