"""The command ``strobe tune`` for a configuration of ``train.py``. Imports no torch."""

import sys

import hydra
from omegaconf import DictConfig

from strobe.app.config.entry import command, task
from strobe.app.config.register import CONF, register
from strobe.errors import ConfigError
from strobe.process.launch import quieten_kineto


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="tune")
def tune(cfg: DictConfig) -> None:
    """Search; ``strobe.app.tuning.command`` is imported here, so help and config errors do not wait for it."""
    quieten_kineto()
    from strobe.app.tuning.command import run

    with task():
        run(cfg)


def main() -> None:
    """Search from the configuration that ``sys.argv`` gives."""
    register()
    if {"-m", "--multirun"} & set(sys.argv[1:]):
        raise ConfigError("strobe tune takes no -m; run one search after the other")
    with command("tune"):
        tune()
