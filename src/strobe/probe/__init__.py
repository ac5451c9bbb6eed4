"""Ceilings: what a loader, a model and a transfer can reach alone."""
