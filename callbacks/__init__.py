"""Lightning callbacks that any project can use: they import lightning, torch and the standard library only.

Names are imported when they are asked for, so that `python -m callbacks.normalise` and the spans of a loader's
worker process need neither lightning nor torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from callbacks.journal import Journal
    from callbacks.memory import MemoryProfiler
    from callbacks.phase_clock import PhaseClock
    from callbacks.progress import ProgressBar
    from callbacks.python_profile import PythonProfiler
    from callbacks.steps import StepRecorder
    from callbacks.trace import TraceProfiler

_MODULES = {
    "Journal": "journal",
    "MemoryProfiler": "memory",
    "PhaseClock": "phase_clock",
    "ProgressBar": "progress",
    "PythonProfiler": "python_profile",
    "StepRecorder": "steps",
    "TraceProfiler": "trace",
}
__all__ = ["Journal", "MemoryProfiler", "PhaseClock", "ProgressBar", "PythonProfiler", "StepRecorder", "TraceProfiler"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
