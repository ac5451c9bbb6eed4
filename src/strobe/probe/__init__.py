"""Ceilings: what a loader, a model and a transfer reach alone."""
