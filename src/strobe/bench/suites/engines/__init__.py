"""Engines against each other, and training against the model's own ceiling."""
