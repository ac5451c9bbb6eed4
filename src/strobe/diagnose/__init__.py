"""From a run's record to what to change: pure functions of ``summary.json`` and the configuration."""
