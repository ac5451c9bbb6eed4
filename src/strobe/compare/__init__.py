"""Runs and sweeps side by side: what is faster, by how much, and how certain that is."""
