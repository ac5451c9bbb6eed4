"""Imported first by each command of the application: if its packages are missing, it says how to install them."""

import sys
from importlib.util import find_spec

# By the names that are imported; the extra `app` in pyproject.toml has those of the distributions.
PACKAGES = (
    *("filelock", "hydra", "imagecodecs", "jinja2", "lightning", "matplotlib", "numpy", "omegaconf", "PIL"),
    *("pyinstrument", "rasterio", "rich", "scipy", "skimage", "tensorboard", "tifffile", "torch"),
    *("torch_tb_profiler", "torchmetrics", "torchvision", "yaml"),
)


def is_missing(name: str) -> bool:
    """Whether a package cannot be found."""
    try:
        return find_spec(name) is None
    except ImportError:  # something keeps it from being imported
        return True


if missing := [name for name in PACKAGES if is_missing(name)]:
    names = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
    sys.exit(
        f"This command needs packages that are not installed ({names}), and a checkout of Strobe's repository: "
        "run make setup there, or pip install -e '.[app]'"
    )
