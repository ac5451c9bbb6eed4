"""The command ``python -m strobe.tune``."""

import sys

import strobe.app.needed  # noqa: F401  # isort: skip

import hydra
from omegaconf import DictConfig

from strobe.app.config.entry import command, task
from strobe.app.config.register import register
from strobe.process.launch import quieten_kineto
from strobe.process.signals import exit_code, interruptible


@hydra.main(version_base="1.3", config_path="conf", config_name="tune")
def tune(cfg: DictConfig) -> None:
    """Search; ``strobe.app.tuning.command`` is imported here, so help and config errors do not wait for it."""
    quieten_kineto()
    from strobe.app.tuning.command import run

    with task():
        run(cfg)


def main() -> None:
    """Search; exits with 128 plus a signal's number if one ended it."""
    register()
    if {"-m", "--multirun"} & set(sys.argv[1:]):
        sys.exit("python -m strobe.tune takes no -m; run one search after the other")
    try:
        with interruptible(), command("tune"):
            tune()
    except KeyboardInterrupt as interrupt:
        sys.exit(exit_code(interrupt))


if __name__ == "__main__":
    main()
