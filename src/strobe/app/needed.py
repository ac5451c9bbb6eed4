"""Imported first by each command of the application: if its packages are missing, it says how to install them.

From here on Ctrl-C leaves no traceback, also while other libraries are imported.
"""

import sys
from importlib.util import find_spec
from types import TracebackType

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


def _without_interrupts(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)


sys.excepthook = _without_interrupts
if missing := [name for name in PACKAGES if is_missing(name)]:
    told = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
    sys.exit(
        f"This command needs packages that are not installed ({told}), and a checkout of Strobe's repository: "
        "run make setup there, or pip install -e '.[app]'"
    )
