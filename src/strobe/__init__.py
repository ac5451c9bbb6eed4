"""Strobe: a timing light for PyTorch Lightning training."""

__version__ = "0.1.0"
