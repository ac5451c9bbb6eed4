"""The command ``python -m strobe.bench``."""

import sys

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from strobe.config import register
from strobe.launch import quieten_kineto

codes: list[int] = []


@hydra.main(version_base="1.3", config_path="../../../conf", config_name="bench")
def measure(cfg: DictConfig) -> None:
    """Measure a suite; in a sweep, one after the other."""
    quieten_kineto()
    from strobe.bench.command import run
    from strobe.errors import StrobeError

    try:
        codes.append(run(cfg))
    except StrobeError as error:
        if HydraConfig.get().mode != RunMode.MULTIRUN:
            raise
        print(error, file=sys.stderr)  # the others are measured all the same
        codes.append(1)


def main() -> None:
    """List the suites, or measure; exits with the greatest of the suites' codes."""
    register()
    if "--list" in sys.argv[1:]:
        from strobe.bench.listing import show

        show([argument for argument in sys.argv[1:] if argument != "--list"])
        return
    try:
        measure()
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(max(codes, default=0))


if __name__ == "__main__":
    main()
