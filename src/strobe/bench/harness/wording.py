"""A suite's figures in words: until all of them come from strobe.present.format."""

from strobe.present.format import estimate as ratio
from strobe.present.format import figure

__all__ = ["figure", "ratio"]
