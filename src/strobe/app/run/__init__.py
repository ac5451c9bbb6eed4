"""One run: training, its summary, and the ceilings after it."""
