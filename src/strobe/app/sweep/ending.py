"""The end of a sweep: the comparison of its runs, and the command's exit code."""

import shlex
import sys
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from strobe.app.config.register import register
from strobe.errors import ConfigError, DataError, StrobeError
from strobe.overrides import key_of
from strobe.process.launch import refuse
from strobe.records.sweep import read_sweep

LAUNCHER = "processes"
FLAG = "sweep.fail_if_slower="


def conclude(folder: Path, keys: DictConfig | None = None) -> int:
    """Compare the runs of a sweep, or say why that fails; returns the gate's exit code, if there is a gate."""
    from strobe.app.config.compose import parse
    from strobe.compare.command import conclude as compare
    from strobe.measure.gate import UNKNOWN

    baseline, limit = (None, None) if keys is None else (keys.baseline, keys.fail_if_slower)
    code = UNKNOWN
    try:
        code = compare(folder, parse, baseline, limit)
    except StrobeError as error:
        print(error, file=sys.stderr)
    except Exception as error:  # a full disk, or a bug: the runs are kept all the same
        reason = " ".join(str(error).split()) or type(error).__name__
        again = shlex.join(["strobe", "compare", str(folder)])
        message = f"The runs could not be compared ({reason}); they are kept: {again} compares them"
        print(message, file=sys.stderr)
    return 0 if limit is None else code


def _require_enough(keys: DictConfig, runs: int, more: str) -> None:
    """Raise a :class:`ConfigError` for a gate that so many runs could never pass, or a limit that is not a share."""
    if keys.fail_if_slower is None:
        return
    from strobe.measure.gate import parse_share  # and NumPy: help and mistakes need not wait for it
    from strobe.measure.statistics import FEWEST

    parse_share(keys.fail_if_slower, FLAG)
    if runs < FEWEST:
        raise ConfigError(f"{FLAG}{keys.fail_if_slower} cannot be told from {runs} run of each cell; give {more}")


class Ending(Callback):
    """Compares the runs of a sweep at its end, whichever launcher ran them."""

    def on_run_start(self, config: DictConfig, **_: Any) -> None:
        """Refuse keys that only a sweep can use."""
        for key, usual in {"baseline": None, "fail_if_slower": None, "repeats": 1}.items():
            if config.sweep[key] != usual:
                refuse(ConfigError(f"sweep.{key}={config.sweep[key]} is for a sweep; add -m, or leave it out"))

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        """Refuse a gate that cannot pass, and keys that only Strobe's launcher can use."""
        launcher, keys = config.hydra.runtime.choices.get("hydra/launcher"), config.sweep
        try:  # Hydra turns a callback's exceptions into warnings, but lets a request to exit through
            if launcher == LAUNCHER:
                return _require_enough(keys, keys.repeats, "sweep.repeats=5")
            for key, usual, remedy in (
                ("timeout_seconds", None, f"leave it out with hydra/launcher={launcher}"),
                ("repeats", 1, f"with hydra/launcher={launcher} give seed=1,2,3 for three runs of each cell"),
            ):
                if keys[key] != usual:
                    raise ConfigError(f"sweep.{key}={keys[key]} is for hydra/launcher={LAUNCHER}; {remedy}")
            seeds = [text for text in config.hydra.overrides.task if key_of(text) == "seed"]
            parsed = OverridesParser.create().parse_overrides(seeds)
            _require_enough(keys, 1 + any(seed.is_sweep_override() for seed in parsed), "seed=1,2,3,4,5")
            from strobe.app.sweep.campaign import require_new  # and rich: help need not wait for it

            require_new(Path(config.hydra.sweep.dir), launcher)
        except ConfigError as error:
            refuse(error)

    def on_multirun_end(self, config: DictConfig, **_: Any) -> None:
        """Compare; exit with code 1 if no run completed, else with that of the gate."""
        folder = Path(config.hydra.sweep.dir)
        try:
            sweep = read_sweep(folder)
        except DataError as error:
            refuse(error)
        if sweep is None and not any(folder.glob("*/summary.json")):
            return
        try:
            code = conclude(folder, config.sweep)
            left = [cell for cell in sweep.cells if not cell.runs] if sweep else []
            if left:
                print(f"{len(left)} of an earlier command were not started; give its values again to train them")
        finally:
            if sweep is not None and not any(run.status == "completed" for run in sweep.runs()):
                sys.exit(1)
        if code:
            sys.exit(code)

    def __reduce__(self) -> Any:
        """Register schemas and resolvers in the processes of other launchers, where nobody else does."""
        return _registered, ()


def _registered() -> Ending:
    register()
    return Ending()
