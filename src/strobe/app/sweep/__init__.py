"""Sweeps: many configurations, each trained in a process of its own, one at a time. Imports no torch."""
