"""Sweeps: many configurations, trained one at a time, each in its own process. Imports no torch."""
