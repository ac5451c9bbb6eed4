"""Compares runs and sweeps: which is faster, by how much, and how certain that is."""
