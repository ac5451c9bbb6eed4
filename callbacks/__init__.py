"""Lightning callbacks that any project can use: they import lightning, torch and the standard library only."""

from callbacks.journal import Journal
from callbacks.phases import PhaseClock
from callbacks.steps import StepRecorder
from callbacks.trace import TraceProfiler

__all__ = ["Journal", "PhaseClock", "StepRecorder", "TraceProfiler"]
