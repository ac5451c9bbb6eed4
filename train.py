"""Train an image classifier and see where each training step goes: ``python train.py --help``."""

from strobe.process.signals import listen

if __name__ == "__main__":
    listen()  # before libraries are imported

import strobe.app.needed  # noqa: F401  # isort: skip

import hydra
from omegaconf import DictConfig

from strobe.app.config.entry import command, task
from strobe.app.config.register import register
from strobe.process.launch import quieten_kineto

register()


@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def main(cfg: DictConfig) -> None:
    """Run one training; ``strobe.app.run.train`` is imported here, so help and config errors do not wait for torch."""
    quieten_kineto()
    from strobe.app.run.train import run

    with task():
        run(cfg)


if __name__ == "__main__":
    with command("config"):
        main()
