"""Opening a run where a person wants to look: ``python -m strobe.view --help``. Imports no torch."""
