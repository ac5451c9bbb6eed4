"""Opens a run's report, TensorBoard or Perfetto: ``strobe view --help``. Imports no torch."""
