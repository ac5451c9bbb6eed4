"""Processes that end with their parent: fork server, trainings, signals, locks."""
