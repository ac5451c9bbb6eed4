"""``python -m strobe.bench --list``: the suites and their cells, nothing measured."""

from collections.abc import Sequence

from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from rich.console import Console

from strobe.bench.command import declared, names
from strobe.bench.composing import CONF
from strobe.bench.harness.declare import Suite


def show(overrides: Sequence[str]) -> None:
    """Print them all, or that of ``suite=NAME``, as other overrides make them."""
    console = Console()
    asked = [given.removeprefix("suite=") for given in overrides if given.startswith("suite=")]
    others = [given for given in overrides if not given.startswith("suite=")]
    for name in asked or names():
        with initialize_config_dir(str(CONF), version_base="1.3"):
            cfg = compose("bench", [f"suite={name}", *others], return_hydra_config=True)
        HydraConfig.instance().set_config(cfg)
        _print(console, declared(cfg))


def _print(console: Console, suite: Suite) -> None:
    console.print(f"suite={suite.name}: {suite.title}, {len(suite.cells)} cells", style="bold", markup=False)
    console.print(suite.about, markup=False, highlight=False)
    for cell in suite.cells:
        console.print(f"  {cell.name}", markup=False, highlight=False)
