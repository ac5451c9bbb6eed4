"""The suites: each module declares one, by its function ``declare``. Imports no torch before a cell is made."""
