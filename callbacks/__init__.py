"""Lightning callbacks that any project can use: they import lightning, torch and the standard library only."""

from callbacks.phases import PhaseClock
from callbacks.steps import StepRecorder
from callbacks.trace import TraceProfiler

__all__ = ["PhaseClock", "StepRecorder", "TraceProfiler"]
