"""Opens a run's report, TensorBoard or Perfetto: ``python -m strobe.view --help``. Imports no torch."""
