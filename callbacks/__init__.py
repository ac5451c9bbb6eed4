"""Lightning callbacks that any project can use: they import lightning, torch and the standard library only.

Names are imported on first use, so `python -m strobe.callbacks.normalise` and spans in worker processes need neither
lightning nor torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .memory import MemoryProfiler
    from .python_profile import PythonProfiler
    from .steps import Journal, ProgressBar, StepRecorder
    from .trace import TraceProfiler

_MODULES = {
    "Journal": "steps",
    "MemoryProfiler": "memory",
    "ProgressBar": "steps",
    "PythonProfiler": "python_profile",
    "StepRecorder": "steps",
    "TraceProfiler": "trace",
}
__all__ = ["Journal", "MemoryProfiler", "ProgressBar", "PythonProfiler", "StepRecorder", "TraceProfiler"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
