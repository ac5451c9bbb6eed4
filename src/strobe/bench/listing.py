"""``python -m strobe.bench --list``: the suites and their cells, nothing measured."""

from collections.abc import Sequence

from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console

from strobe.app.config.checks import check
from strobe.app.config.compose import CONF
from strobe.bench.command import declared, names
from strobe.bench.harness.declare import Suite
from strobe.errors import ConfigError


def show(overrides: Sequence[str]) -> None:
    """Print them all, or that of ``suite=NAME``, as other overrides make them.

    Raises:
        ConfigError: there is no such suite, or an override makes no sense.
    """
    console = Console()
    chosen = [given.removeprefix("suite=") for given in overrides if given.startswith("suite=")]
    others = [given for given in overrides if not given.startswith("suite=")]
    asked = [name for given in chosen for name in given.split(",")]
    if unknown := set(asked) - set(names()):
        raise ConfigError(f"suite={','.join(sorted(unknown))} is not there; give one of {', '.join(names())}")
    of_one = next((given for given in others if given.lstrip("+~").startswith("suite.")), None)
    if of_one and len(asked) != 1:
        raise ConfigError(f"{of_one} is a key of one suite; give suite=NAME too")
    for name in asked or names():
        _print(console, _suite(name, others))


def _suite(name: str, overrides: Sequence[str]) -> Suite:
    try:
        with initialize_config_dir(str(CONF), version_base="1.3"):
            cfg = compose("bench", [f"suite={name}", *overrides], return_hydra_config=True)
        HydraConfig.instance().set_config(cfg)
        check(cfg)
        return declared(cfg)
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(" ".join(str(error).split())) from error


def _print(console: Console, suite: Suite) -> None:
    console.print(f"suite={suite.name}: {suite.title}, {len(suite.cells)} cells", style="bold", markup=False)
    console.print(suite.about, markup=False, highlight=False)
    for cell in suite.cells:
        console.print(f"  {cell.name}", markup=False, highlight=False)
