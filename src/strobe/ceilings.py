"""The command ``python -m strobe.ceilings``."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra import initialize_config_dir
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from strobe.app.config.compose import recomposed
from strobe.app.config.register import register
from strobe.errors import StrobeError
from strobe.process.launch import quieten_kineto

CONF = Path(__file__).parents[2] / "conf"
EXAMPLES = """
Each is measured for ceilings_seconds (5) at most, once it is warm. Nothing is trained that is kept, and nothing is
written. Exit code 1: something is missing or wrong, and one sentence says what.

Examples
  python -m strobe.ceilings data=eurosat loader=rasterio engine.num_workers=2
  python -m strobe.ceilings data.batch_size=128 ceilings_seconds=20 --json
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print; exits with a sentence when nothing can be measured."""
    parser = argparse.ArgumentParser(
        prog="python -m strobe.ceilings",
        description="What loading alone and the model alone reach, in images/s, for a configuration of train.py.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("overrides", nargs="*", metavar="OVERRIDE", help="GROUP=CHOICE or KEY=VALUE, as for train.py")
    parser.add_argument("--json", action="store_true", help="print the record, as in summary.json")
    given = parser.parse_args(arguments)
    register()
    try:
        record, cfg = _measure(given.overrides)
    except (HydraException, OmegaConfBaseException, StrobeError) as error:
        raise SystemExit(" ".join(str(error).split())) from None
    if given.json:
        print(json.dumps(record, indent=2))
    else:
        from rich.console import Console

        from strobe.app.run.ceilings_table import print_ceilings

        print_ceilings(record, cfg, Console())
    if record["loader"] is None and record["model"] is None:
        sys.exit(1)  # the reason has been printed


def _measure(overrides: Sequence[str]) -> tuple[dict[str, Any], DictConfig]:
    """The record's ``ceilings``, and the configuration; torch is imported when that is known to make sense."""
    with initialize_config_dir(str(CONF), version_base="1.3"), recomposed(overrides) as cfg:
        quieten_kineto()
        import lightning

        from strobe.app.build.instantiate import build_data
        from strobe.app.run.ceilings import Ceilings
        from strobe.app.run.train import quieten

        quieten()
        lightning.seed_everything(cfg.seed, workers=True, verbose=False)
        data = build_data(cfg)
        data.prepare_data()
        data.setup()
        return Ceilings(cfg, data, overrides).measure(), cfg


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
