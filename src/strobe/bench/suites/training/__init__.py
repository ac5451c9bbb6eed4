"""Trainings that are timed once they are steady."""
