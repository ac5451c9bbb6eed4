"""Processes that end with their parent, signals, and locks."""
