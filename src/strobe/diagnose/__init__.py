"""From a run's record to what to change: pure functions that read ``summary.json`` and the configuration."""
