"""The typed schema of each configuration group, one module for each. Imports no torch."""

from dataclasses import field
from typing import Any


def knob(default: Any, **rules: Any) -> Any:
    """A field whose values are bounded: ``min``, ``max`` (inclusive), ``above``, or ``choices``."""
    return field(default=default, metadata=rules)
