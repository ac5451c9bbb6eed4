"""Strobe: a timing light for PyTorch Lightning training.

``from strobe import Strobe`` is the callback for any Trainer. It is imported when it is asked for: ``import strobe``
takes neither torch nor Lightning.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from strobe.attach.callback import Strobe

__version__ = "0.1.0"
__all__ = ["Strobe", "__version__"]


def __getattr__(name: str) -> Any:
    if name != "Strobe":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from strobe.attach.callback import Strobe

    return Strobe
