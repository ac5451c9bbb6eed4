"""Strobe: a timing light for PyTorch Lightning training, and for any other.

``from strobe import Strobe`` is the callback for any Trainer; ``strobe.watch(loader)`` is for loops without one. They
are imported on first use: ``import strobe`` imports neither torch nor Lightning.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from strobe.attach.callback import Strobe
    from strobe.attach.watch import watch

__version__ = "0.1.0"
__all__ = ["Strobe", "__version__", "watch"]


def __getattr__(name: str) -> Any:
    if name == "Strobe":
        from strobe.attach.callback import Strobe
        from strobe.callbacks.lightnings import join_latest

        join_latest()
        return Strobe
    if name == "watch":
        from strobe.attach.watch import watch

        return watch
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
