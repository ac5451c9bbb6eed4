"""One kernel in ten ways, how their times grow, and where profilers see the time of one go."""

from strobe.bench.suites.convolution.suite import declare

__all__ = ["declare"]
