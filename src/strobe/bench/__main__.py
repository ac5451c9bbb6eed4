"""The command ``strobe bench``."""

from strobe.process.signals import listen

if __name__ == "__main__":
    listen()  # before libraries are imported

import sys
from contextlib import nullcontext

import strobe.app.needed  # noqa: F401  # isort: skip

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from strobe.app.config.entry import command, task
from strobe.app.config.register import register
from strobe.process.launch import quieten_kineto, start

codes: list[int] = []


@hydra.main(version_base="1.3", config_path="../conf", config_name="bench")
def measure(cfg: DictConfig) -> None:
    """Measure a suite; in a sweep, one after the other."""
    quieten_kineto()
    from strobe.bench.command import run
    from strobe.errors import StrobeError

    try:
        with task() if HydraConfig.get().mode != RunMode.MULTIRUN else nullcontext():
            codes.append(run(cfg))
    except StrobeError as error:
        print(error, file=sys.stderr)  # the others are measured all the same
        codes.append(error.code)


def main() -> None:
    """List the suites, or measure; exits with the largest of the suites' codes, or 128 plus a signal's number."""
    register()
    if "--list" in sys.argv[1:]:
        from strobe.bench.command import show

        return show([argument for argument in sys.argv[1:] if argument != "--list"])
    with command("bench"):
        measure()
    sys.exit(max(codes, default=0))


if __name__ == "__main__":
    start(main)
